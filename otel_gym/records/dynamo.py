"""Dynamo's trace records: ``dynamo.agent.trace.v1`` and ``dynamo.request.trace.v1``.

A line of a trace file is a record, or ``{"timestamp": MS, "event": RECORD}``, where the timestamp counts from the start
of the sink. Keys stand in the order in which Dynamo writes them; what is None is not written. Times are UNIX ms.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from otel_gym.agent_identity import AgentContext, agent_context_from
from otel_gym.dynamo_settings import AGENT_TRACE as AGENT_TRACE
from otel_gym.dynamo_settings import REQUEST_TRACE as REQUEST_TRACE

SCHEMAS = (AGENT_TRACE, REQUEST_TRACE)

TOOL_EVENTS = ("tool_start", "tool_end", "tool_error")
EVENT_TYPES = ("request_end", *TOOL_EVENTS, "request_payload")

# What harnesses write → what Dynamo writes.
TOOL_STATUSES = {
    "running": "running",
    "succeeded": "succeeded",
    "ok": "succeeded",
    "success": "succeeded",
    "error": "error",
    "failed": "error",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "timeout": "cancelled",
}


class DynamoRecordError(ValueError):
    """A line that gives no record; the text says why, without the place."""


class Worker(msgspec.Struct, omit_defaults=True):
    """Ids are random 64-bit numbers: above 2^53, so JSON readers that use doubles lose digits."""

    prefill_worker_id: int | None = None
    prefill_dp_rank: int | None = None
    decode_worker_id: int | None = None
    decode_dp_rank: int | None = None


class Replay(msgspec.Struct):
    """``input_sequence_hashes``: one an input block, the last, partial one too; unsigned 64-bit."""

    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class RequestedTool(msgspec.Struct, omit_defaults=True):
    choice_index: int | None = None
    tool_call_index: int | None = None
    id: str | None = None
    name: str | None = None


class Choice(msgspec.Struct, omit_defaults=True):
    choice_index: int | None = None
    finish_reason: str | None = None
    backend_finish_reason: str | None = None
    stop_reason: str | int | list[int] | None = None


class FinishMetadata(msgspec.Struct, omit_defaults=True):
    finish_reason: str | None = None
    backend_finish_reason: str | None = None
    stop_reason: str | int | list[int] | None = None
    tool_calls: list[RequestedTool] = []
    choices: list[Choice] = []


class RequestMetrics(msgspec.Struct, omit_defaults=True):
    """``*_ms`` but ``request_received_ms`` are durations; ``total_time_ms`` from received to finished."""

    request_id: str | None = None
    x_request_id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    request_received_ms: int | None = None
    prefill_wait_time_ms: float | None = None
    prefill_time_ms: float | None = None
    ttft_ms: float | None = None
    total_time_ms: float | None = None
    avg_itl_ms: float | None = None
    kv_hit_rate: float | None = None
    kv_transfer_estimated_latency_ms: float | None = None
    queue_depth: int | None = None
    worker: Worker | None = None
    replay: Replay | None = None
    finish_reason_metadata: FinishMetadata | None = None


class ToolEvent(msgspec.Struct, omit_defaults=True):
    """``status`` as it came: see TOOL_STATUSES."""

    tool_call_id: str | None = None
    tool_class: str | None = None
    started_at_unix_ms: int | None = None
    ended_at_unix_ms: int | None = None
    status: str | None = None
    duration_ms: float | None = None
    output_tokens: int | None = None
    output_bytes: int | None = None
    tool_name_hash: str | None = None
    error_type: str | None = None


class RequestPayload(msgspec.Struct, omit_defaults=True):
    """``request``, ``response``: the bodies as the JSON text that came; empty where none did."""

    request_id: str | None = None
    endpoint: str | None = None
    model: str | None = None
    request: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    http_request_headers: dict[str, Any] | None = None
    payload_complete: bool | None = None
    payload_drop_reason: str | None = None


class DynamoRecord(msgspec.Struct, omit_defaults=True):
    """``agent_context`` in whichever spelling it came; ``context`` is the same in one."""

    schema: Literal["dynamo.agent.trace.v1", "dynamo.request.trace.v1"]
    event_type: Literal["request_end", "tool_start", "tool_end", "tool_error", "request_payload"]
    event_time_unix_ms: int | None = None
    event_source: str | None = None
    agent_context: dict[str, Any] | None = None
    request: RequestMetrics | None = None
    tool: ToolEvent | None = None
    payload: RequestPayload | None = None

    @property
    def context(self) -> AgentContext | None:
        return None if self.agent_context is None else agent_context_from(self.agent_context)


class AuditRecord(msgspec.Struct):
    """A line of Dynamo's audit files (``DYN_AUDIT_*``, up to 1.3): the bodies of one request."""

    schema_version: Literal[1]
    request_id: str
    requested_streaming: bool | None = None
    model: str | None = None
    request: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


class _Envelope(msgspec.Struct):
    event: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope)
_record = msgspec.json.Decoder(DynamoRecord)
_audit = msgspec.json.Decoder(AuditRecord)


def decode_record(line: bytes) -> DynamoRecord:
    """The record of a line, with envelope or without. DynamoRecordError.

    A record with one value of a wrong type is kept without that value: what Dynamo itself would refuse is still the
    only trace of a request. A schema or event type that is not known is refused by its name.
    """
    try:
        text = _without_envelope(line)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise DynamoRecordError(f"no JSON: {problem}") from None
    try:
        return _record.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return _record_of_odd(text)


def decode_audit(line: bytes) -> AuditRecord | None:
    """The record of a line of an audit file, with envelope or without; None for any other line."""
    try:
        return _audit.decode(_without_envelope(line))
    except (msgspec.MsgspecError, RecursionError):
        return None


def event_of(line: bytes) -> dict[str, Any] | None:
    """The record of a line as a JSON object, whatever it says; None for what is none."""
    try:
        event = msgspec.json.decode(_without_envelope(line))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _without_envelope(line: bytes) -> bytes:
    try:
        return bytes(_envelope.decode(line).event)
    except msgspec.ValidationError:
        return line


def _record_of_odd(text: bytes) -> DynamoRecord:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise DynamoRecordError(f"no JSON: {problem}") from None
    if not isinstance(said, dict):
        raise DynamoRecordError("no JSON object")
    if said.get("schema") not in SCHEMAS:
        raise DynamoRecordError(f"schema {said.get('schema')!r} is not known (known: {', '.join(SCHEMAS)})")
    if said.get("event_type") not in EVENT_TYPES:
        raise DynamoRecordError(f"event_type {said.get('event_type')!r} is not known")
    return msgspec.convert(_without_odd(said, DynamoRecord), DynamoRecord)


def _without_odd(said: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Without the values that ``struct`` does not take; of an object that it does not take, what it takes of it."""
    kept = {}
    for field in msgspec.structs.fields(struct):
        value = said.get(field.encode_name)
        if value is None:
            continue
        if field.type is msgspec.Raw:
            value = msgspec.Raw(msgspec.json.encode(value))
        inner = next((one for one in getattr(field.type, "__args__", ()) if _is_struct(one)), None)
        if inner is not None and isinstance(value, dict):
            value = _without_odd(value, inner)
        elif inner is not None and isinstance(value, list):  # each keeps its place
            value = [_without_odd(item, inner) if isinstance(item, dict) else {} for item in value]
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            continue
        kept[field.encode_name] = value
    return kept


def _is_struct(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, msgspec.Struct)
