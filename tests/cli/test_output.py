"""How commands end when what they say cannot be written, or nobody reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..store.lines import encoded, live_file, write

ROOT = Path(__file__).parents[2]
READERS = [
    "ls",
    "ls --json",
    "show run-1/1-0",
    "show run-1/1-0 --json",
    "stats",
    "doctor",
    "tail --once",
    "export model-calls",
    "export trajectory",
]


def in_a_shell(command: str) -> tuple[int, str, str]:
    """Exit code of `otel-gym`, stdout and stderr of the whole."""
    script = command.replace("otel-gym", f"{sys.executable} -m otel_gym.cli", 1) + "\nexit ${PIPESTATUS[0]}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", READERS)
def test_a_full_disk_on_stdout_gave_a_traceback_and_1(example_store: Path, command: str) -> None:
    code, _, said = in_a_shell(f"otel-gym {command} --dir {example_store} > /dev/full")
    (line,) = said.splitlines()
    assert (code, line.startswith("otel-gym: stdout cannot be written: No space left")) == (2, True)


@pytest.mark.parametrize("command", [*READERS, "join {rows}", "query 'FROM spans'", "query 'FROM spans' --json"])
def test_a_closed_stdout_gave_a_traceback_and_1(example_store: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"_ng_rollout_id": "1-0"}\n')
    command = command.format(rows=tmp_path / "rows.jsonl")
    code, _, said = in_a_shell(f"otel-gym {command} --dir {example_store} >&-")
    (line, *_) = [line for line in said.splitlines() if "stdout" in line]
    assert (code, "Traceback" in said) == (2, False)
    assert line.startswith("otel-gym: stdout cannot be written: Bad file descriptor")


def test_what_goes_to_a_file_needs_no_stdout_and_no_stderr(example_store: Path, tmp_path: Path) -> None:
    output = tmp_path / "spans.jsonl"
    command = f"otel-gym query 'FROM spans' -o {output} --dir {example_store}"
    assert in_a_shell(f"{command} <&- >&- 2>&-") == (0, "", "")
    assert output.read_text().count("\n") > 10


@pytest.mark.parametrize("command", ["query -", "join -"])
def test_a_closed_stdin_gave_a_traceback_and_1(example_store: Path, command: str) -> None:
    code, printed, said = in_a_shell(f"otel-gym {command} --dir {example_store} <&-")
    assert (code, printed) == (2, "")
    assert said == "otel-gym: stdin cannot be read: Bad file descriptor; give it something, or name a file\n"


def test_a_program_that_is_started_finds_the_streams_that_the_shell_closed(tmp_path: Path) -> None:
    program = f"{sys.executable} -c 'import sys; print(1); sys.exit(sys.stdout is not None)'"
    assert in_a_shell(f"otel-gym run --dir {tmp_path / 's'} -- {program} >&-")[0] == 0


def test_help_on_a_full_disk_gave_a_traceback_and_1() -> None:
    code, _, said = in_a_shell("otel-gym ls --help > /dev/full")
    assert (code, len(said.splitlines())) == (2, 1)


@pytest.mark.parametrize("arguments", ["show nosuch", "show --nosuch"])
def test_an_error_that_nobody_reads_ended_with_1(example_store: Path, arguments: str) -> None:
    assert in_a_shell(f"otel-gym {arguments} --dir {example_store} 2>&1 | true")[0] == 2


@pytest.mark.parametrize("command", ["doctor", "doctor --json", "stats", "show 1-0", "ls", "export model-calls"])
def test_damage_that_a_closed_pipe_cut_short_was_sometimes_0(tmp_path: Path, command: str) -> None:
    write(live_file(tmp_path), b"junk", *(encoded(str(number)) for number in range(100)))
    assert {in_a_shell(f"otel-gym {command} --dir {tmp_path} | true")[0] for _ in range(2)} == {1}


def test_a_whole_store_in_a_pipe_that_is_closed_early_is_0(example_store: Path, tmp_path: Path) -> None:
    shutil.copytree(example_store, tmp_path / "store")
    assert in_a_shell(f"otel-gym doctor {tmp_path / 'store'} | true")[0] == 0
