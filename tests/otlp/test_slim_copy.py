"""What is made of a store that has only the copy of spans that went over OTLP: what was said is not in it, or cut."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from tests.otlp.conftest import RunningReceiver

_CLI = [sys.executable, "-m", "otel_gym.cli"]
_NOT_SENT = {"tool_calls", "reasoning_content", "request", "response", "response_raw", "response_status"}
FORMS = {"slim": (), "cut": ("--content", "--attribute-bytes", "300")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The demo's store, and what `send` made of it in a receiver, by form."""
    directory = tmp_path_factory.mktemp("stores")
    whole = directory / "whole"
    _run("demo", "--rollouts", "2", "--dir", str(whole))
    found = {"whole": whole}
    for form, options in FORMS.items():
        receiver = RunningReceiver(directory / form)
        _run("send", "--endpoint", receiver.http, "--protocol", "http/protobuf", "--dir", str(whole), *options)
        assert receiver.stop()[0] == 0
        found[form] = directory / form
    return found


def _run(*arguments: str) -> None:
    subprocess.run([*_CLI, *arguments], check=True, capture_output=True, timeout=120)


def exported(what: str, directory: Path) -> list[Any]:
    result = CliRunner().invoke(app, ["export", what, "--dir", str(directory)])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_slim_copys_calls_asked_for_no_tools_though_they_ended_with_tool_calls(stores: dict[str, Path]) -> None:
    slim, whole = exported("model-calls", stores["slim"]), exported("model-calls", stores["whole"])
    assert [(call["finish_reason"], call["tool_calls"]) for call in slim][:2] == [("tool_calls", None), ("stop", None)]
    for one, other in zip(slim, whole, strict=True):
        assert {name for name, value in one.items() if value != other[name]} <= _NOT_SENT
        assert {one[name] for name in _NOT_SENT} == {None}


def test_calls_whose_bodies_were_cut_lost_model_and_tokens_and_were_called_cancelled(stores: dict[str, Path]) -> None:
    cut, whole = exported("model-calls", stores["cut"]), exported("model-calls", stores["whole"])
    for one, other in zip(cut, whole, strict=True):
        assert {name for name, value in one.items() if value != other[name]} <= {*_NOT_SENT, "request_raw"}
        assert one["tool_calls"] is one["response"] is None
        assert other["model"] == one["model"] and one["tokens_in"] is not None


@pytest.mark.parametrize("form", FORMS)
def test_the_trajectory_of_a_slim_copy_was_empty_and_complete(stores: dict[str, Path], form: str) -> None:
    rows = exported("trajectory", stores[form])
    assert [(row["complete"], [gap["code"] for gap in row["gaps"]]) for row in rows] == [
        (False, ["content_not_recorded"])
    ] * 2
    assert rows[0]["gaps"][0]["detail"] == "2 of 2 answers, 2 requests"
    assert all(row["complete"] and not row["gaps"] for row in exported("trajectory", stores["whole"]))


def test_the_atif_of_a_slim_copy_said_that_the_agent_said_nothing(stores: dict[str, Path], tmp_path: Path) -> None:
    _run("export", "atif", "--dir", str(stores["slim"]), "-o", str(tmp_path / "atif"))
    for path in sorted((tmp_path / "atif").rglob("trajectory.json")):
        document = json.loads(path.read_bytes())
        assert document["extra"]["complete"] is False
        assert [gap["code"] for gap in document["extra"]["gaps"]] == ["content_not_recorded"]
        assert all(step["extra"]["content_not_recorded"] for step in document["steps"] if step["source"] == "agent")
