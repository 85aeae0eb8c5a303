"""A store of another's making in the terminal: it can say anything, and commands nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.test_terminal import at_a_terminal
from tests.store.lines import encoded, live_file, write

HOSTILE = "\x1b[31mRED\x1b]0;title\x07\nx\x9b2J\u202e[/red][bold]"
COMMANDS = ("ls", "stats", "tail --once", "show unassigned", "show 1-0", "show 9-9", "stats --run no", "show x/1-0")


@pytest.fixture
def hostile_store(tmp_path: Path) -> Path:
    odd = {"run": HOSTILE, "error__type": HOSTILE, "gym__error_category": HOSTILE, "gym__model_call__id": "m"}
    call = encoded("1", HOSTILE, gen_ai__operation__name="chat", gen_ai__request__model=HOSTILE, **odd)
    tool = encoded("2", HOSTILE, gen_ai__operation__name="execute_tool", gen_ai__tool__call__arguments=HOSTILE, **odd)
    wrong = encoded("3", name=5, **{HOSTILE: 1})  # type: ignore[arg-type]
    again = encoded("4", run="b", trace="b")
    write(live_file(tmp_path), call, tool, wrong, again, b'{"resourceSpans":5}')
    return tmp_path


def _flat_file(store: Path) -> Path:
    file = store / "flat.jsonl"
    write(file, encoded("1", rollout=HOSTILE, run=HOSTILE), encoded("2", rollout="2-0"))
    return file


def _is_clean(text: str) -> bool:
    """Nothing but lines of printable characters."""
    return all(line.isprintable() for line in text.replace("\r\n", "\n").split("\n"))


@pytest.mark.parametrize("command", [*COMMANDS, "doctor", "export model-calls --all -o calls.jsonl"])
def test_control_characters_of_a_foreign_file_reached_the_terminal(
    hostile_store: Path, invoke: Invoke, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile_store)
    result = invoke(*command.split(), "--dir", hostile_store)
    assert _is_clean(result.output), result.output
    if command in ("ls", "tail --once"):
        assert r"\x1b[31mRED\x1b]0;title\x07\nx\x9b2J\u202e[/red][bold]" in result.stdout


def test_a_rollouts_name_was_a_command_to_the_terminal(hostile_store: Path, invoke: Invoke) -> None:
    for command in ("ls", "show 1-0", "show 2-0", "stats"):
        assert _is_clean(invoke(*command.split(), "--dir", _flat_file(hostile_store)).output), command
    said = [json.loads(line) for line in invoke("ls", "--json", "--dir", _flat_file(hostile_store)).stdout.splitlines()]
    assert HOSTILE in {row["rollout_id"] for row in said}


@pytest.mark.parametrize("command", ["ls", "stats", "show 1-0", "show 1-0 --run b", "show unassigned", "doctor"])
def test_at_a_terminal_only_our_own_styles_are_seen(hostile_store: Path, command: str) -> None:
    for store in (hostile_store, _flat_file(hostile_store)):
        seen = at_a_terminal(f"otel-gym {command} --dir {store}", columns=200)
        assert seen.terminal and "Traceback" not in seen.terminal
        assert not re.search("\x1b\\[31mRED|\x1b\\]|\x07|\x9b|\u202e", seen.terminal), seen.terminal
        assert command != "ls" or r"\x1b[31mRED" in seen.terminal
