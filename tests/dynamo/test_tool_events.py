"""The sender of tool events: to a real receiver, to none, across a fork, and from the spans of a traced program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from otel_gym.agent_identity import AgentContext
from otel_gym.ingest.dynamo.tool_frames import tool_event_of
from otel_gym.store.reader import Store
from otel_gym.tracing.tool_events import ToolEventPublisher
from tests.dynamo.relays import TIMEOUT_S, awaited, running, tools_of

PLANNER = AgentContext(session_type_id="research", session_id="run-1", trajectory_id="run-1:planner")
T0 = 1777312800000
NOWHERE = "tcp://127.0.0.1:9"


class Receiver:
    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_S * 1000)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"

    def message(self) -> list[bytes]:
        return self._socket.recv_multipart()

    def record(self) -> dict[str, Any]:
        return msgspec.msgpack.decode(self.message()[2])

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def receiver() -> Any:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.mark.parametrize("shape", ["nested", "flat"])
def test_what_is_sent_is_what_a_receiver_takes(receiver: Receiver, shape: Any) -> None:
    with ToolEventPublisher(receiver.address, topic="agent-tool-events", shape=shape) as publisher:
        publisher.tool_start(PLANNER, "c1", "search", started_at_unix_ms=T0)
        publisher.tool_end(PLANNER, "c1", "search", started_at_unix_ms=T0, ended_at_unix_ms=T0 + 5, duration_ms=5)
        publisher.tool_error(PLANNER, "c2", "shell", status="cancelled", error_type="Timeout", duration_ms=float("nan"))
    messages = [receiver.message() for _ in range(3)]
    assert [int.from_bytes(number, "big") for _, number, _ in messages] == [1, 2, 3]
    start, end, error = (tool_event_of(message, "agent-tool-events") for message in messages)
    assert start.context is not None and start.context.agent_id == "run-1:planner"
    assert (start.event_type, start.event_time_unix_ms) == ("tool_start", T0)
    assert end.tool is not None and end.tool.duration_ms == 5.0 and end.tool.status == "succeeded"
    assert error.tool is not None and (error.tool.status, error.tool.error_type) == ("cancelled", "Timeout")
    assert error.tool.duration_ms is None
    assert (publisher.sent, publisher.dropped.total()) == (3, 0)


def test_an_agent_of_a_session_of_its_own_is_named_in_either_shape(receiver: Receiver) -> None:
    child = AgentContext(session_id="child", parent_session_id="root")
    for shape in ("nested", "flat"):
        with ToolEventPublisher(receiver.address, shape=shape) as publisher:  # type: ignore[arg-type]
            publisher.tool_end(child, "c1", "search")
    nested, flat = receiver.record(), receiver.record()
    assert nested["agent_context"]["trajectory_id"] == flat["session_id"] == "child"
    assert nested["agent_context"]["parent_trajectory_id"] == flat["parent_session_id"] == "root"


def test_without_a_receiver_the_harness_goes_on_and_what_is_dropped_is_counted() -> None:
    publisher = ToolEventPublisher(NOWHERE, queue_size=5)
    for number in range(10):
        publisher.tool_end(PLANNER, f"c{number}", "search")
    assert publisher.close(0.2) is False
    publisher.tool_end(PLANNER, "late", "search")
    dropped = publisher.dropped
    assert dropped["came after the end"] == 1
    assert dropped["queue full"] + dropped["not sent before the end"] == 10 and dropped["queue full"] >= 4
    assert publisher.sent == 0


def test_numbers_show_what_was_dropped(receiver: Receiver) -> None:
    with ToolEventPublisher(receiver.address) as publisher:
        publisher.tool_end(PLANNER, "c1", "search")
        publisher.tool_end(AgentContext(), "c2", "search")
        publisher.tool_end(PLANNER, "c3", "search")
    assert [int.from_bytes(receiver.message()[1], "big") for _ in range(2)] == [1, 3]
    assert dict(publisher.dropped) == {"no session": 1}


def test_odd_arguments_and_addresses_raise_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ToolEventPublisher("no address") as publisher:
        publisher.tool_end(PLANNER, "c1", "search")
        publisher.tool_end(PLANNER, "c2", "search", duration_ms="long")  # type: ignore[arg-type]
        publisher.tool_end(None, "c3", "search")  # type: ignore[arg-type]
        publisher.tool_end(PLANNER, object(), "search")  # type: ignore[arg-type]
        publisher.tool_end(PLANNER, "x" * 2**21, "search")
    assert publisher.sent == 0 and publisher.dropped.total() == 5
    assert dict(publisher.dropped) == {"no socket": 1, "not encoded": 3, "too large": 1}


def test_events_that_threads_make_at_once_all_come(receiver: Receiver) -> None:
    def make(name: int) -> None:
        for number in range(200):
            publisher.tool_end(PLANNER, f"{name}-{number}", "search")

    with ToolEventPublisher(receiver.address) as publisher:
        threads = [threading.Thread(target=make, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        came = [receiver.message() for _ in range(1600)]
    assert sorted(int.from_bytes(number, "big") for _, number, _ in came) == list(range(1, 1601))


def test_a_forked_child_sends_its_own_events_once(receiver: Receiver, tmp_path: Path) -> None:
    program = """
        import os, sys
        from otel_gym.agent_identity import AgentContext
        from otel_gym.tracing.tool_events import ToolEventPublisher
        context = AgentContext(session_id="s")
        publisher = ToolEventPublisher(sys.argv[1])
        publisher.tool_end(context, "parent", "x")
        child = os.fork()
        if child == 0:
            publisher.tool_end(context, "child", "x")
            os._exit(0 if publisher.close() and publisher.sent == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        publisher.tool_end(context, "parent again", "x")
    """
    run(program, receiver.address)
    calls = sorted(receiver.record()["tool"]["tool_call_id"] for _ in range(3))
    assert calls == ["child", "parent", "parent again"]


def run(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


TRACED = """
    import otel_gym
    with otel_gym.rollout(12, 0), otel_gym.invoke_agent("planner", agent_id="planner"):
        with otel_gym.execute_tool("search", call_id="c1"):
            pass
        try:
            with otel_gym.execute_tool("shell", call_id="c2"):
                raise TimeoutError
        except TimeoutError:
            pass
"""


@pytest.mark.parametrize("variable", ["DYN_AGENT_TRACE", "DYN_REQUEST_TRACE"])
def test_tools_of_a_traced_program_are_sent_where_dynamo_binds(tmp_path: Path, variable: str) -> None:
    relayed = tmp_path / "relayed"
    with running(relayed) as relay:
        endpoint = {f"{variable}_TOOL_EVENTS_ZMQ_ENDPOINT": relay.endpoints[0].address}
        run(TRACED, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path / "own"), **endpoint)
        awaited(lambda: relay.counts.messages == 4)
    assert relay.counts.events == 4 and relay.counts.refused.total() == 0
    own = {span.attributes["gen_ai.tool.call.id"]: span for span in tools_of(tmp_path / "own")}
    sent = {span.attributes["gen_ai.tool.call.id"]: span for span in tools_of(relayed)}
    assert sent.keys() == own.keys() == {"c1", "c2"}
    for call_id, span in sent.items():
        assert span.start_ns // 10**6 == own[call_id].start_ns // 10**6
        assert span.attributes["gym.dynamo.tool.events"] == [
            "tool_start",
            "tool_error" if call_id == "c2" else "tool_end",
        ]


def test_a_traced_program_without_a_receiver_ends_and_counts_what_it_could_not_send(tmp_path: Path) -> None:
    run(TRACED, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path), DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT=NOWHERE)
    assert Store(tmp_path).counts()["dynamo_lost_tool_events"] == 4
    assert len(tools_of(tmp_path)) == 2


def test_without_zeromq_a_harness_runs_and_is_told_the_extra(tmp_path: Path) -> None:
    (tmp_path / "zmq.py").write_text("raise ModuleNotFoundError(\"No module named 'zmq'\", name='zmq')")
    endpoint = {"DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT": NOWHERE, "PYTHONPATH": str(tmp_path)}
    said = run(TRACED, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path / "store"), **endpoint)
    assert said.count("pip install 'otel_gym[dynamo]'") == 1
    assert len(tools_of(tmp_path / "store")) == 2
