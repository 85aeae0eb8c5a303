"""Tool events over ZeroMQ, from real sockets into a store."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from otel_gym.ingest.dynamo.endpoints import Endpoint, EndpointError, check_address, endpoints_of
from otel_gym.ingest.dynamo.relay import ToolEventRelay
from otel_gym.ingest.dynamo.tool_frames import Refusal
from otel_gym.store.reader import Store
from otel_gym.store.span import NO_ORIGIN, StoredSpan
from tests.dynamo.relays import TIMEOUT_S, awaited, pushing, running, tools_of

T0 = 1777312800000


def event(kind: str, call: str, session: str = "run-1", at: int = T0, **tool: Any) -> dict[str, Any]:
    return {
        "schema": "dynamo.agent.trace.v1",
        "event_type": kind,
        "event_time_unix_ms": at,
        "event_source": "harness",
        "agent_context": {"session_type_id": "t", "session_id": session, "trajectory_id": f"{session}:planner"},
        "tool": {"tool_call_id": call, "tool_class": "search", **tool},
    }


def message(record: Any, number: int = 0, topic: bytes = b"") -> list[bytes]:
    return [topic, number.to_bytes(8, "big"), msgspec.msgpack.encode(record)]


def sent(directory: Path, messages: Sequence[list[bytes]], **how: Any) -> ToolEventRelay:
    """The relay, when it has had all of them and ended."""
    with running(directory, **how) as relay, pushing(relay.endpoints[0].address) as [socket]:
        for each in messages:
            socket.send_multipart(each)
        awaited(lambda: relay.counts.messages == len(messages))
    return relay


def test_fifty_thousand_events_of_which_every_valid_one_becomes_a_span(tmp_path: Path) -> None:
    """With wrong frames, bad msgpack, wrong topics and duplicates among them: each is counted by its reason."""
    topic, calls = b"tools", 22_500
    messages = []
    for call in range(calls):
        session, call_id, start = f"run-{call % 40}", f"call-{call}", T0 + call
        records = [event("tool_start", call_id, session, start, status="running")]
        ending = {"started_at_unix_ms": start, "ended_at_unix_ms": start + 7, "duration_ms": 7.0, "status": "ok"}
        kind = "tool_error" if call % 10 == 0 else "tool_end"
        records.append(event(kind, call_id, session, start + 7, **ending))
        messages += [message(record, topic=topic) for record in records]
    odd = {
        Refusal.FRAMES: [[b"one"], [topic, b"two"], [*message(event("tool_end", "x"), topic=topic), b"four"]],
        Refusal.MSGPACK: [[topic, bytes(8), content] for content in (b"\xc1", b"{}", b"")],
        Refusal.TOPIC: [message(event("tool_end", "x"), topic=other) for other in (b"", b"tool", b"tools2")],
        Refusal.SCHEMA: [message(event("tool_end", "x") | {"schema": "v2"}, topic=topic)],
        Refusal.RECORD: [message(event("tool_end", "x", status="whatever"), topic=topic)],
        Refusal.DUPLICATE: [message(event("tool_end", f"twice-{n}"), topic=topic) for n in range(2)],
    }
    refused = Counter[Refusal]()
    twice = odd[Refusal.DUPLICATE]
    mixed = messages + twice
    for number in range(5_000):
        reason = list(odd)[number % len(odd)]
        refused[reason] += 1
        mixed.append(odd[reason][number % len(odd[reason])])
    random.Random(8).shuffle(mixed)

    with running(tmp_path, topic=topic.decode()) as relay, pushing(relay.endpoints[0].address, 4) as sockets:
        for number, each in enumerate(mixed):
            sockets[number % len(sockets)].send_multipart(each)
        awaited(lambda: relay.counts.messages == len(mixed))

    assert len(mixed) == 50_002
    assert relay.counts.refused == refused
    assert relay.counts.events == 2 * calls + len(twice)
    assert relay.counts.spans == calls + len(twice)
    tools = tools_of(tmp_path)
    expected = {f"call-{call}" for call in range(calls)} | {"twice-0", "twice-1"}
    assert Counter(span.attributes["gen_ai.tool.call.id"] for span in tools) == Counter(expected)
    assert all(span.end_ns is not None for span in tools)


def test_a_tool_is_in_the_store_while_it_runs_and_ends_there(tmp_path: Path) -> None:
    with running(tmp_path) as relay, pushing(relay.endpoints[0].address) as [socket]:
        socket.send_multipart(message(event("tool_start", "c1", started_at_unix_ms=T0)))
        awaited(lambda: (tmp_path / "spans").is_dir() and bool(tools_of(tmp_path)))
        [running_tool] = tools_of(tmp_path)
        assert running_tool.end_ns is None
        socket.send_multipart(message(event("tool_end", "c1", at=T0 + 5, ended_at_unix_ms=T0 + 5)))
        awaited(lambda: tools_of(tmp_path)[0].end_ns is not None)
    [tool] = tools_of(tmp_path)
    assert (tool.start_ns, tool.end_ns) == (T0 * 10**6, (T0 + 5) * 10**6)
    assert tool.span_id == running_tool.span_id


def test_rollout_and_agent_stand_above_their_tools_and_end_with_the_relay(tmp_path: Path) -> None:
    times = {"started_at_unix_ms": T0, "ended_at_unix_ms": T0 + 5}
    later = {"started_at_unix_ms": T0 + 8, "ended_at_unix_ms": T0 + 9}
    sent(tmp_path, [message(event("tool_end", "c1", **times)), message(event("tool_end", "c2", **later))])
    [rollout] = Store(tmp_path).rollouts()
    by_id = {span.span_id: span for span in rollout.spans}
    assert rollout.rollout_id == "run-1"
    for tool in tools_of(tmp_path):
        agent = by_id[tool.parent_span_id or ""]
        root = by_id[agent.parent_span_id or ""]
        assert agent.attributes["gen_ai.agent.id"] == "run-1:planner"
        assert root.parent_span_id is None
        for span in (agent, root):
            assert (span.start_ns, span.end_ns) == (T0 * 10**6, (T0 + 9) * 10**6)


def test_a_second_relay_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    first = {"started_at_unix_ms": T0, "ended_at_unix_ms": T0 + 5}
    second = {"started_at_unix_ms": T0 + 8, "ended_at_unix_ms": T0 + 9}
    sent(tmp_path, [message(event("tool_end", "c1", **first))])
    sent(tmp_path, [message(event("tool_end", "c1", **first)), message(event("tool_end", "c2", **second))])
    [rollout] = Store(tmp_path).rollouts()
    assert sorted(span.attributes["gen_ai.tool.call.id"] for span in tools_of(tmp_path)) == ["c1", "c2"]
    [root] = [span for span in rollout.spans if span.parent_span_id is None]
    assert (root.start_ns, root.end_ns) == (T0 * 10**6, (T0 + 9) * 10**6)


def test_a_session_id_that_is_a_path_stays_in_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    sent(store, [message(event("tool_end", "c1", session="../../outside"))])
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert len(tools_of(store)) == 1


def test_ipc_takes_events_too(tmp_path: Path) -> None:
    relay = sent(tmp_path / "store", [message(event("tool_end", "c1"))], address=f"ipc://{tmp_path}/tools")
    assert relay.counts.events == 1


def test_what_cannot_be_written_is_written_when_the_store_can_be_again(tmp_path: Path) -> None:
    blocked = tmp_path / "spans"
    blocked.write_text("in the way")
    with running(tmp_path) as relay, pushing(relay.endpoints[0].address) as [socket]:
        socket.send_multipart(message(event("tool_end", "c1")))
        awaited(lambda: relay.counts.failed is not None)
        blocked.unlink()
        socket.send_multipart(message(event("tool_end", "c2")))
        awaited(lambda: relay.counts.failed is None)
    assert sorted(span.attributes["gen_ai.tool.call.id"] for span in tools_of(tmp_path)) == ["c1", "c2"]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_where_it_binds_and_what_it_took(tmp_path: Path, stop: int) -> None:
    command = [sys.executable, "-m", "otel_gym.cli", "dynamo", "relay", "--endpoint", "tcp://127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--dir", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = re.search(r"on (tcp://\S+) ", process.stdout.readline())
    assert address is not None
    with pushing(address[1]) as [socket]:
        for each in ([b"alone"], message(event("tool_end", "c1")), message(event("tool_end", "c1"))):
            socket.send_multipart(each)
        socket.send_multipart(message(event("tool_end", "c2")))
        awaited(lambda: (tmp_path / "spans").is_dir() and len(tools_of(tmp_path)) == 2)
    process.send_signal(stop)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "2 events of 2 tools taken, 1 wrong frames, 1 duplicate" in out.splitlines()[-1]
    assert "wrong frames: 1 frames, 3 are asked for" in err


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_gym.cli", "dynamo", "relay", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_an_address_that_others_reach_is_bound_only_if_it_is_said(tmp_path: Path) -> None:
    for address in ("tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://eth0:0"):
        refused = run_command("--dir", str(tmp_path), DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT=address)
        assert refused.returncode == 2 and "--public" in refused.stderr
        check_address(address, is_public=True)
    for address in ("127.0.0.1:1", "http://127.0.0.1:1", "tcp://127.0.0.1", "inproc://x", "ipc://", "tcp://:5"):
        with pytest.raises(EndpointError, match="no endpoint to bind"):
            check_address(address, is_public=True)
    for address in ("tcp://127.0.0.1:0", "tcp://localhost:5", "tcp://[::1]:*", "ipc:///tmp/x"):
        check_address(address, is_public=False)


def test_an_endpoint_that_is_taken_is_one_clear_error(tmp_path: Path) -> None:
    with running(tmp_path) as relay:
        [endpoint] = relay.endpoints
        refused = run_command("--dir", str(tmp_path), "--endpoint", endpoint.address)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "give another --endpoint" in refused.stderr


def test_without_zeromq_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "zmq.py").write_text("raise ModuleNotFoundError(\"No module named 'zmq'\", name='zmq')")
    refused = run_command("--dir", str(tmp_path / "store"), PYTHONPATH=str(tmp_path))
    assert refused.returncode == 2
    assert "pip install 'otel_gym[dynamo]'" in refused.stderr and refused.stderr.count("\n") == 1


def test_dynamos_variables_say_where_to_bind_and_which_topic_to_take() -> None:
    agent, request = "DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_", "DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_"
    one, other = "tcp://127.0.0.1:5", "tcp://127.0.0.1:6"
    assert endpoints_of([], None, {}) == [Endpoint("tcp://127.0.0.1:20390")]
    assert endpoints_of([], None, {agent + "ENDPOINT": one}) == [Endpoint(one)]
    assert endpoints_of([], None, {agent + "ENDPOINT": one, agent + "TOPIC": "t"}) == [Endpoint(one, "t")]
    assert endpoints_of([], None, {request + "ENDPOINT": one}) == [Endpoint(one, "agent-tool-events")]
    assert endpoints_of([], None, {request + "ENDPOINT": one, request + "TOPIC": "t"}) == [Endpoint(one, "t")]
    both = {agent + "ENDPOINT": one, request + "ENDPOINT": other}
    assert endpoints_of([], None, both) == [Endpoint(one), Endpoint(other, "agent-tool-events")]
    assert endpoints_of([], None, {agent + "ENDPOINT": one, request + "ENDPOINT": one}) == [Endpoint(one)]
    assert endpoints_of([other], "t", both) == [Endpoint(other, "t")]
    assert endpoints_of([], None, {agent + "ENDPOINT": ""}) == [Endpoint("tcp://127.0.0.1:20390")]


def flat(kind: str, call: str, session: str, above: str | None = None, **tool: Any) -> dict[str, Any]:
    said = {"schema": "dynamo.request.trace.v1", "event_type": kind, "event_time_unix_ms": T0, "session_id": session}
    parent = {} if above is None else {"parent_session_id": above}
    return {**said, **parent, "tool": {"tool_call_id": call, "tool_class": "search", **tool}}


def as_dynamo_writes(record: dict[str, Any]) -> dict[str, Any]:
    if "session_id" not in record:
        return record
    names = ("session_id", "parent_session_id")
    context = {name: record[name] for name in names if name in record}
    rest = {name: value for name, value in record.items() if name not in names}
    return rest | {"event_source": "harness", "agent_context": context}


NESTED = [
    event("tool_start", "c1", status="running", started_at_unix_ms=T0),
    event("tool_end", "c1", at=T0 + 5, started_at_unix_ms=T0, ended_at_unix_ms=T0 + 5, status="succeeded"),
    event("tool_end", "c1", at=T0 + 9, ended_at_unix_ms=T0 + 9, duration_ms=2.5),
    event("tool_start", "open"),
    event("tool_error", "c2", session="run-2", status="error", error_type="Timeout", output_bytes=3),
]
FLAT = [
    flat("tool_end", "c1", "run-1", started_at_unix_ms=T0, ended_at_unix_ms=T0 + 3, tool_name_hash="ab"),
    flat("tool_end", "c1", "run-1:child", "run-1", duration_ms=4.0),
    flat("tool_end", "c1", "run-1:child:child", "run-1:child", ended_at_unix_ms=T0 + 5),
]


@pytest.mark.parametrize("records", [NESTED, FLAT], ids=["nested", "flat"])
@pytest.mark.parametrize("at_once", [True, False])
def test_dynamos_own_file_of_the_same_tools_adds_none_twice(
    tmp_path: Path, records: list[dict[str, Any]], at_once: bool
) -> None:
    store = tmp_path / "store"
    with running(store) as relay, pushing(relay.endpoints[0].address) as [socket]:
        for number, record in enumerate(records, 1):
            socket.send_multipart(message(record, topic=b"agent-tool-events"))
            if not at_once:
                awaited(lambda: relay.counts.spans > 0 and relay.counts.messages == number)  # noqa: B023
                time.sleep(0.05)
        awaited(lambda: relay.counts.messages == len(records))
    of_relay = spans_by_id(store)
    lines = [json.dumps({"timestamp": 1, "event": as_dynamo_writes(record)}) for record in records]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "otel_gym.cli", "import", "dynamo", str(tmp_path / "trace.jsonl")]
    done = subprocess.run([*command, "--dir", str(store)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "new span" not in done.stdout
    assert spans_by_id(store) == of_relay
    assert len([span for span in of_relay.values() if span.name.startswith("execute_tool")]) == 4 - (records is FLAT)


def spans_by_id(directory: Path) -> dict[str, StoredSpan]:
    store = Store(directory)
    spans = [span for name in store.rollout_ids() for span in store.spans(name)]
    return {span.span_id: replace(span, resource={}, origin=NO_ORIGIN, flags=0) for span in spans}
