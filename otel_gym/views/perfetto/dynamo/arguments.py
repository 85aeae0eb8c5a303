"""What stands beside a slice of Dynamo's: by the names that the attributes of a span of the same have."""

from __future__ import annotations

import msgspec
from msgspec import field

from otel_gym.records.dynamo import TOOL_STATUSES, ToolEvent, Worker
from otel_gym.records.dynamo_finish import finish_facts
from otel_gym.views.perfetto.dynamo.shown import Request

# The conventions ask for a name; Dynamo's own converter says the same.
UNKNOWN_TOOL = "unknown-tool"
_NO_WORKER = Worker()


class CallArgs(msgspec.Struct, gc=False, omit_defaults=True):
    """In the order of call_args."""

    model: str | None = field(default=None, name="gen_ai.request.model")
    input_tokens: int | None = field(default=None, name="gen_ai.usage.input_tokens")
    output_tokens: int | None = field(default=None, name="gen_ai.usage.output_tokens")
    cached_tokens: int | None = field(default=None, name="gen_ai.usage.cache_read.input_tokens")
    request_id: str | None = field(default=None, name="gym.dynamo.request_id")
    x_request_id: str | None = field(default=None, name="gym.dynamo.x_request_id")
    wait_ms: float | None = field(default=None, name="gym.dynamo.prefill_wait_time_ms")
    prefill_ms: float | None = field(default=None, name="gym.dynamo.prefill_time_ms")
    ttft_ms: float | None = field(default=None, name="gym.dynamo.ttft_ms")
    total_ms: float | None = field(default=None, name="gym.dynamo.total_time_ms")
    avg_itl_ms: float | None = field(default=None, name="gym.dynamo.avg_itl_ms")
    kv_hit_rate: float | None = field(default=None, name="gym.dynamo.kv_hit_rate")
    kv_transfer_ms: float | None = field(default=None, name="gym.dynamo.kv_transfer_estimated_latency_ms")
    queue_depth: int | None = field(default=None, name="gym.dynamo.queue_depth")
    # Above 2^53: as text.
    prefill_worker: str | None = field(default=None, name="gym.dynamo.prefill_worker_id")
    prefill_rank: int | None = field(default=None, name="gym.dynamo.prefill_dp_rank")
    decode_worker: str | None = field(default=None, name="gym.dynamo.decode_worker_id")
    decode_rank: int | None = field(default=None, name="gym.dynamo.decode_dp_rank")
    # As finish_facts has them.
    finish_reason: str | None = field(default=None, name="finish.finish_reason")
    backend_finish_reason: str | None = field(default=None, name="finish.backend_finish_reason")
    stop_reason: str | int | list[int] | None = field(default=None, name="finish.stop_reason")
    tool_call_count: int | None = field(default=None, name="finish.tool_call_count")
    tool_call_names: str | None = field(default=None, name="finish.tool_call_names")
    choice_count: int | None = field(default=None, name="finish.choice_count")
    choice_finish_reasons: str | None = field(default=None, name="finish.choice_finish_reasons")


class ToolArgs(msgspec.Struct, gc=False, omit_defaults=True):
    """In the order of tool_args."""

    tool_class: str | None = field(default=None, name="gen_ai.tool.name")
    call_id: str | None = field(default=None, name="gen_ai.tool.call.id")
    status: str | None = field(default=None, name="gym.dynamo.tool.status")
    error_type: str | None = field(default=None, name="error.type")
    duration_ms: float | None = field(default=None, name="gym.dynamo.tool.duration_ms")
    output_tokens: int | None = field(default=None, name="gym.dynamo.tool.output_tokens")
    output_bytes: int | None = field(default=None, name="gym.dynamo.tool.output_bytes")
    name_hash: str | None = field(default=None, name="gym.dynamo.tool.name_hash")
    status_told: str | None = field(default=None, name="status")
    time_known: bool | None = None


def call_args(request: Request) -> CallArgs:
    worker = request.worker or _NO_WORKER
    prefill_worker, decode_worker = worker.prefill_worker_id, worker.decode_worker_id
    made = CallArgs(
        request.model,
        request.input_tokens,
        request.output_tokens,
        request.cached_tokens,
        request.request_id,
        request.x_request_id,
        request.prefill_wait_time_ms,
        request.prefill_time_ms,
        request.ttft_ms,
        request.total_time_ms,
        request.avg_itl_ms,
        request.kv_hit_rate,
        request.kv_transfer_estimated_latency_ms,
        request.queue_depth,
        None if prefill_worker is None else str(prefill_worker),
        worker.prefill_dp_rank,
        None if decode_worker is None else str(decode_worker),
        worker.decode_dp_rank,
    )
    if request.finish_reason_metadata is not None:
        (
            made.finish_reason,
            made.backend_finish_reason,
            made.stop_reason,
            made.tool_call_count,
            made.tool_call_names,
            made.choice_count,
            made.choice_finish_reasons,
        ) = finish_facts(request.finish_reason_metadata)
    return made


def tool_error(tool: ToolEvent, event_type: str) -> str | None:
    """What went wrong; None of one that succeeded, was cancelled, or is open."""
    status = TOOL_STATUSES.get(tool.status or "")
    has_failed = status == "error" or (status != "cancelled" and event_type == "tool_error")
    return (tool.error_type or "_OTHER") if has_failed else None


def tool_args(tool: ToolEvent, error: str | None = None, *, is_time_known: bool = True) -> ToolArgs:
    return ToolArgs(
        tool.tool_class or UNKNOWN_TOOL,
        tool.tool_call_id,
        tool.status and TOOL_STATUSES.get(tool.status, tool.status),
        error,
        tool.duration_ms,
        tool.output_tokens,
        tool.output_bytes,
        tool.tool_name_hash,
        None if error is None else "error",
        None if is_time_known else False,
    )
