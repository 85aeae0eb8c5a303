"""`join --dynamo`: each model call and tool with what Dynamo measured of it, exactly or as a named gap."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_gym
from otel_gym import AgentContext
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.records.dynamo import RequestMetrics, ToolEvent
from otel_gym.store.reader import open_store
from otel_gym.views.dynamo_join import AskedCall, DynamoTrace
from otel_gym.views.layers import without_client_layer
from otel_gym.views.model_calls import model_call_records
from otel_gym.views.trajectory import trajectories
from tests.capture.asgi import CHAT_PATH, json_app, send_request

from .conftest import Invoke, write_lines

ROOT = Path(__file__).parents[2]
A, B = AgentContext("s", "t", "s:a"), AgentContext("s", "t", "s:b")
WORKER = 7587894923333011487
MEASURED = {
    "prefill_wait_time_ms": 2.5,
    "prefill_time_ms": 20.25,
    "ttft_ms": 22.75,
    "total_time_ms": 100.4,
    "kv_hit_rate": 0.4,
    "queue_depth": 1,
    "cached_tokens": 32,
    "worker": {"decode_worker_id": WORKER, "decode_dp_rank": 0},
}


def record(kind: str, context: AgentContext | None, time: int = 1_777_312_800_100, **said: Any) -> dict[str, Any]:
    record = {"schema": "dynamo.agent.trace.v1", "event_type": kind, "event_time_unix_ms": time, **said}
    return {"timestamp": 1, "event": record | ({"agent_context": context.as_mapping()} if context else {})}


def request(request_id: str, x_request_id: str | None, context: AgentContext | None = None) -> dict[str, Any]:
    said = {"request_id": request_id, "model": "m", "request_received_ms": 1_777_312_800_000, **MEASURED}
    return record("request_end", context, request=said | ({"x_request_id": x_request_id} if x_request_id else {}))


def tool(call_id: str, context: AgentContext, status: str = "ok", duration: float = 100.0) -> dict[str, Any]:
    said = {"tool_call_id": call_id, "tool_class": "ls", "status": status, "duration_ms": duration}
    return record("tool_end", context, tool=said)


def answer(request_id: str | None, tools: tuple[str, ...]) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for each in tools]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return {"id": f"chatcmpl-{request_id or 'x'}", "model": "m", "choices": choices, "usage": usage}


def capture(
    rollout_id: str,
    request_id: str | None = None,
    x_request_id: str | None = None,
    context: AgentContext | None = None,
    tools: tuple[str, ...] = (),
    status: int = 200,
) -> None:
    headers = {} if context is None else context.headers()
    if x_request_id is not None:
        headers["x-request-id"] = x_request_id
    app = ModelCallCapture(json_app(answer(request_id, tools) if status == 200 else {"error": {}}, status))
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    asyncio.run(send_request(app, f"/ng-rollout/{rollout_id}{CHAT_PATH}", body, headers))


@pytest.fixture
def joined(live_store, tmp_path: Path, invoke: Invoke) -> Any:
    def join(trace: list[Any], *rollout_ids: str, options: tuple[Any, ...] = (), code: int = 0) -> Any:
        otel_gym.flush(10)
        rows = write_lines(tmp_path / "rows.jsonl", *({"rollout_id": each, "reward": 1.0} for each in rollout_ids))
        file = write_lines(tmp_path / "trace.jsonl", *trace)
        report = tmp_path / "report.json"
        options = options or ("--dynamo", file)
        result = invoke("join", rows, "--dir", live_store.directory, "--report", report, *options)
        assert result.exit_code == code, result.output
        found = [json.loads(line) for line in result.stdout.splitlines()]
        return [row["gym_dynamo"] for row in found], json.loads(report.read_text())["dynamo"], result.stderr

    return join


def pairs(row: Any) -> list[tuple[str | None, str | None]]:
    return [(call.get("request_id"), call.get("matched_by") or call.get("gap")) for call in row["calls"]]


def test_a_call_has_queue_prefill_first_token_cache_and_worker_of_its_request(joined):
    capture("1-0", "D-1", "llm-1", A)
    [row], report, stderr = joined([request("D-1", "llm-1", A)], "1-0")
    [call] = row["calls"]
    assert {name: call.get(name) for name in MEASURED} == {
        **MEASURED,
        "worker": {"decode_worker_id": str(WORKER), "decode_dp_rank": 0},
    }
    assert (call["session_id"], call["trajectory_id"], call["x_request_id"]) == ("s", "s:a", "llm-1")
    assert (report["requests"], report["joined_requests"], report["unmatched_requests"]) == (1, 1, [])
    assert "gaps" not in row
    assert "Dynamo: 1 of 1 request and 0 of 0 tools joined" in stderr


def test_a_request_that_several_sources_tell_of_is_one_with_what_each_says(joined):
    capture("1-0", "D-1", "llm-1", A)
    bare = record("request_end", None, request={"request_id": "D-1", "output_tokens": 7})
    [row], report, _ = joined([bare, request("D-1", "llm-1", A), request("D-1", "llm-1", A)], "1-0")
    [call] = row["calls"]
    assert (call["output_tokens"], call["ttft_ms"], call["trajectory_id"]) == (7, 22.75, "s:a")
    assert (call["matched_by"], report["requests"]) == ("x_request_id", 1)


def test_the_clients_id_counts_first_then_that_of_the_answer(joined):
    capture("1-0", "other", "llm-1")
    capture("1-0", "D-2")
    capture("1-0", "D-9", "llm-9")
    [row], report, _ = joined([request("D-1", "llm-1"), request("D-2", "llm-2"), request("D-3", None)], "1-0")
    assert pairs(row) == [("D-1", "x_request_id"), ("D-2", "request_id"), (None, "dynamo_request_missing")]
    assert row["gaps"] == [{"code": "dynamo_request_missing", "count": 1}]
    assert report["unmatched_requests"] == [{"request_id": "D-3"}]


def test_attempts_with_one_client_id_are_told_apart_by_their_answers(joined):
    capture("1-0", x_request_id="llm-1", status=503)
    capture("1-0", "D-2", "llm-1")
    [row], _, _ = joined([request("D-1", "llm-1"), request("D-2", "llm-1")], "1-0")
    assert pairs(row) == [("D-1", "x_request_id"), ("D-2", "x_request_id")]


def test_what_fits_several_requests_is_ambiguous(joined):
    capture("1-0", x_request_id="llm-1", status=503)
    [row], report, _ = joined([request("D-1", "llm-1"), request("D-2", "llm-1")], "1-0")
    assert pairs(row) == [(None, "dynamo_request_ambiguous")]
    assert len(report["unmatched_requests"]) == 2


def test_an_id_that_two_agents_use_joins_each_its_own(joined):
    capture("1-0", None, "llm-1", B)
    capture("1-0", None, "llm-1", A)
    [row], _, _ = joined([request("D-1", "llm-1", A), request("D-2", "llm-1", B)], "1-0")
    assert pairs(row) == [("D-2", "x_request_id"), ("D-1", "x_request_id")]


def test_tools_are_joined_within_their_trajectory_alone(joined):
    capture("1-0", "D-1", "llm-1", A, ("call_0",))
    trace = [request("D-1", "llm-1", A), tool("call_0", B), tool("call_0", A, "canceled", 500.0)]
    [row], report, _ = joined(trace, "1-0")
    [run] = row["tools"]
    assert (run["trajectory_id"], run["status"], run["duration_ms"]) == ("s:a", "cancelled", 500.0)
    assert report["unmatched_tools"] == [{"session_id": "s", "trajectory_id": "s:b", "tool_call_id": "call_0"}]


def test_two_request_ids_and_tool_ids_that_are_unique_in_a_trajectory_alone(monkeypatch):
    """R103"""
    monkeypatch.syspath_prepend(ROOT / "bench")
    drivers = importlib.import_module("report_drivers_join")
    folder = ROOT / "tests" / "fixtures" / "dynamo" / "R103"
    expected = json.loads((folder / "expected.json").read_text())
    [drive] = [drive for fits, drive in drivers.JOIN_DRIVERS if fits(folder)]
    assert list(drive(folder, expected, None)) == []
    for name in expected:
        assert list(drive(folder, {**expected, name: []}, None)), name


def test_ids_that_begin_anew_with_each_answer_are_joined_in_order_or_not_at_all(joined):
    for number in range(2):
        capture("1-0", f"D-{number}", None, A, ("call_0", "call_1"))
    trace = [
        tool("call_0", A, duration=1.0) | {"timestamp": 9},
        record(
            "tool_end", A, 1_777_312_800_900, tool={"tool_call_id": "call_0", "tool_class": "b", "duration_ms": 2.0}
        ),
        tool("call_1", A),
        tool("call_1", A),  # it came twice over the wire
    ]
    [row], _, _ = joined(trace, "1-0")
    found = [run.get("duration_ms") or run["gap"] for run in row["tools"]]
    assert found == [1.0, "dynamo_tool_ambiguous", 2.0, "dynamo_tool_ambiguous"]


def test_what_an_agent_of_the_row_did_besides_is_named(joined):
    capture("1-0", "D-1", None, A)
    [row], report, _ = joined([request("D-1", None, A), request("D-2", None, A), tool("c", A)], "1-0")
    assert [each["request_id"] for each in row["requests_without_call"]] == ["D-2"]
    assert [each["tool_call_id"] for each in row["tools_without_call"]] == ["c"]
    assert {gap["code"] for gap in row["gaps"]} == {"dynamo_request_without_call", "dynamo_tool_without_call"}
    assert (report["joined_requests"], report["joined_tools"]) == (1, 0)


def test_tools_that_the_agents_code_ran_are_joined_by_their_own_context(live_store, joined):
    with otel_gym.rollout(1, 0), otel_gym.agent_context(A), otel_gym.execute_tool("ls", "call_7"):
        pass
    [row], _, _ = joined([tool("call_7", A)], "1-0")
    assert [run["status"] for run in row["tools"]] == ["succeeded"]


def test_damage_of_a_trace_is_said_and_its_good_records_are_joined(joined, tmp_path: Path):
    capture("1-0", "D-1", "llm-1")
    whole = gzip.compress(json.dumps(request("D-1", "llm-1")).encode() + b"\n")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.jsonl.gz").write_bytes(whole + whole[: len(whole) // 2])
    [row], _, stderr = joined([], "1-0", options=("--dynamo", tmp_path / "t"), code=1)
    assert pairs(row) == [("D-1", "x_request_id")]
    assert "a.jsonl.gz" in stderr


def test_a_folder_is_read_as_an_import_reads_it(joined, tmp_path: Path):
    capture("1-0", "D-1", "llm-1")
    audit = {"schema_version": 1, "request_id": "D-1", "requested_streaming": False, "model": "m", "request": {}}
    (tmp_path / "t").mkdir()
    write_lines(tmp_path / "t" / "audit.jsonl", {"timestamp": 1, "event": audit})
    write_lines(tmp_path / "t" / "mixed.jsonl", {"timestamp": 1, "event": audit}, request("D-1", "llm-1"))
    write_lines(tmp_path / "t" / "others.jsonl", {"request_id": "D-1", "hash_ids": [1]})
    [row], _, stderr = joined([], "1-0", options=("--dynamo", tmp_path / "t"))
    assert pairs(row) == [("D-1", "x_request_id")]
    assert "schema" not in stderr


def test_a_trace_that_is_none_is_one_clear_error(invoke: Invoke, live_store, tmp_path: Path):
    capture("1-0", "D-1")
    otel_gym.flush(10)
    rows = write_lines(tmp_path / "rows.jsonl", {"rollout_id": "1-0"})
    for path, said in ((tmp_path / "none", "no such file"), (rows, "no request and no tool")):
        result = invoke("join", rows, "--dir", live_store.directory, "--dynamo", path)
        assert (result.exit_code, said in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("rollout", ["apart", "1-0"])
def test_an_imported_trace_is_the_other_side_too_and_no_second_call(live_store, joined, invoke, tmp_path, rollout):
    capture("1-0", "D-1", "llm-1", A, ("call_0",))
    capture("1-0", "renamed", "llm-2", A)
    capture("1-0", x_request_id="llm-3", status=503)
    capture("1-0", "D-4", "llm-3")
    ids = (("D-1", "llm-1"), ("D-2", "llm-2"), ("D-3", "llm-3"), ("D-4", "llm-3"))
    trace = [request(*each, A) for each in ids] + [tool("call_0", A)]
    file = write_lines(tmp_path / "t" / "trace.jsonl", *trace)
    otel_gym.flush(10)
    options = ["--rollout", "1-0"] if rollout == "1-0" else []
    result = invoke("import", "dynamo", file, "--dir", live_store.directory, "--run", "run-1", *options)
    assert result.exit_code == 0, result.output
    [row], report, _ = joined([], "1-0", options=("--dynamo-imported", "--run", "run-1"))
    assert [call for call, _ in pairs(row)] == ["D-1", "D-2", "D-3", "D-4"]
    assert row["calls"][0]["worker"] == {"decode_worker_id": str(WORKER), "decode_dp_rank": 0}
    assert (row["calls"][0]["ttft_ms"], row["tools"][0]["duration_ms"]) == (22.75, 100.0)
    assert (report["requests"], report["joined_requests"], report["joined_tools"]) == (4, 4, 1)
    [found] = [each for each in open_store(live_store.directory).rollouts("1-0") if not each.is_ambiguous]
    assert len(model_call_records(found)) == 4
    if rollout == "1-0":
        calls = [span for span in without_client_layer(found).spans if span.name.startswith("chat")]
        assert [span.attributes["gym.dynamo.ttft_ms"] for span in calls] == [22.75] * 4

        def generations(made: Any) -> int:
            return sum(len(each.generations) + generations(each.subagents) for each in made)

        assert generations(trajectories(found)) == 3  # the failed attempt was asked again


def test_a_row_is_told_of_damage_of_the_store_though_it_was_read_before(live_store, joined, invoke, tmp_path):
    capture("1-0", "D-1")
    otel_gym.flush(10)
    [file] = (live_store.directory / "spans" / "rollout_id=1-0").glob("*.jsonl")
    with file.open("ab") as lines:
        lines.write(b'{"resourceSpans": [\n')
    for options in ((), ("--dynamo-imported",)):
        rows = write_lines(tmp_path / "rows.jsonl", {"rollout_id": "1-0"})
        result = invoke("join", rows, "--dir", live_store.directory, *options)
        [gap] = json.loads(result.stdout)["ng_model_call_capture"]["gaps"]
        assert (result.exit_code, gap["code"]) == (1, "model_call_capture_records_unreadable")


def test_parquet_has_it_as_a_column(live_store, invoke: Invoke, tmp_path: Path):
    capture("1-0", "D-1")
    otel_gym.flush(10)
    rows = write_lines(tmp_path / "rows.jsonl", {"rollout_id": "1-0"})
    trace = write_lines(tmp_path / "trace.jsonl", request("D-1", None))
    output = tmp_path / "joined.parquet"
    for options, wanted in (((), None), (("--dynamo", trace), "D-1")):
        assert invoke("join", rows, "--dir", live_store.directory, "-o", output, *options).exit_code == 0
        [text] = pq.read_table(output)["gym_dynamo"].to_pylist()
        assert (None if text is None else json.loads(text)["calls"][0]["request_id"]) == wanted


names = st.none() | st.sampled_from(["1", "2", "3"])
agents = st.none() | st.sampled_from([A, B])


@given(
    st.lists(st.tuples(names, names, agents), max_size=5),
    st.lists(st.tuples(names, names, agents, st.lists(st.sampled_from(["c", "d"]), max_size=2)), max_size=5),
    st.lists(st.tuples(st.sampled_from(["c", "d"]), st.sampled_from([A, B]), st.integers(0, 2)), max_size=5),
)
def test_each_record_is_given_away_once_and_to_nobody_elses_call(requests: Any, calls: Any, tools: Any):
    trace = DynamoTrace()
    for request_id, x_request_id, context in requests:
        trace.add_request(RequestMetrics(request_id=request_id, x_request_id=x_request_id), context)
    for call_id, context, time in tools:
        trace.add_tool(ToolEvent(tool_call_id=call_id), context, time)
    asked = [AskedCall(str(n), x, i, context, run) for n, (i, x, context, run) in enumerate(calls)]
    joined = trace.join(asked)
    assert [call.asked for call in joined.calls] == asked
    given_away = [id(call.request) for call in joined.calls if call.request is not None]
    given_away += [id(run.tool) for run in joined.tools if run.tool is not None]
    given_away += [id(each) for each in [*joined.requests, *joined.unasked]]
    assert len(given_away) == len(set(given_away))
    for call in joined.calls:
        assert (call.request is None) == (call.gap is not None)
        if call.request is not None:
            key = {"x_request_id": call.asked.x_request_id, "request_id": call.asked.request_id}[call.matched_by or ""]
            assert key is not None and getattr(call.request.metrics, call.matched_by or "") == key
            contexts = {each.agent_id for each in (call.request.context, call.asked.context) if each is not None}
            assert len(contexts) <= 1
    for run in joined.tools:
        assert run.tool is None or (run.context is not None and run.tool.context.agent_id == run.context.agent_id)


def test_a_trace_imported_into_a_rollout_took_the_place_of_what_was_captured(live_store, invoke, tmp_path):
    with otel_gym.rollout(1, 0):
        capture("1-0", "D-1", "llm-1", A)
    otel_gym.record_reward(0.75, rollout="1-0")
    otel_gym.flush(10)
    file = write_lines(tmp_path / "t" / "trace.jsonl", request("D-1", "llm-1", A))
    result = invoke("import", "dynamo", file, "--dir", live_store.directory, "--run", "run-1", "--rollout", "1-0")
    assert result.exit_code == 0, result.output
    [found] = [each for each in open_store(live_store.directory).rollouts("1-0") if not each.is_ambiguous]
    assert len(found.executions().all) == 1
    assert len(model_call_records(found)) == 1
