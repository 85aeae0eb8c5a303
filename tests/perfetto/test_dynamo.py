"""Dynamo's trace files as a trace, without a store: what its own converter shows, of whatever files there are."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.views.perfetto.dynamo.lanes import OnlineLanes

T0 = 1777312800000
CONTEXT = {"session_type_id": "research", "session_id": "run-1", "trajectory_id": "run-1:planner"}
CHILD = {**CONTEXT, "trajectory_id": "run-1:searcher", "parent_trajectory_id": "run-1:planner"}


def request(request_id: str, at: int, total: float | None, context: Any = CONTEXT, **more: Any) -> dict[str, Any]:
    said = {"request_id": request_id, "model": "m", "request_received_ms": T0 + at, "total_time_ms": total, **more}
    return record("request_end", at + round(total or 0), context, request=said)


def tool(kind: str, at: int, call_id: str, context: Any = CONTEXT, **more: Any) -> dict[str, Any]:
    return record(kind, at, context, tool={"tool_call_id": call_id, "tool_class": "shell", **more})


def record(event_type: str, at: int, context: Any, **what: Any) -> dict[str, Any]:
    said = {"schema": "dynamo.agent.trace.v1", "event_type": event_type, "event_time_unix_ms": T0 + at}
    return {**said, "agent_context": context, **what}


def file_of(path: Path, *records: dict[str, Any], tail: bytes = b"") -> Path:
    lines = [json.dumps({"timestamp": 0, "event": each}).encode() + b"\n" for each in records]
    content = b"".join(lines) + tail
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


class Exported:
    def __init__(self, path: Path, *paths: Path, flags: tuple[str, ...] = (), code: int = 0) -> None:
        self.path = path / "out.json"
        command = ["export", "perfetto", "-o", str(self.path), *flags]
        result = CliRunner().invoke(app, [*command, *(part for one in paths for part in ("--dynamo", str(one)))])
        assert result.exit_code == code, result.output
        self.said = result.output
        self.events: list[dict[str, Any]] = json.loads(self.path.read_bytes())
        first = min((event["ts"] for event in self.events if event["ph"] in "Xi"), default=0)
        self.shown = sorted(
            (event["name"], round(event["ts"] - first, 3), event.get("dur", 0))
            for event in self.events
            if event["ph"] in "Xi" and event["cat"] != "agent"
        )

    def args(self, name: str) -> dict[str, Any]:
        return next(event["args"] for event in self.events if event["name"] == name)


STAGES = {"prefill_wait_time_ms": 2.5, "prefill_time_ms": 20.25, "ttft_ms": 22.75}


def test_a_request_is_shown_with_its_stages_and_its_first_token(tmp_path: Path) -> None:
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", request("p", 0, 100.4, **STAGES)))
    assert trace.shown == [
        ("chat m", 0, 100400),
        ("decode", 22750, 77650),
        ("first token", 22750, 0),
        ("prefill", 2500, 20250),
        ("prefill wait", 0.001, 2499.999),
    ]


def test_stages_end_at_the_end_of_a_request_that_was_cancelled_and_its_first_token_is_not_in_the_next(
    tmp_path: Path,
) -> None:
    requests = request("a", 0, 12.0, **STAGES), request("b", 20, 30.0)
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *requests))
    assert ("prefill", 2500, 9500) in trace.shown
    assert ("first token", 22750, 0) in trace.shown
    places = {event["name"]: event["tid"] for event in trace.events if event["ph"] in "Xi"}
    assert places["first token"] != places["chat m"]
    assert "decode" not in places


def test_flags_leave_out_or_part_stages_and_markers(tmp_path: Path) -> None:
    path = file_of(tmp_path / "t.jsonl", request("p", 0, 100.4, **STAGES))
    assert [name for name, *_ in Exported(tmp_path, path, flags=("--no-stages",)).shown] == ["chat m"]
    assert "first token" not in {name for name, *_ in Exported(tmp_path, path, flags=("--no-markers",)).shown}
    apart = Exported(tmp_path, path, flags=("--separate-stage-tracks",))
    tids = {event["name"]: event["tid"] for event in apart.events if event["ph"] in "Xi"}
    assert tids["prefill"] == tids["decode"] == tids["first token"] != tids["chat m"]


def test_tools_are_paired_whatever_the_order_of_their_records(tmp_path: Path) -> None:
    records = [tool("tool_start", 100, "t"), tool("tool_end", 160, "t"), tool("tool_start", 300, "open")]
    for each in (records, records[::-1]):
        trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *each))
        assert trace.shown == [("execute_tool shell", 0, 60000), ("tool start: shell", 200000, 0)]


def test_the_start_of_a_tool_whose_end_told_all_and_came_first_is_no_open_tool(tmp_path: Path) -> None:
    """R: Dynamo's own files hold them out of order."""
    times = {"started_at_unix_ms": T0 + 150, "ended_at_unix_ms": T0 + 350}
    records = tool("tool_end", 350, "t", **times), tool("tool_start", 150, "t")
    assert Exported(tmp_path, file_of(tmp_path / "t.jsonl", *records)).shown == [("execute_tool shell", 0, 200000)]


def test_a_tool_without_times_is_an_instant_of_unknown_time(tmp_path: Path) -> None:
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", tool("tool_end", 5, "t", status="failed")))
    assert [name for name, *_ in trace.shown] == ["execute_tool shell"]
    assert trace.args("execute_tool shell")["time_known"] is False
    assert trace.args("execute_tool shell")["error.type"] == "_OTHER"


def test_what_overlaps_has_lanes_and_what_is_told_twice_is_shown_once(tmp_path: Path) -> None:
    twice = request("a", 0, 100.0)
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", twice, request("b", 50, 100.0), twice), code=1)
    calls = [event for event in trace.events if event["name"] == "chat m"]
    assert len(calls) == len({event["tid"] for event in calls}) == 2


def test_records_before_the_first_one_are_shown_too(tmp_path: Path) -> None:
    """Perfetto drops what lies before the beginning of a trace."""
    day = 24 * 3600 * 1000
    paths = file_of(tmp_path / "a.jsonl", request("b", day, 10.0)), file_of(tmp_path / "b.jsonl", request("a", 0, 10.0))
    trace = Exported(tmp_path, *paths)
    assert trace.shown == [("chat m", 0, 10000), ("chat m", day * 1000, 10000)]
    assert min(event["ts"] for event in trace.events if "ts" in event) >= 0


def test_damage_is_told_once_and_every_good_record_is_shown(tmp_path: Path) -> None:
    day = 24 * 3600 * 1000  # so that the files are read twice
    tail = b'{"event":{"schema":"dynamo.agent.trace.v9"}}\n{"event":NaN}\n{"ev'
    path = file_of(tmp_path / "t.jsonl", request("b", day, 10.0), request("a", 0, 10.0), tail=tail)
    trace = Exported(tmp_path, path, code=1)
    assert len(trace.shown) == 2
    assert [f"{path}:{line}" in trace.said for line in (3, 4, 5)] == [True] * 3
    assert trace.said.count(f"{path}:3") == 1


def test_worker_ids_keep_all_their_digits_and_names_their_characters(tmp_path: Path) -> None:
    worker = {"prefill_worker_id": 18446744073709551615}
    said = request("a", 0, 10.0, model='é "q" \\ \n', worker=worker)
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", said))
    [call] = [event for event in trace.events if event.get("cat") == "model calls"]
    assert call["args"]["gym.dynamo.prefill_worker_id"] == "18446744073709551615"
    assert 'é "q" \\ \n' in call["name"]


def test_arrows_lead_to_tools_on_to_the_next_call_and_to_subagents(tmp_path: Path) -> None:
    asked = {"finish_reason_metadata": {"tool_calls": [{"id": "t", "name": "shell"}]}}
    times = {"started_at_unix_ms": T0 + 110, "ended_at_unix_ms": T0 + 190}
    records = [request("a", 0, 100.0, **asked), tool("tool_end", 190, "t", **times), request("b", 200, 50.0)]
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *records, request("c", 210, 20.0, CHILD)))
    named = {(event["tid"], event["ts"]): event["name"] for event in trace.events if event["ph"] == "X"}
    flows = [(event["ph"], named[event["tid"], event["ts"]]) for event in trace.events if event["ph"] in "sf"]
    assert flows == [
        ("s", "chat m"),
        ("f", "execute_tool shell"),
        ("s", "execute_tool shell"),
        ("f", "chat m"),
        ("s", "invoke_agent run-1:planner"),
        ("f", "invoke_agent run-1:searcher"),
    ]


def test_traces_of_newer_dynamo_stand_below_their_root_session(tmp_path: Path) -> None:
    newer = {"schema": "dynamo.request.trace.v1"}
    root, child = {"session_id": "s"}, {"session_id": "s:sub", "parent_session_id": "s"}
    records = [request("a", 0, 10.0, root), request("b", 20, 10.0, child), request("c", 40, 10.0, None)]
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl.gz", *({**each, **newer} for each in records)))
    names = [event["args"]["name"] for event in trace.events if event["name"] == "process_name"]
    assert names == ["rollout s", "rollout dynamo-requests"]


def test_the_engine_shows_every_slice(tmp_path: Path, engine: Any) -> None:
    shuffled = random.Random(8)
    records = [
        request(f"r{i}-{j}", i * 40 + shuffled.randrange(60), shuffled.uniform(0, 90), context, **STAGES)
        for i in range(50)
        for j, context in enumerate((CONTEXT, CHILD, None))
    ]
    records += [
        tool("tool_end", i * 40, f"t{i}", started_at_unix_ms=T0 + i * 40 - shuffled.randrange(100), duration_ms=50.5)
        for i in range(1, 50)
    ]
    shuffled.shuffle(records)
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *records))
    engine.load(trace.path.read_bytes())
    assert engine.problems() == []
    [row] = engine.query("select count(*) as number from slice")
    assert row["number"] == sum(event["ph"] in "Xi" for event in trace.events)
    [row] = engine.query("select count(*) as number from flow")
    assert row["number"] == sum(event["ph"] == "f" for event in trace.events)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=60))
def test_nothing_overlaps_on_a_lane(intervals: list[tuple[int, int]]) -> None:
    lanes = OnlineLanes()
    taken: dict[int, list[tuple[int, int]]] = {}
    for start, took in intervals:
        end = start + took
        lane = taken.setdefault(lanes.lane_of(start, end), [])
        assert all(end <= begin or start >= close for begin, close in lane)
        lane.append((start, max(end, start + 1)))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=60))
def test_what_comes_in_the_order_of_ends_has_no_more_lanes_than_there_are_at_once(
    intervals: list[tuple[int, int]],
) -> None:
    spans = sorted(((start, start + took) for start, took in intervals), key=lambda span: span[1])
    lanes = OnlineLanes()
    number = len({lanes.lane_of(*span) for span in spans})
    assert number == max((sum(a <= at < b for a, b in spans) for at in range(90)), default=0)


def test_a_trace_without_a_record_can_be_loaded(tmp_path: Path, engine: Any) -> None:
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl"))
    engine.load(trace.path.read_bytes())
    assert engine.problems() == []


def test_what_lies_beside_the_traces_of_a_folder_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file_of(folder / "t.jsonl", request("a", 0, 10.0))
    (folder / "rows.jsonl").write_bytes(b'{"request_id":"a","hash_ids":[1]}\n')
    audit = {"timestamp": 0, "event": {"schema_version": 1, "request_id": "a", "request": {}, "response": {}}}
    (folder / "audit.000000.jsonl").write_text(json.dumps(audit) + "\n")
    assert len(Exported(tmp_path, folder).shown) == 1
    assert "schema None is not known" in Exported(tmp_path, folder / "rows.jsonl", code=1).said


def test_through_a_store_the_same_is_shown(tmp_path: Path) -> None:
    asked = {"finish_reason_metadata": {"finish_reason": "tool_calls", "tool_calls": [{"id": "t", "name": "shell"}]}}
    records = [
        request("a", 0, 100.4, **STAGES, **asked),
        tool("tool_start", 110, "t"),
        tool("tool_end", 190, "t", status="failed"),
        tool("tool_start", 195, "open"),
        tool("tool_end", 198, "unknown"),
        request("cancelled", 200, 12.0, CHILD, **STAGES),
        request("b", 220, 50.25, **STAGES),
        request("b", 220, 50.25, **STAGES),
        request("only received", 400, None),
    ]
    path, store, output = file_of(tmp_path / "t.jsonl", *records), str(tmp_path / "store"), tmp_path / "stored.json"
    assert CliRunner().invoke(app, ["import", "dynamo", str(path), "--dir", store]).exit_code in (0, 1)
    for flags in ((), ("--no-stages",), ("--no-markers",), ("--separate-stage-tracks",)):
        streamed = Exported(tmp_path, path, flags=flags, code=1)
        done = CliRunner().invoke(app, ["export", "perfetto", "--dir", store, "-o", str(output), *flags])
        assert done.exit_code == 0, done.output
        stored = json.loads(output.read_bytes())
        assert told(stored) == told(streamed.events)
    assert ("chat m", "model calls", 0, 100400, "tool_calls", "shell") in told(stored)


def told(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Times to the µs: an hour lies before those of the one."""
    first = min(event["ts"] for event in events if event["ph"] in "Xi")
    return sorted(
        (
            event["name"],
            event["cat"],
            round(event["ts"] - first),
            round(event.get("dur", 0)),
            event.get("args", {}).get("finish.finish_reason", ""),
            event.get("args", {}).get("finish.tool_call_names", ""),
        )
        for event in events
        if event["ph"] in "Xi"
    )


def test_sessions_behind_a_request_without_one_stood_in_its_process(tmp_path: Path) -> None:
    requests = [request(str(at), at, 5.0, context) for at, context in ((0, None), (10, {"session_id": "a"}))]
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *requests))
    processes = {event["args"]["name"] for event in trace.events if event["name"] == "process_name"}
    assert processes == {"rollout dynamo-requests", "rollout a"}


@pytest.mark.parametrize("more", [{"kv_hit_rate": 0.5}, {"worker": {"decode_worker_id": 1}}, {"x_request_id": "x"}])
def test_records_of_one_request_that_say_different_things_were_shown_once(tmp_path: Path, more: Any) -> None:
    requests = request("p", 0, 50.0), request("p", 0, 50.0, prefill_time_ms=20.0, **more)
    assert Exported(tmp_path, file_of(tmp_path / "two.jsonl", requests[0], request("p", 0, 50.0, **more)))
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *requests))
    assert [name for name, *_ in trace.shown].count("chat m") == 2
    assert "prefill" in [name for name, *_ in trace.shown]


def test_copies_are_said_as_an_import_says_them(tmp_path: Path) -> None:
    trace = Exported(tmp_path, file_of(tmp_path / "t.jsonl", *[request("p", 0, 50.0)] * 3), code=1)
    assert [name for name, *_ in trace.shown] == ["chat m"]
    assert "2 records are written twice" in trace.said
