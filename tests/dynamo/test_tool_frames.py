"""What a receiver of tool events takes, and what it drops: as Dynamo 1.2.1 and 1.3 did where they were run."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from otel_gym.ingest.dynamo.tool_frames import MOST_BYTES, Refusal, RefusedError, tool_event_of

SEQ = (7).to_bytes(8, "big")
CONTEXT = {"session_type_id": "research", "session_id": "run-1", "trajectory_id": "run-1:planner"}
TOOL = {"tool_call_id": "call-1", "tool_class": "web_search"}


def nested(**said: Any) -> dict[str, Any]:
    return {
        "schema": "dynamo.agent.trace.v1",
        "event_type": "tool_end",
        "event_time_unix_ms": 1777312800100,
        "event_source": "harness",
        "agent_context": CONTEXT,
        "tool": TOOL,
    } | said


def flat(**said: Any) -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "tool_end",
        "event_time_unix_ms": 1777312800100,
        "session_id": "run-1:planner",
        "tool": TOOL,
    } | said


def frames(record: Any, topic: bytes = b"agent-tool-events") -> list[bytes]:
    return [topic, SEQ, msgspec.msgpack.encode(record)]


def refusal_of(message: list[bytes], topic: str | None = None) -> Refusal:
    with pytest.raises(RefusedError) as refused:
        tool_event_of(message, topic)
    return refused.value.reason


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


BOTH = pytest.mark.parametrize("shape", [nested, flat])


@BOTH
def test_a_whole_event_is_taken_with_all_that_it_says(shape: Any) -> None:
    tool = TOOL | {
        "started_at_unix_ms": 1,
        "ended_at_unix_ms": 2**64 - 1,
        "duration_ms": 1.5,
        "status": "error",
        "output_tokens": 3,
        "output_bytes": 4,
        "tool_name_hash": "abc",
        "error_type": "timeout",
    }
    record = tool_event_of(frames(shape(event_type="tool_error", tool=tool)))
    assert record.tool is not None and msgspec.to_builtins(record.tool) == tool
    assert (record.event_type, record.event_time_unix_ms, record.event_source) == (
        "tool_error",
        1777312800100,
        "harness",
    )
    assert record.context is not None and record.context.agent_id == "run-1:planner"


def test_the_agent_above_is_kept_in_either_spelling() -> None:
    above = CONTEXT | {"parent_trajectory_id": "run-1:root", "trajectory_final": True}
    context = tool_event_of(frames(nested(agent_context=above))).context
    assert context is not None and (context.parent_agent_id, context.is_final) == ("run-1:root", True)
    context = tool_event_of(frames(flat(parent_session_id="run-1"))).context
    assert context is not None and context.parent_agent_id == "run-1"


def test_names_of_before_2026_05_are_taken() -> None:
    said = {"workflow_type_id": "r", "workflow_id": "run-1", "program_id": "p", "parent_program_id": "root"}
    context = tool_event_of(frames(nested(agent_context=said, event_source="ms_agent"))).context
    assert context is not None
    assert (context.session_id, context.agent_id, context.parent_agent_id) == ("run-1", "p", "root")


@pytest.mark.parametrize(
    ("said", "canonical"),
    [
        ("ok", "succeeded"),
        ("success", "succeeded"),
        ("failed", "error"),
        ("canceled", "cancelled"),
        ("timeout", "cancelled"),
        ("running", "running"),
    ],
)
@BOTH
def test_a_status_is_written_as_dynamo_writes_it(shape: Any, said: str, canonical: str) -> None:
    record = tool_event_of(frames(shape(tool=TOOL | {"status": said})))
    assert record.tool is not None and record.tool.status == canonical


@pytest.mark.parametrize(
    "tool", [{"unknown": [1]}, {"duration_ms": -5.0}, {"duration_ms": 12}, {"status": None}, {"output_bytes": 0}]
)
@BOTH
def test_odd_events_that_dynamo_takes_are_taken(shape: Any, tool: dict[str, Any]) -> None:
    record = tool_event_of(frames(shape(tool=TOOL | tool, unknown={"x": 1})))
    assert record.tool is not None and record.tool.tool_call_id == "call-1"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_duration_that_is_no_number_is_null_in_the_nested_shape_and_refused_in_the_flat_one(number: float) -> None:
    tool = TOOL | {"duration_ms": number}
    record = tool_event_of(frames(nested(tool=tool)))
    assert record.tool is not None and record.tool.duration_ms is None
    assert refusal_of(frames(flat(tool=tool))) is Refusal.RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"event_type": "request_end"},
        {"event_type": "tool_stop"},
        {"event_time_unix_ms": 1.0},
        {"event_time_unix_ms": -1},
        {"event_time_unix_ms": None},
        {"tool": None},
        {"tool": without(TOOL, "tool_call_id")},
        {"tool": without(TOOL, "tool_class")},
        {"tool": TOOL | {"status": "whatever"}},
        {"tool": TOOL | {"started_at_unix_ms": 1.5}},
        {"tool": TOOL | {"output_tokens": True}},
        {"tool": [1, 2]},
    ],
)
@BOTH
def test_what_dynamo_drops_is_refused(shape: Any, change: dict[str, Any]) -> None:
    assert refusal_of(frames(shape(**change))) is Refusal.RECORD


@pytest.mark.parametrize(
    "record",
    [
        nested(event_source="dynamo"),
        without(nested(), "event_source"),
        without(nested(), "agent_context"),
        nested(agent_context=without(CONTEXT, "trajectory_id")),
        nested(agent_context=CONTEXT | {"parent_trajectory_id": 5}),
        nested(request={"request_id": "r"}),
        without(flat(), "session_id"),
        nested(schema="dynamo.request.trace.v1"),
    ],
)
def test_a_record_that_is_not_of_its_shape_is_refused(record: dict[str, Any]) -> None:
    assert refusal_of(frames(record)) is Refusal.RECORD


def test_every_other_message_is_refused_by_its_reason() -> None:
    assert refusal_of([]) is Refusal.FRAMES
    assert refusal_of(frames(nested())[:2]) is Refusal.FRAMES
    assert refusal_of([*frames(nested()), b""]) is Refusal.FRAMES
    for content in (b"", b"\xc1", b'{"schema":"dynamo.agent.trace.v1"}', b"\x93\x01\x02\x03", b"\x81", b"\x91" * 5000):
        assert refusal_of([b"", SEQ, content]) is Refusal.MSGPACK
    assert refusal_of(frames(nested(schema="dynamo.agent.trace.v2"))) is Refusal.SCHEMA
    assert refusal_of(frames({})) is Refusal.SCHEMA
    assert refusal_of(frames(nested(more="x" * MOST_BYTES))) is Refusal.TOO_LARGE


def test_without_a_topic_any_is_taken_in_the_nested_shape_and_dynamos_in_the_flat_one() -> None:
    tool_event_of(frames(nested(), topic=b""))
    tool_event_of(frames(flat()))
    assert refusal_of(frames(flat(), topic=b"")) is Refusal.TOPIC


@BOTH
def test_a_topic_is_taken_whole_or_not(shape: Any) -> None:
    tool_event_of(frames(shape(), topic=b"mine"), "mine")
    for topic in (b"min", b"mine2", b"", b"\xff"):
        assert refusal_of(frames(shape(), topic=topic), "mine") is Refusal.TOPIC


def test_the_number_of_a_message_is_not_looked_at() -> None:
    for number in (b"", b"\xff" * 20):
        message = frames(nested())
        message[1] = number
        tool_event_of(message)
