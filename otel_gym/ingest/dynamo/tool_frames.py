"""A message of ZeroMQ → the record of a tool event, by the rules by which Dynamo takes one or drops it.

Three frames: topic, number of the message (big-endian, which nobody checks), and a map in msgpack in one of two shapes:
nested, as a record of ``dynamo.agent.trace.v1`` stands in its file, or flat (Dynamo 1.3 and newer).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from otel_gym.agent_identity import LEGACY_NAMES
from otel_gym.dynamo_settings import DEFAULT_TOPIC
from otel_gym.records.dynamo import AGENT_TRACE, REQUEST_TRACE, SCHEMAS, TOOL_STATUSES, DynamoRecord, ToolEvent

_FRAMES = 3
# A record has some hundred bytes.
MOST_BYTES = 1024 * 1024

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Event = Literal["tool_start", "tool_end", "tool_error"]
_REQUIRED_IDS = ("session_type_id", "session_id", "trajectory_id")


class Refusal(StrEnum):
    """Why a message gives no tool event."""

    FRAMES = "wrong frames"
    TOO_LARGE = "too large"
    TOPIC = "wrong topic"
    MSGPACK = "bad msgpack"
    SCHEMA = "unknown schema"
    RECORD = "invalid record"
    DUPLICATE = "duplicate"


class RefusedError(ValueError):
    """The message is not taken; the text says what is wrong with it."""

    def __init__(self, reason: Refusal, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class _Tool(msgspec.Struct):
    tool_call_id: str
    tool_class: str
    started_at_unix_ms: _Count | None = None
    ended_at_unix_ms: _Count | None = None
    status: (
        Literal["running", "succeeded", "ok", "success", "error", "failed", "cancelled", "canceled", "timeout"] | None
    ) = None
    duration_ms: float | None = None
    output_tokens: _Count | None = None
    output_bytes: _Count | None = None
    tool_name_hash: str | None = None
    error_type: str | None = None


class _Nested(msgspec.Struct):
    """``request`` of any form is one too many."""

    event_type: _Event
    event_time_unix_ms: _Count
    event_source: Literal["harness", "ms_agent"]
    agent_context: dict[str, Any]
    tool: _Tool
    request: Any = None


class _Flat(msgspec.Struct):
    event_type: _Event
    event_time_unix_ms: _Count
    session_id: str
    tool: _Tool
    parent_session_id: str | None = None


class _Head(msgspec.Struct):
    schema: Any = None


_head = msgspec.msgpack.Decoder(_Head)
_nested = msgspec.msgpack.Decoder(_Nested)
_flat = msgspec.msgpack.Decoder(_Flat)


def tool_event_of(frames: Sequence[bytes], topic: str | None = None) -> DynamoRecord:
    """The record, its status as Dynamo spells it. RefusedError.

    ``topic``: the only one that is taken. None: in the nested shape any, in the flat one Dynamo's default.
    """
    if len(frames) != _FRAMES:
        raise RefusedError(Refusal.FRAMES, f"{len(frames)} frames, 3 are asked for: topic, number, record")
    if topic is not None:
        _check_topic(frames[0], topic)
    content = frames[2]
    if len(content) > MOST_BYTES:
        raise RefusedError(Refusal.TOO_LARGE, f"{len(content):,} bytes, {MOST_BYTES:,} at most are taken")
    schema = _schema_of(content)
    if topic is None and schema == REQUEST_TRACE:
        _check_topic(frames[0], DEFAULT_TOPIC)
    try:
        return _of_nested(content) if schema == AGENT_TRACE else _of_flat(content)
    except msgspec.ValidationError as problem:
        raise RefusedError(Refusal.RECORD, str(problem)) from None


def _check_topic(said: bytes, topic: str) -> None:
    if said != topic.encode():
        raise RefusedError(Refusal.TOPIC, f"topic {said[:80].decode('utf-8', 'replace')!r}, {topic!r} is taken")


def _schema_of(content: bytes) -> str:
    try:
        schema = _head.decode(content).schema
    except msgspec.ValidationError:
        raise RefusedError(Refusal.MSGPACK, "msgpack of a map is asked for") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise RefusedError(Refusal.MSGPACK, str(problem)) from None
    if schema not in SCHEMAS:
        said = "is missing" if schema is None else f"{str(schema)[:80]!r} is not known"
        raise RefusedError(Refusal.SCHEMA, f"schema {said} (known: {', '.join(SCHEMAS)})")
    return str(schema)


def _of_nested(content: bytes) -> DynamoRecord:
    said = _nested.decode(content)
    if said.request is not None:
        raise msgspec.ValidationError("it holds a request, as no tool event does")
    return DynamoRecord(
        AGENT_TRACE,
        said.event_type,
        event_time_unix_ms=said.event_time_unix_ms,
        event_source="harness",
        agent_context=_context_of(said.agent_context),
        tool=_tool_event(said.tool),
    )


def _context_of(said: dict[str, Any]) -> dict[str, Any]:
    """In the names since 2026-05; what else stands there is dropped, as Dynamo drops it."""
    named = {**{LEGACY_NAMES.get(name, name): value for name, value in said.items() if name in LEGACY_NAMES}, **said}
    for name in _REQUIRED_IDS:
        if not isinstance(named.get(name), str):
            raise msgspec.ValidationError(f"agent_context has no {name}")
    context = {name: named[name] for name in _REQUIRED_IDS}
    for name, kind in (("parent_trajectory_id", str), ("trajectory_final", bool)):
        value = named.get(name)
        if value is None:
            continue
        if not isinstance(value, kind):
            raise msgspec.ValidationError(f"agent_context: {name} is no {kind.__name__}")
        context[name] = value
    return context


def _of_flat(content: bytes) -> DynamoRecord:
    said = _flat.decode(content)
    duration = said.tool.duration_ms
    if duration is not None and not math.isfinite(duration):
        raise msgspec.ValidationError("duration_ms is not finite")
    context = {"session_id": said.session_id}
    if said.parent_session_id is not None:
        context["parent_session_id"] = said.parent_session_id
    return DynamoRecord(
        REQUEST_TRACE,
        said.event_type,
        event_time_unix_ms=said.event_time_unix_ms,
        event_source="harness",
        agent_context=context,
        tool=_tool_event(said.tool),
    )


def _tool_event(said: _Tool) -> ToolEvent:
    duration = said.duration_ms
    return ToolEvent(
        said.tool_call_id,
        said.tool_class,
        said.started_at_unix_ms,
        said.ended_at_unix_ms,
        None if said.status is None else TOOL_STATUSES[said.status],
        None if duration is None or not math.isfinite(duration) else duration,
        said.output_tokens,
        said.output_bytes,
        said.tool_name_hash,
        said.error_type,
    )
