"""What a person sees at a terminal: pseudo terminals stand for stdout, stderr or both."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Seen:
    returncode: int
    terminal: str
    stdout: bytes


def at_a_terminal(command: str, columns: int = 80, stdout: Path | None = None) -> Seen:
    """Runs a shell command whose stderr, and stdout unless it goes to a file, is a terminal."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    command = command.replace("otel-gym", f"{sys.executable} -m otel_gym.cli")
    chunks: list[bytes] = []

    def read() -> None:
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:  # how Linux says that the last holder closed it
                return
            if not chunk:
                return
            chunks.append(chunk)

    reading = threading.Thread(target=read)
    with open(stdout or os.devnull, "wb") as file:
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=file if stdout else side,
            stderr=side,
            env=environment,
        )
    os.close(side)
    reading.start()
    returncode = process.wait(60)
    reading.join(10)
    os.close(main)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    return Seen(returncode, text, stdout.read_bytes() if stdout else b"")


def test_export_to_a_file_lost_every_row_at_a_terminal(example_store: Path, tmp_path: Path) -> None:
    """rich took what was written to stdout for the bar's terminal."""
    seen = at_a_terminal(f"otel-gym export model-calls --dir {example_store}", stdout=tmp_path / "calls.jsonl")
    assert seen.returncode == 0
    assert len([json.loads(line) for line in seen.stdout.splitlines()]) == 5
    assert "model_call_id" not in seen.terminal


def test_export_into_head_lost_every_row_at_a_terminal(example_store: Path) -> None:
    seen = at_a_terminal(f"otel-gym export model-calls --dir {example_store} | head -1")
    assert seen.returncode == 0
    assert json.loads(seen.terminal)["rollout_id"] == "1-0"


def test_export_to_the_terminal_itself_has_no_bar_between_its_rows(example_store: Path) -> None:
    seen = at_a_terminal(f"otel-gym export model-calls --dir {example_store}")
    assert seen.returncode == 0
    assert len([json.loads(line) for line in seen.terminal.splitlines()]) == 5


def test_json_of_ls_into_a_file_at_a_terminal_is_whole(example_store: Path, tmp_path: Path) -> None:
    seen = at_a_terminal(f"otel-gym ls --json --dir {example_store}", stdout=tmp_path / "ls.jsonl")
    assert len([json.loads(line) for line in seen.stdout.splitlines()]) == 5


@pytest.mark.parametrize("command", ["ls --run run-1", "ls", "stats"])
def test_tables_did_not_fit_80_columns(example_store: Path, command: str) -> None:
    seen = at_a_terminal(f"otel-gym {command} --dir {example_store}", columns=80)
    assert seen.returncode == 0
    table = [line for line in _plain(seen.terminal).splitlines() if not line.startswith(("rollouts:", "whole store:"))]
    assert max(map(len, table)) <= 80
    assert "2-0-a1" in _plain(seen.terminal) or command == "stats"


def test_a_wide_terminal_has_every_column_and_a_narrow_one_leaves_out_two(example_store: Path) -> None:
    narrow, wide = (
        _plain(at_a_terminal(f"otel-gym ls --run run-1 --dir {example_store}", columns).terminal)
        for columns in (80, 140)
    )
    for column in ("cached", "started"):
        assert column in wide
        assert column not in narrow
    assert "reward" in narrow


def _plain(text: str) -> str:
    """Without colours, and without the bar's lines, which it takes back."""
    lines = [line for line in text.split("\n") if "\x1b[2K" not in line]
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", "\n".join(lines))
