"""`convert`: sessions to ATIF without a store."""

from __future__ import annotations

import json
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
        ("codex.jsonl", "nothing here that can be converted"),
    ],
)
def test_what_cannot_be_converted_is_named(path: str, said: str, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "codex.jsonl").write_text('{"type":"session_meta","payload":{"id":"x"}}\n')

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
