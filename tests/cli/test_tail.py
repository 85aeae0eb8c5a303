"""What `tail` shows, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_gym.store.compact import compact

from ..store.lines import encoded, live_file, write
from .conftest import Invoke

CALL = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "toy-1"}


def test_what_is_there_is_shown_in_order_of_time(example_store: Path, invoke: Invoke) -> None:
    result = invoke("tail", "--once", "--dir", example_store)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert any("run-1/1-0  chat m" in line and "200 → 10 tokens" in line for line in lines)
    assert any("run-1/2-0" in line and "ERROR" in line for line in lines)
    rows = [json.loads(line) for line in invoke("tail", "--once", "--json", "--dir", example_store).stdout.splitlines()]
    assert len(rows) == len(lines)
    assert [row["time_ns"] for row in rows] == sorted(row["time_ns"] for row in rows)


def test_one_rollout_of_one_run_can_be_asked_for(example_store: Path, invoke: Invoke) -> None:
    text = invoke("tail", "run-2/1-0", "--once", "--dir", example_store).stdout
    assert "run-2/1-0" in text and "run-1" not in text


def test_the_spans_that_name_no_run_have_an_address_as_in_show(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), encoded("1", "chat m"), encoded("2", "chat n", run="run-1"))
    result = invoke("tail", "-/1-0", "--once", "--dir", tmp_path)
    assert (result.exit_code, "chat m" in result.stdout, "chat n" in result.stdout) == (0, True, False)


def test_what_is_unknown_is_null(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), encoded("1", end=None, **CALL))
    (row,) = (json.loads(line) for line in invoke("tail", "--once", "--json", "--dir", tmp_path).stdout.splitlines())
    assert (row["model"], row["duration_ms"], row["tokens_in"], row["error"]) == ("toy-1", None, None, None)


def test_once_without_a_store_cannot_be_done(tmp_path: Path, invoke: Invoke) -> None:
    assert invoke("tail", "--once", "--dir", tmp_path / "none").exit_code == 2
    (tmp_path / "x").write_text("x")
    assert invoke("tail", "--dir", tmp_path).exit_code == 2


def test_a_damaged_line_is_said_and_the_exit_code_tells(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), b"junk", encoded("1"))
    result = invoke("tail", "--once", "--dir", tmp_path)
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    assert "w.jsonl:1: " in result.stderr


@pytest.mark.parametrize("flags", [[], ["--from-start"]])
def test_a_live_store_is_followed_until_ctrl_c(tmp_path: Path, flags: list[str]) -> None:
    directory = tmp_path / "store"
    command = [sys.executable, "-m", "otel_gym.cli", "tail", "--interval", "0.02", "--dir", str(directory), *flags]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "waiting for spans" in process.stderr.readline()
        time.sleep(0.1)
        line = encoded("1", name="first")
        file = live_file(directory)
        file.write_bytes(line[:40])
        time.sleep(0.1)
        file.write_bytes(line + b"\n")
        assert "first" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_an_unknown_rollout_gave_nothing_and_0(example_store: Path, invoke: Invoke) -> None:
    for address in ("99-9", "run-1/99-9"):
        result = invoke("tail", address, "--once", "--dir", example_store)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no rollout '99-9'" in result.stderr and "the nearest rollouts: " in result.stderr
    result = invoke("tail", "run-3/1-0", "--once", "--dir", example_store)
    assert result.exit_code == 2 and "there is run-1/1-0, run-2/1-0" in result.stderr


def test_spans_without_a_run_can_be_asked_for(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), encoded("1", name="of none"), encoded("2", name="of r", run="r"))
    (line,) = invoke("tail", "r/1-0", "--once", "--dir", tmp_path).stdout.splitlines()
    assert "of r" in line


def forms_of(store: Path, folder: Path) -> dict[str, Path]:
    """The same spans in every form that is read."""
    content = b"".join(path.read_bytes() for path in sorted((store / "spans").rglob("*.jsonl")))
    (folder / "lines").mkdir()
    (folder / "lines" / "traces.jsonl").write_bytes(content)
    (folder / "one.jsonl").write_bytes(content)
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(content))
    assert compact(store, into=folder / "sealed", idle_s=0).spans
    return {
        "folder of lines": folder / "lines",
        "file": folder / "one.jsonl",
        "packed": folder / "packed.jsonl.gz",
        "sealed": folder / "sealed",
        "parquet": folder / "sealed" / "parquet",
    }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    write(live_file(directory), encoded("1", "chat m"), encoded("2", "rollout", run="r", start=5, end=30))
    write(live_file(directory, "2-0"), encoded("3", "chat n", rollout="2-0"))
    return directory


def test_files_of_lines_and_sealed_stores_showed_nothing_and_0(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    shown = invoke("tail", "--once", "--dir", store).stdout
    one = invoke("tail", "1-0", "--once", "--dir", store).stdout
    assert (len(shown.splitlines()), len(one.splitlines())) == (3, 2)
    for form, path in forms_of(store, tmp_path).items():
        assert (form, invoke("tail", "--once", "--dir", path).stdout) == (form, shown)
        assert (form, invoke("tail", "1-0", "--once", "--dir", path).stdout) == (form, one)


def test_what_does_not_grow_was_followed_for_ever(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    forms = forms_of(store, tmp_path)
    del forms["sealed"]  # a store's folder, into which a process may write
    for path in forms.values():
        result = invoke("tail", "--from-start", "--dir", path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"otel-gym: {path}: only a store's folder can be followed; --once shows what is there\n"
