"""``otel-gym import dynamo``: what a store holds of Dynamo's traces, however they lie in files and what is broken."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from otel_gym.cli.main import app
from otel_gym.ingest.dynamo import read_dynamo_together
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import open_store
from otel_gym.store.span import StoredSpan

FIXTURES = Path(__file__).parents[1] / "fixtures" / "dynamo"
TIME = 1_777_312_800_000


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", "dynamo", *map(str, arguments)])


def spans_of(store: Path) -> dict[str, list[StoredSpan]]:
    reader = open_store(store)
    return {name: reader.spans(name) for name in sorted(path.name[11:] for path in (store / "spans").iterdir())}


def imported(tmp_path: Path, *records: dict[str, Any] | str, name: str = "trace.jsonl") -> list[StoredSpan]:
    """The spans of all rollouts, those of one after the other."""
    (tmp_path / name).write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records))
    return [span for rollout in read_dynamo_together([tmp_path / name]) for span in stored_spans(rollout)]


def record(event_type: str, at: int = 100, context: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    context = {"session_type_id": "t", "session_id": "s", "trajectory_id": "s:a"} if context is None else context
    schema = "dynamo.agent.trace.v1" if "trajectory_id" in context else "dynamo.request.trace.v1"
    one = {"schema": schema, "event_type": event_type, "event_time_unix_ms": TIME + at, "agent_context": context}
    return one | said


def request(request_id: str = "r", at: int = 100, context: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    metrics = {"request_id": request_id, "model": "m", "request_received_ms": TIME + at - 50, "total_time_ms": 50.0}
    return record("request_end", at, context, request=metrics | said)


def tool(
    event_type: str, at: int, call_id: str = "c", context: dict[str, Any] | None = None, **said: Any
) -> dict[str, Any]:
    return record(event_type, at, context, tool={"tool_call_id": call_id, "tool_class": "ls"} | said)


def named(spans: list[StoredSpan], start: str) -> list[StoredSpan]:
    return [span for span in spans if span.name.startswith(start)]


def test_a_request_is_a_call_with_all_that_dynamo_measured(tmp_path: Path) -> None:
    [line] = [one for one in (FIXTURES / "basic_all_types.jsonl").read_text().splitlines() if '"p1"' in one][:1]
    root, agent, call = imported(tmp_path, line)
    assert (root.name, agent.name, call.name) == ("rollout", "invoke_agent run-1:planner", "chat my-model")
    assert (call.parent_span_id, agent.parent_span_id) == (agent.span_id, root.span_id)
    assert (call.start_ns, call.end_ns) == (TIME * 10**6, TIME * 10**6 + 100_400_000)
    said = call.attributes
    assert said["gen_ai.usage.input_tokens"] == 40
    assert said["gen_ai.usage.cache_read.input_tokens"] == 16
    assert said["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert said["gym.dynamo.decode_worker_id"] == "7587894923333011487"  # doubles would lose digits
    assert said["gym.dynamo.replay.input_sequence_hashes"][0] == "14879255164371896291"
    assert said["gym.dynamo.prefill_wait_time_ms"] == 2.5
    assert said["gym.agent_context.trajectory_id"] == "run-1:planner"
    assert json.loads(said["gym.dynamo.finish_reason_metadata"])["tool_calls"][0]["name"] == "spawn"


@pytest.mark.parametrize(
    ("events", "start", "end"),
    [
        (
            [("tool_end", 90, {"started_at_unix_ms": TIME + 10, "ended_at_unix_ms": TIME + 60, "duration_ms": 49.5})],
            10,
            60,
        ),
        ([("tool_end", 90, {"started_at_unix_ms": TIME + 10, "duration_ms": 25.5})], 10, 35.5),
        ([("tool_error", 90, {"ended_at_unix_ms": TIME + 60, "duration_ms": 20.0})], 40, 60),
        ([("tool_end", 90, {"duration_ms": 20.0})], 70, 90),
        (
            [("tool_end", 90, {"started_at_unix_ms": TIME, "ended_at_unix_ms": TIME, "duration_ms": 0.75})],
            0,
            0.75,
        ),
        ([("tool_start", 20, {}), ("tool_end", 90, {})], 20, 90),
        ([("tool_start", 20, {"started_at_unix_ms": TIME + 15}), ("tool_end", 90, {})], 15, 90),
        ([("tool_end", 50, {"started_at_unix_ms": TIME + 50, "ended_at_unix_ms": TIME + 50})], 50, 50),
    ],
)
def test_the_times_of_a_tool_are_the_best_that_its_records_give(
    tmp_path: Path, events: list[tuple[str, int, dict[str, Any]]], start: float, end: float
) -> None:
    [span] = named(imported(tmp_path, *(tool(kind, at, **said) for kind, at, said in events)), "execute_tool")
    assert (span.start_ns, span.end_ns) == tuple(TIME * 10**6 + int(at * 10**6) for at in (start, end))
    assert "gym.time.known" not in span.attributes


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"started_at_unix_ms": TIME + 50, "ended_at_unix_ms": TIME + 10, "duration_ms": -40.0},
        {"ended_at_unix_ms": TIME + 60},
        {"duration_ms": None},
    ],
)
def test_times_that_no_record_gives_are_not_made_up(tmp_path: Path, said: dict[str, Any]) -> None:
    [span] = named(imported(tmp_path, tool("tool_end", 90, **said)), "execute_tool")
    assert (span.start_ns, span.end_ns) == ((TIME + 90) * 10**6,) * 2
    assert span.attributes["gym.time.known"] is False


def test_a_tool_that_never_ended_is_open(tmp_path: Path) -> None:
    [span] = named(imported(tmp_path, tool("tool_start", 20)), "execute_tool")
    assert (span.start_ns, span.end_ns) == ((TIME + 20) * 10**6, None)
    assert span.attributes["gym.dynamo.tool.events"] == ["tool_start"]


def test_an_end_belongs_to_the_youngest_start_of_its_call(tmp_path: Path) -> None:
    events = [("tool_start", 0), ("tool_start", 5), ("tool_end", 10), ("tool_end", 30)]
    spans = named(imported(tmp_path, *(tool(kind, at) for kind, at in events)), "execute_tool")
    assert [((one.start_ns - TIME * 10**6) // 10**6, (one.end_ns - TIME * 10**6) // 10**6) for one in spans] == [
        (0, 30),
        (5, 10),
    ]
    assert len({span.span_id for span in spans}) == 2


def test_a_call_id_that_two_trajectories_use_is_two_tools(tmp_path: Path) -> None:
    other = {"session_type_id": "t", "session_id": "s", "trajectory_id": "s:b"}
    events = [
        tool("tool_start", 0),
        tool("tool_start", 1, context=other),
        tool("tool_end", 5),
        tool("tool_end", 9, context=other),
    ]
    spans = named(imported(tmp_path, *events), "execute_tool")
    assert [(span.end_ns - span.start_ns) // 10**6 for span in spans] == [5, 8]
    assert [span.attributes["gym.agent_context.trajectory_id"] for span in spans] == ["s:a", "s:b"]


@pytest.mark.parametrize(
    ("kind", "status", "canonical", "error"),
    [
        ("tool_end", "ok", "succeeded", None),
        ("tool_end", "failed", "error", "_OTHER"),
        ("tool_error", None, None, "_OTHER"),
        ("tool_end", "timeout", "cancelled", None),
        ("tool_end", "exploded", "exploded", None),
    ],
)
def test_a_status_is_written_as_dynamo_writes_it(
    tmp_path: Path, kind: str, status: str | None, canonical: str | None, error: str | None
) -> None:
    [span] = named(imported(tmp_path, tool(kind, 20, status=status)), "execute_tool")
    assert span.attributes.get("gym.dynamo.tool.status") == canonical
    assert span.attributes.get("error.type") == error
    assert (span.status == 2) is (error is not None)


def test_sessions_below_sessions_are_agents_of_one_rollout_parents_first(tmp_path: Path) -> None:
    def context(session: str, parent: str | None) -> dict[str, Any]:
        return {"session_id": session} | ({} if parent is None else {"parent_session_id": parent})

    records = [
        request("g", 10, context("grandchild", "child")),
        request("c", 20, context("child", "top")),
        request("t", 30, context("top", None)),
    ]
    spans = imported(tmp_path, *records)
    agents = {span.attributes["gen_ai.agent.id"]: span for span in named(spans, "invoke_agent")}
    assert list(agents) == ["top", "child", "grandchild"]
    assert agents["grandchild"].parent_span_id == agents["child"].span_id
    assert agents["child"].parent_span_id == agents["top"].span_id
    assert {span.attributes["gym.rollout.id"] for span in spans} == {"top"}


@pytest.mark.parametrize("size", [2, 3, 50])
def test_parents_in_a_circle_end_and_are_told_and_nothing_is_lost(tmp_path: Path, size: int) -> None:
    sessions = [{"session_id": f"s{n}", "parent_session_id": f"s{(n + 1) % size}"} for n in range(size)]
    trajectories = [
        {"session_id": "x", "trajectory_id": f"t{n}", "parent_trajectory_id": f"t{(n + 1) % size}"} for n in range(size)
    ]
    path = tmp_path / "trace.jsonl"
    records = [request(f"r{n}", n, context) for n, context in enumerate(sessions + trajectories)]
    path.write_text("\n".join(map(json.dumps, records)))
    rollouts = read_dynamo_together([path])
    assert [rollout.session_id for rollout in rollouts] == ["s0", "x"]
    calls = [span for rollout in rollouts for span in rollout.spans if span.name.startswith("chat")]
    assert len(calls) == 2 * size
    told = [text for rollout in rollouts for text in rollout.damage]
    assert [text.partition(" name each other")[0] for text in told] == ["sessions", "trajectories"]


def test_a_deep_chain_of_sessions_is_read(tmp_path: Path) -> None:
    records = [request(f"r{n}", n, {"session_id": f"s{n}", "parent_session_id": f"s{n + 1}"}) for n in range(3000)]
    spans = imported(tmp_path, *records)
    assert len(named(spans, "invoke_agent")) == 3000
    assert spans[0].attributes["gym.source.session_id"] == "s3000"


def test_requests_without_a_session_are_a_rollout_of_their_own(tmp_path: Path) -> None:
    bare = {key: value for key, value in request("free", 5, {}).items() if key != "agent_context"}
    spans = imported(tmp_path, request(), bare)
    assert Counter(span.attributes["gym.rollout.id"] for span in spans) == {"s": 3, "dynamo-requests": 2}


def test_fields_that_are_not_known_are_kept(tmp_path: Path) -> None:
    one = request(new_metric=3, queue_depth="many") | {"future": {"a": [1]}}
    one["agent_context"] = one["agent_context"] | {"tier": "gold"}
    [call] = named(imported(tmp_path, one), "chat")
    assert json.loads(call.attributes["gym.dynamo.extra"]) == {
        "agent_context": {"tier": "gold"},
        "future": {"a": [1]},
        "request": {"new_metric": 3, "queue_depth": "many"},
    }
    assert "gym.dynamo.queue_depth" not in call.attributes


def payload(request_id: str, **said: Any) -> dict[str, Any]:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    answer = {
        "id": f"chatcmpl-{request_id}",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
    }
    whole = {"request_id": request_id, "endpoint": "openai.chat_completion", "request": body, "response": answer}
    return {
        key: value
        for key, value in record("request_payload", 0, {}, payload=whole | said).items()
        if key != "agent_context"
    }


def test_bodies_join_the_request_that_they_are_of(tmp_path: Path) -> None:
    [call] = named(imported(tmp_path, payload("r"), request("r", ttft_ms=20.0)), "chat")
    said = call.attributes
    assert json.loads(said["gym.request.body"])["messages"][0]["content"] == "hello"
    assert json.loads(said["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "hello"}]
    assert json.loads(said["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "hi"}]
    assert said["gen_ai.response.id"] == "chatcmpl-r"
    assert said["gym.response.time_to_first_content_ns"] == 20_000_000  # it was streamed


def test_an_audit_file_beside_the_trace_is_joined_and_one_alone_is_read(tmp_path: Path) -> None:
    body = payload("r")["payload"]
    context = {"session_type_id": "t", "session_id": "s", "trajectory_id": "s:a"}
    asked = body["request"] | {"nvext": {"agent_context": context}}
    audit = {"schema_version": 1, "request_id": "r", "requested_streaming": True, "model": "m", "request": asked}
    for name, lines in (("trace.jsonl", [request("r")]), ("audit.jsonl", [{"timestamp": 1, "event": audit}])):
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    for paths in ([tmp_path], [tmp_path / "audit.jsonl"]):
        [rollout] = read_dynamo_together(paths)
        assert rollout.session_id == "s"
        [call] = [span for span in stored_spans(rollout) if span.name == "chat m"]
        assert "hello" in call.attributes["gym.request.body"]
        assert rollout.damage == []


def test_no_credential_of_a_payload_is_written(tmp_path: Path) -> None:
    headers = {
        "Authorization": "Bearer sk-SECRET1",
        "cookie": "a=SECRET2",
        "x-api-key": "SECRET3",
        "x-dynamo-session-id": "s",
    }
    context = {"session_id": "s", "agent_headers": {"x-dynamo-auth-token": ["SECRET4"], "x-agent": ["a"]}}
    trace = tmp_path / "trace.jsonl"
    extra = {"future": {"api_key": "SECRET5-0123456789"}}
    records = [payload("r", http_request_headers=headers), request("r", 5, context) | extra]
    trace.write_text("\n".join(map(json.dumps, records)))
    assert run(trace, "--dir", tmp_path / "store").exit_code == 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"SECRET" not in written
    assert b"gym.request.header.x-dynamo-session-id" in written


def test_without_content_no_body_and_no_unknown_field_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, [payload("r"), request("r") | {"io_text": {"input": "hello"}}])))
    done = CliRunner(env={"OTEL_GYM_CONTENT": "none"}).invoke(
        app, ["import", "dynamo", str(trace), "--dir", str(tmp_path / "s")]
    )
    assert done.exit_code == 0, done.output
    written = b"".join(path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file())
    assert b"hello" not in written


# --- however it lies in files


REAL = gzip.decompress((FIXTURES / "real_request_trace.jsonl.gz").read_bytes()).splitlines()


def told_of(paths: list[Path]) -> dict[str, list[StoredSpan]]:
    rollouts = read_dynamo_together(paths)
    return {one.session_id: sorted(stored_spans(one), key=lambda span: span.span_id) for one in rollouts}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StoredSpan]]:
    path = tmp_path_factory.mktemp("real") / "trace.jsonl"
    path.write_bytes(b"\n".join(REAL))
    return told_of([path])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_split_into_files_and_members_and_any_order_of_lines_gives_equal_spans(
    real: dict[str, list[StoredSpan]],
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    is_shuffled: bool,
    chance: random.Random,
) -> None:
    folder, lines = tmp_path_factory.mktemp("split"), list(REAL)
    if is_shuffled:
        chance.shuffle(lines)
    for number, length in enumerate(itertools.cycle(lengths)):
        part, lines = lines[:length], lines[length:]
        members = [b"\n".join(part[:1]) + b"\n", *(line + b"\n" for line in part[1:])]
        packed = b"".join(map(gzip.compress, members)) if chance.random() < 0.7 else b"".join(members)
        (folder / f"trace.{number:06}.jsonl{'.gz' if packed[:1] == bytes([31]) else ''}").write_bytes(packed)
        if not lines:
            break
    assert told_of([folder]) == real
    assert told_of([folder / "*.jsonl*"]) == real


@given(
    st.integers(0, len(REAL) - 1), st.sampled_from([b'{"schema": "dyn', b"\0\0\0", b"[1]", b'{"a": NaN}', b"\xff\xfe"])
)
@settings(max_examples=20, deadline=None)
def test_damage_in_any_place_keeps_all_other_records(
    tmp_path_factory: pytest.TempPathFactory, place: int, damage: bytes
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "trace.jsonl"
    path.write_bytes(b"\n".join([*REAL[:place], damage, *REAL[place:], b""]))
    [told] = [text for one in read_dynamo_together([path]) for text in one.damage if f":{place + 1}: " in text]
    assert "the line is skipped" in told
    spans = told_of([path])
    path.write_bytes(b"\n".join([*REAL, b""]))
    assert spans == told_of([path])


def test_a_member_that_is_broken_costs_nothing_but_what_was_in_it(tmp_path: Path) -> None:
    members = [gzip.compress(b"\n".join(REAL[at : at + 10]) + b"\n") for at in range(0, len(REAL), 10)]
    whole, broken = tmp_path / "whole.jsonl.gz", tmp_path / "broken.jsonl.gz"
    whole.write_bytes(b"".join(members[:2] + members[3:]))
    broken.write_bytes(b"".join([*members[:2], members[2][:10] + b"\xff" * (len(members[2]) - 10), *members[3:]]))
    assert told_of([broken]) == told_of([whole])
    [text] = [text for one in read_dynamo_together([broken]) for text in one.damage if "gzip member" in text]
    assert f"gzip member 3 (from byte {len(members[0]) + len(members[1])} of the file) is damaged" in text


def test_importing_again_and_a_trace_that_has_grown_adds_nothing_twice(tmp_path: Path) -> None:
    path, store = tmp_path / "trace.jsonl", tmp_path / "store"
    for part in (10, 25, 40, len(REAL)):
        path.write_bytes(b"\n".join(REAL[:part]) + b"\n")
        run(path, "--dir", store)
    grown = {name: sorted(spans, key=lambda one: one.span_id) for name, spans in spans_of(store).items()}
    assert "nothing new" in run(path, "--dir", store).stdout
    run(path, "--dir", tmp_path / "once")
    once = {name: sorted(spans, key=lambda one: one.span_id) for name, spans in spans_of(tmp_path / "once").items()}
    grown.pop("dynamo-requests"), once.pop("dynamo-requests")  # payloads that stood at the end for a moment
    assert grown == once


# --- what is said


def test_records_that_are_written_twice_are_counted_once_and_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [json.dumps({"timestamp": n, "event": request("r")}) for n in range(3)]
    path.write_text("\n".join([*lines, json.dumps(request("r", input_tokens=1))]))
    done = run(path, "--dir", tmp_path / "store")
    assert done.exit_code == 1
    assert f"{path}:2: 2 records are written twice, the first copy stands here; each is counted once" in done.stderr
    assert "one request has records that say different things (r: input_tokens): each is kept" in done.stderr
    assert len(named(spans_of(tmp_path / "store")["s"], "chat")) == 2


def test_a_schema_that_nobody_knows_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    future = json.dumps({"schema": "dynamo.future.v9", "event_type": "request_end"})
    path.write_text(f"{json.dumps(request())}\n{future}\n")
    done = run(path, "--dir", tmp_path / "store")
    assert (done.exit_code, f"{path}:2: schema 'dynamo.future.v9' is not known" in done.stderr) == (1, True)
    path.write_text(future)
    done = run(path, "--dir", tmp_path / "store")
    assert (done.exit_code, "schema 'dynamo.future.v9' is not known" in done.stderr) == (2, True)


def test_files_of_another_kind_are_told_by_name_and_passed_over_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text(json.dumps(request()))
    (tmp_path / "rows.jsonl").write_text('{"request_id": "r", "hash_ids": [1]}\n')
    assert run(tmp_path, "--dir", tmp_path / "store").exit_code == 0
    done = run(tmp_path / "rows.jsonl", "--dir", tmp_path / "store")
    assert (done.exit_code, "is a record of Dynamo's: schema None is not known" in done.stderr) == (2, True)
    done = CliRunner().invoke(app, ["import", "codex", str(tmp_path / "trace.jsonl"), "--dir", str(tmp_path / "store")])
    assert (done.exit_code, "this is a trace of Dynamo: otel-gym import dynamo" in done.stderr) == (2, True)


def test_an_empty_file_says_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "trace.000000.jsonl.gz"
    path.write_bytes(b"")
    done = run(path, "--dir", tmp_path / "store")
    assert (done.exit_code, "the file is empty" in done.stderr) == (2, True)
    assert run(tmp_path / "nothing", "--dir", tmp_path / "store").exit_code == 2


def test_a_rollout_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(request()))
    assert run(path, "--rollout", "3-1", "--run", "eval", "--dir", tmp_path / "store").exit_code == 0
    assert {span.attributes["gym.run.id"] for span in spans_of(tmp_path / "store")["3-1"]} == {"eval"}
    path.write_text("\n".join(map(json.dumps, (request(), request("q", 9, {"session_id": "other"})))))
    done = run(path, "--rollout", "3-1", "--dir", tmp_path / "store")
    assert (done.exit_code, "holds 2 sessions (other, s …), --rollout names one" in done.stderr) == (2, True)


def test_a_checksum_that_is_wrong_keeps_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    member = gzip.compress(json.dumps(request()).encode() + b"\n")
    path.write_bytes(member[:-8] + zlib.crc32(b"other").to_bytes(4, "little") + member[-4:])
    done = run(path, "--dir", tmp_path / "store")
    assert (done.exit_code, "its checksum is wrong" in done.stderr) == (1, True)
    assert len(named(spans_of(tmp_path / "store")["s"], "chat")) == 1


@pytest.mark.parametrize("nameless", [{"trajectory_id": "t"}, {"session_id": "", "trajectory_id": "t"}])
def test_a_record_without_a_session_lost_the_whole_import(tmp_path: Path, nameless: dict[str, Any]) -> None:
    records = [
        request("1", context={"session_id": "S1"}),
        request("2", context=nameless),
        request("3", context={"session_id": "S3"}),
    ]
    calls = named(imported(tmp_path, *records), "chat")
    assert sorted(call.attributes["gym.dynamo.request_id"] for call in calls) == ["1", "2", "3"]


@pytest.mark.parametrize("deep", ['{"event":' * 20_000, "[" * 100_000, '{"schema":' + "[" * 5000 + "]" * 5000 + "}"])
def test_one_deeply_nested_line_ended_the_import(tmp_path: Path, deep: str) -> None:
    (tmp_path / "trace.jsonl").write_text(f"{json.dumps(request('1'))}\n{deep}\n{json.dumps(request('2', 200))}\n")
    done = run(tmp_path / "trace.jsonl", "--dir", tmp_path / "store")
    assert done.exit_code == 1
    assert "trace.jsonl:2: no JSON" in done.stderr
    assert len(named(spans_of(tmp_path / "store")["s"], "chat")) == 2


def test_sessions_of_other_characters_fell_into_one_rollout(tmp_path: Path) -> None:
    sessions = ["a/b", "a:b", "日本", "😀", ".", "..", "x" * 250 + "1", "x" * 250 + "2"]
    records = [request(str(number), context={"session_id": name}) for number, name in enumerate(sessions)]
    spans = imported(tmp_path, *records)
    assert len({span.rollout_id for span in spans}) == len(sessions)


def test_a_gz_file_whose_first_bytes_are_damaged_was_read_as_text(tmp_path: Path) -> None:
    members = [gzip.compress(json.dumps(request(str(number))).encode() + b"\n") for number in range(3)]
    (tmp_path / "trace.jsonl.gz").write_bytes(b"\0" + b"".join(members)[1:])
    done = run(tmp_path / "trace.jsonl.gz", "--dir", tmp_path / "store")
    assert done.exit_code == 1
    assert len(named(spans_of(tmp_path / "store")["s"], "chat")) == 2


def test_segments_imported_one_after_the_other_told_the_times_of_the_last_alone(tmp_path: Path) -> None:
    segments = [request("1", 100), request("2", 400), request("3", 250)]
    for number, one in enumerate(segments):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(one) + "\n")
        assert run(tmp_path / f"part-{number}.jsonl", "--dir", tmp_path / "parts").exit_code == 0
    assert run(*sorted(tmp_path.glob("part-*.jsonl")), "--dir", tmp_path / "whole").exit_code == 0

    def told(store: str) -> list[tuple[str, int, int | None]]:
        return sorted((span.name, span.start_ns, span.end_ns) for span in spans_of(tmp_path / store)["s"])

    assert told("parts") == told("whole")
    again = run(tmp_path / "part-1.jsonl", "--dir", tmp_path / "parts")
    assert "nothing new" in again.stdout


def test_a_tool_that_had_ended_was_open_again_once_the_segment_of_its_start_was_imported(tmp_path: Path) -> None:
    for number, one in enumerate([tool("tool_end", 90, duration_ms=40.0), tool("tool_start", 50)]):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(one) + "\n")
        run(tmp_path / f"part-{number}.jsonl", "--dir", tmp_path / "store")
    [span] = named(spans_of(tmp_path / "store")["s"], "execute_tool")
    assert span.end_ns == (TIME + 90) * 10**6


def test_a_session_of_another_launch_took_the_tools_of_the_first(tmp_path: Path) -> None:
    for number in range(2):
        at = 100 + number * 10**6
        records = [request(str(number), at), tool("tool_end", at + 50, duration_ms=40.0)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        run(tmp_path / f"{number}.jsonl", "--dir", tmp_path / "store")
    assert len(named(spans_of(tmp_path / "store")["s"], "execute_tool")) == 2
    assert "nothing new" in run(tmp_path / "1.jsonl", "--dir", tmp_path / "store").stdout


def test_a_session_of_another_run_took_the_rollout_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text(json.dumps(request()) + "\n")
    run(tmp_path / "trace.jsonl", "--run", "A", "--dir", tmp_path / "store")
    done = run(tmp_path / "trace.jsonl", "--run", "B", "--dir", tmp_path / "store")
    assert done.exit_code == 1
    assert "session s: the store has it of run A" in done.stderr and "--rollout ID" in done.stderr
    assert {span.run_id for span in spans_of(tmp_path / "store")["s"]} == {"A"}
