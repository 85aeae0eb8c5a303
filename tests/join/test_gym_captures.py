"""`import gym-captures`: NeMo Gym's own files, whole, damaged and grown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.records.model_call import build_model_call_record
from otel_gym.store.reader import open_store
from otel_gym.store.span import StoredSpan
from otel_gym.views.model_calls import model_call_records

from .conftest import Invoke, capture_line, write_lines

FIXTURES = Path(__file__).parent.parent / "fixtures" / "gym_captures"
DAMAGED = FIXTURES / "0-0.capture.jsonl"
SSE = (
    'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"你好"}}]}\n\n'
    'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)


def records(store: Path, rollout_id: str = "0-0") -> list[dict[str, Any]]:
    return [
        record.model_dump()
        for rollout in open_store(store).rollouts(rollout_id)
        for record in model_call_records(rollout)
    ]


def calls(store: Path, rollout_id: str = "0-0") -> list[StoredSpan]:
    spans = [span for rollout in open_store(store).rollouts(rollout_id) for span in rollout.spans]
    return [span for span in spans if span.name != "model_call_capture"]


def test_each_record_is_that_of_nemo_gym(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("import", "gym-captures", DAMAGED, "--dir", tmp_path / "s")
    assert result.exit_code == 1
    wanted = [json.loads(line) for line in (FIXTURES / "records.jsonl").read_text().splitlines()]
    found = {record["call_index"]: record for record in records(tmp_path / "s")}
    for case in wanted:
        record = found.pop(case["call_index"], None)
        if "record" in case:
            assert record is not None, case["name"]
            assert {name: record[name] for name in case["record"]} == case["record"], case["name"]
        else:
            assert record is None, case["name"]
    assert not found


def test_each_line_that_gives_no_record_is_said_with_its_number(tmp_path: Path, invoke: Invoke) -> None:
    said = invoke("import", "gym-captures", DAMAGED, "--dir", tmp_path / "s").stderr
    wanted = json.loads((FIXTURES / "summary.json").read_text())
    lines = [line for line in said.splitlines() if "0-0.capture.jsonl, line " in line]
    assert len(lines) == wanted["damaged_plus_unbuildable"]
    assert "line 37: no JSON: it is left out" in said
    assert "line 42: the last line is cut: import again once it is whole" in said


def test_importing_twice_adds_nothing(tmp_path: Path, invoke: Invoke) -> None:
    invoke("import", "gym-captures", DAMAGED, "--dir", tmp_path / "s")
    before = records(tmp_path / "s")
    again = invoke("import", "gym-captures", DAMAGED, "--dir", tmp_path / "s")
    assert again.stdout == "0-0: nothing new\n"
    assert records(tmp_path / "s") == before


def test_a_file_that_has_grown_adds_what_is_new(tmp_path: Path, invoke: Invoke) -> None:
    file = write_lines(tmp_path / "c" / "0-0.capture.jsonl", capture_line("a"))
    invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    write_lines(file, capture_line("a"), capture_line("b", 1_790_000_000.1))
    result = invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    assert result.stdout == "0-0: 1 new span, 1 changed\n"
    assert [record["model_call_id"] for record in records(tmp_path / "s")] == ["a", "b"]


def test_numbers_of_the_bodies_stay_as_they_are_written(tmp_path: Path, invoke: Invoke) -> None:
    line = json.dumps(capture_line("a", request={"seed": 1})).replace(
        '{"seed": 1}', '{"seed":123456789012345678901234567890,"top_p":1e-07}'
    )
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", line)
    assert invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s").exit_code == 0
    [call] = calls(tmp_path / "s")
    assert call.attributes["gym.request.body"] == '{"seed":123456789012345678901234567890,"top_p":1e-07}'


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"response": {"choices": []}, "response_raw": SSE},
        {"response": None, "response_raw": SSE[:90], "error_category": "stream_truncated"},
        {"response": None, "response_raw": "<html>", "status_code": 502, "error_category": "upstream_error"},
        {"request": None, "request_raw": "[1]", "response": None, "status_code": 422},
        {"request": {"a": 1}, "request_raw": '{"b":2}', "response": None, "response_raw": '{"c":3}'},
        {"response_raw": ""},
        {"started_at": None, "completed_at": None, "latency_ms": None},
        {"started_at": 1e300, "latency_ms": -5.0},
        {"client_session_id": "s-1", "foo": [1], "failure_report": {"failure_id": "f"}},
        {
            "upstream_attempted": True,
            "response_source": "local",
            "upstream_status_code": 400,
            "local_response_reason": "context_length_exceeded",
            "error_category": "context_length_exceeded",
        },
        {"dialect": "messages", "response": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "x"}]}},
        {"response": {"id": "\ud800", "model": "m"}},
    ],
)
def test_a_record_survives_the_store(said: dict[str, Any], tmp_path: Path, invoke: Invoke) -> None:
    line = capture_line("a") | said
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", line)
    assert invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s").exit_code == 0
    assert records(tmp_path / "s") == [build_model_call_record(line, 0).model_dump()]
    assert invoke("compact", "--dir", tmp_path / "s").exit_code in (0, 1)


def test_the_span_is_that_of_a_captured_call(tmp_path: Path, invoke: Invoke) -> None:
    line = capture_line("a", response={"id": "c"}, response_raw=SSE, client_session_id="s-1")
    write_lines(tmp_path / "c" / "2-1-a1.capture.jsonl", line)
    invoke("import", "gym-captures", tmp_path / "c", "--run", "eval", "--dir", tmp_path / "s")
    [call] = calls(tmp_path / "s", "2-1-a1")
    said = call.attributes
    assert (call.name, call.run_id, said["gym.rollout.id"]) == ("chat m", "eval", "2-1-a1")
    assert (call.start_ns, call.end_ns) == (1_790_000_000_250_000_000, 1_790_000_000_749_870_000)
    assert said["gym.response.body"] == SSE
    assert said["gen_ai.usage.input_tokens"] == 3
    assert said["gen_ai.response.finish_reasons"] == ["stop"]
    assert said["gym.request.header.x-session-id"] == ["s-1"]
    assert (said["gym.model_ref.name"], said["http.response.status_code"]) == ("policy_model", 200)


def test_content_that_is_not_to_be_kept_is_not(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_CONTENT", "none")
    line = capture_line("a", response={"id": "c", "x": "SAID"}, response_raw=SSE, request={"y": "ASKED"}, z="BESIDE")
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", line)
    invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    written = "".join(path.read_text() for path in (tmp_path / "s").rglob("*.jsonl"))
    assert not [word for word in ("SAID", "ASKED", "BESIDE", "你好") if word in written]
    [record] = records(tmp_path / "s")
    assert (record["tokens_in"], record["status_code"], record["response"]) == (3, 200, None)


def test_secrets_of_a_capture_do_not_land_in_the_store(tmp_path: Path, invoke: Invoke) -> None:
    key = "sk-ant-api03-" + "a1B2c3D4e5" * 9
    line = capture_line("a", response={"id": "c", "t": key}, response_raw=SSE, request={"k": key}, odd=key)
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", line)
    invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    assert key not in "".join(path.read_text() for path in (tmp_path / "s").rglob("*.jsonl"))


def test_launches_with_runs_of_their_own_stand_side_by_side(tmp_path: Path, invoke: Invoke) -> None:
    for run in ("A", "B"):
        write_lines(tmp_path / run / "0-0.capture.jsonl", capture_line(f"call-{run}"))
        assert invoke("import", "gym-captures", tmp_path / run, "--run", run, "--dir", tmp_path / "s").exit_code == 0
    found = {
        rollout.run_id: [record.model_call_id for record in model_call_records(rollout)]
        for rollout in open_store(tmp_path / "s").rollouts("0-0")
    }
    assert found == {"A": ["call-A"], "B": ["call-B"]}


def test_two_launches_under_one_run_are_not_added_up(tmp_path: Path, invoke: Invoke) -> None:
    for folder in ("A", "B"):
        write_lines(tmp_path / folder / "0-0.capture.jsonl", capture_line(f"call-{folder}"))
    result = invoke("import", "gym-captures", tmp_path / "A", tmp_path / "B", "--dir", tmp_path / "s")
    assert result.exit_code == 1
    assert (
        "has rollout 0-0 of another launch: left out; import the files of each launch with a --run ID" in result.stderr
    )
    assert [record["model_call_id"] for record in records(tmp_path / "s")] == ["call-A"]


def test_a_folder_without_captures_says_where_they_are(tmp_path: Path, invoke: Invoke) -> None:
    write_lines(tmp_path / "results" / "caps" / "0-0.capture.jsonl", capture_line("a"))
    result = invoke("import", "gym-captures", tmp_path / "results", "--dir", tmp_path / "s")
    assert result.exit_code == 2
    assert f"there are some in {tmp_path / 'results' / 'caps'}" in result.stderr


def test_another_file_is_told_what_it_should_be_called(tmp_path: Path, invoke: Invoke) -> None:
    file = write_lines(tmp_path / "exchanges.jsonl", capture_line("a"))
    result = invoke("import", "gym-captures", file, "--dir", tmp_path / "s")
    assert result.exit_code == 2
    assert "call it ID.capture.jsonl" in result.stderr


def test_a_file_that_cannot_be_read_costs_itself_only(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = write_lines(tmp_path / "c" / "0-0.capture.jsonl", capture_line("a"))
    write_lines(tmp_path / "c" / "0-1.capture.jsonl", capture_line("b"))
    read = Path.read_bytes

    def refused(path: Path) -> bytes:  # the tests may run as root, who reads every file
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    result = invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    assert (result.exit_code, "make it readable" in result.stderr) == (1, True)
    assert len(records(tmp_path / "s", "0-1")) == 1
    rows = write_lines(tmp_path / "r.jsonl", {"_ng_rollout_id": "0-0"})
    joined = json.loads(invoke("join", rows, "--dir", tmp_path / "s").stdout)
    assert joined["ng_model_call_capture"]["gaps"] == [{"code": "model_call_capture_unreadable"}]
