"""Of a record of Dynamo's what a trace shows: decoded in one go, without what nobody sees, as its replay hashes."""

from __future__ import annotations

from typing import Literal

import msgspec

from otel_gym.records.dynamo import DynamoRecord, FinishMetadata, ToolEvent, Worker, decode_record


class Context(msgspec.Struct, gc=False):
    """Every spelling: see agent_context."""

    session_id: str | None = None
    trajectory_id: str | None = None
    parent_trajectory_id: str | None = None
    parent_session_id: str | None = None
    workflow_id: str | None = None
    program_id: str | None = None
    parent_program_id: str | None = None


class Request(msgspec.Struct, gc=False):
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
    finish_reason_metadata: FinishMetadata | None = None


class Record(msgspec.Struct, gc=False):
    """``digest_of_line``: of all that the line says but when it was written; copies are told by it."""

    schema: Literal["dynamo.agent.trace.v1", "dynamo.request.trace.v1"]
    event_type: Literal["request_end", "tool_start", "tool_end", "tool_error", "request_payload"]
    event_time_unix_ms: int | None = None
    agent_context: Context | None = None
    request: Request | None = None
    tool: ToolEvent | None = None
    digest_of_line: int = 0


class _Line(msgspec.Struct, gc=False):
    event: Record


_EVENT = b'"event"'
_decoder = msgspec.json.Decoder(_Line)


def decode_shown(line: bytes) -> Record:
    """DynamoRecordError, as decode_record has it."""
    try:
        record = _decoder.decode(line).event
    except msgspec.MsgspecError:
        record = _shown(decode_record(line))
    record.digest_of_line = hash(line[max(line.find(_EVENT), 0) :])
    return record


def _shown(record: DynamoRecord) -> Record:
    """Of a line without envelope, or with a value of a wrong type."""
    context = record.context
    return Record(
        record.schema,
        record.event_type,
        record.event_time_unix_ms,
        None if context is None else msgspec.convert(context, Context, from_attributes=True),
        None if record.request is None else msgspec.convert(record.request, Request, from_attributes=True),
        record.tool,
    )
