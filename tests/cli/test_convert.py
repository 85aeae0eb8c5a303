"""`convert`: sessions to ATIF without a store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from atif import Trajectory

from .conftest import Invoke

FIXTURES = Path(__file__).parent.parent / "fixtures"
SESSION = FIXTURES / "claude_code" / "parallel_tools.jsonl"


@pytest.mark.parametrize(
    ("source", "path"), [("claude-code", SESSION), ("codex", FIXTURES / "codex" / "parallel_tools")]
)
def test_a_session_becomes_the_same_document_as_by_import_and_export(
    source: str, path: Path, tmp_path: Path, invoke: Invoke
) -> None:
    result = invoke("convert", source, path, "-o", tmp_path / "out")
    assert (result.exit_code, result.stderr) == (0, f"otel-gym: 1 session written below {tmp_path / 'out'}\n")
    [file] = (tmp_path / "out").glob("*/trajectory.json")
    document = json.loads(file.read_bytes())
    Trajectory.model_validate(document)

    assert invoke("import", source, path, "--dir", tmp_path / "store").exit_code == 0
    assert document == json.loads(invoke("export", "atif", "--dir", tmp_path / "store").stdout)


def test_a_damaged_session_is_written_and_its_damage_said(tmp_path: Path, invoke: Invoke) -> None:
    session = tmp_path / "S1.jsonl"
    session.write_bytes(SESSION.read_bytes() + b'no JSON\n{"type":"new","sessionId":"S1"}\n')

    result = invoke("convert", "claude-code", session, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "S1.jsonl:" in result.stderr
    assert "no JSON object" in result.stderr
    assert list((tmp_path / "out").glob("*/trajectory.json"))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing.jsonl", "no such file or folder"),
        ("empty", "nothing here that can be converted"),
        ("fifo", "neither a file nor a folder"),
    ],
)
def test_what_cannot_be_converted_is_named(path: str, said: str, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")

    result = invoke("convert", "claude-code", tmp_path / path, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert f"{tmp_path / path}: {said}" in result.stderr


def test_without_content_no_text_reaches_the_document(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_CONTENT", "none")
    assert invoke("convert", "claude-code", SESSION, "-o", tmp_path / "out").exit_code == 0
    [file] = (tmp_path / "out").glob("*/trajectory.json")
    steps = json.loads(file.read_bytes())["steps"]
    assert steps
    assert all(not step["message"] for step in steps)
    assert all("content" not in result for step in steps for result in step.get("observation", {}).get("results", ()))


def test_a_wrong_setting_is_said(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_REDCAT", "x")
    result = invoke("convert", "claude-code", SESSION, "-o", tmp_path / "out")
    assert "OTEL_GYM_REDCAT" in result.stderr


def test_a_file_of_another_harness_is_named_with_its_command(tmp_path: Path, invoke: Invoke) -> None:
    [session, *_] = sorted((FIXTURES / "codex" / "parallel_tools").rglob("*.jsonl"))
    result = invoke("convert", "claude-code", session, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert f"this is a session of Codex: otel-gym convert codex {session}" in result.stderr


def test_an_output_folder_above_the_working_one_is_taken(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert invoke("convert", "claude-code", SESSION, "-o", "../out").exit_code == 0
    assert list((tmp_path / "out").glob("*/trajectory.json"))
    assert invoke("import", "claude-code", SESSION, "--dir", "../store").exit_code == 0
    assert invoke("export", "atif", "--dir", "../store", "-o", "../exported").exit_code == 0


def test_one_session_in_two_files_is_not_overwritten(tmp_path: Path, invoke: Invoke) -> None:
    session, stream = SESSION, SESSION.with_name("parallel_tools.stream.jsonl")
    alone = tmp_path / "alone"
    assert invoke("convert", "claude-code", session, "-o", alone).exit_code == 0

    result = invoke("convert", "claude-code", session, stream, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert f"{stream}: its session" in result.stderr
    [file], [expected] = (tmp_path / "out").glob("*/*.json"), alone.glob("*/*.json")
    assert file.read_bytes() == expected.read_bytes()


def test_a_session_of_a_subagent_alone_is_converted(tmp_path: Path, invoke: Invoke) -> None:
    [agent, *_] = sorted((FIXTURES / "claude_code" / "subagent_background").rglob("agent-*.jsonl"))
    alone = tmp_path / agent.name
    alone.write_bytes(agent.read_bytes())
    assert invoke("convert", "claude-code", alone, "-o", tmp_path / "out").exit_code == 0
    [file] = (tmp_path / "out").glob("*/trajectory.json")
    assert any(step["source"] == "agent" for step in json.loads(file.read_bytes())["steps"])


def test_rules_of_ones_own_hold_for_names_as_well(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_REDACT", "/toy-[a-z0-9-]+/,/claude-[a-z0-9-]+/")
    assert invoke("convert", "claude-code", SESSION, "-o", tmp_path / "out").exit_code == 0
    [file] = (tmp_path / "out").glob("*/trajectory.json")
    steps = json.loads(file.read_bytes())["steps"]
    assert {step["model_name"] for step in steps if "model_name" in step} == {"[redacted]"}
