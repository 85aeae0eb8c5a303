"""ModelCallRecord: what one exchange with a model server was, in the fields that NeMo Gym's readers know.

Built from an ``Exchange`` (bytes and exact nanoseconds) or from a line of a NeMo Gym capture file. None means
unknown, never 0. Where the values differ from NeMo Gym 0.7.0's: docs/nemo-gym-parity.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from otel_gym.records.tool_requests import ToolRequestEvidence, tool_request_evidence
from otel_gym.records.well_formed import well_formed
from otel_gym.wire.exchange import Exchange
from otel_gym.wire.parse import parse_exchange
from otel_gym.wire.reasoning import reasoning_content
from otel_gym.wire.tool_calls import RequestedToolCall, tool_calls
from otel_gym.wire.usage import sum_of_known, token_stats

__all__ = [
    "ModelCallRecord",
    "ModelRef",
    "ToolCall",
    "ToolRequestEvidence",
    "aggregate_model_call_records",
    "build_model_call_record",
    "extract_token_stats",
    "tool_request_evidence",
]

CLIENT_SESSION_HEADER = "x-session-id"
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
SUMMED_FIELDS = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


class ModelRef(BaseModel):
    """The model server of a NeMo Gym configuration that took the call."""

    type: Literal["responses_api_models"]
    name: str


class ToolCall(BaseModel):
    """A tool call that the model asked for; ``call_id`` and ``name`` are no text where a server broke its schema."""

    call_id: Any = None
    name: Any = None
    arguments: dict[str, Any] = Field(default_factory=dict)


def _unknown(description: str) -> Any:
    """A field that is None unless something says it."""
    return Field(default=None, description=description)


class ModelCallRecord(BaseModel):
    """One attempt at a model call. Retries of one logical call are records of their own (``records.retries``)."""

    model_config = ConfigDict(protected_namespaces=())

    model_call_id: str | None = _unknown("Id of the exchange; its span has the same as gym.model_call.id.")
    response_id: str | None = _unknown("The provider's id of the answer.")
    client_session_id: str | None = _unknown(
        "x-session-id, if the client sent exactly one value; a claim, not a proof."
    )
    client_assistant_message_id: str | None = _unknown("NeMo Gym's own; null of what was captured by otel_gym.")
    call_index: int = Field(description="Place in the rollout's store; no order in time for concurrent calls.")
    model_ref: ModelRef | None = _unknown("The model server's name in a NeMo Gym configuration.")
    model: str | None = _unknown("The model that answered, else the one that was asked for.")
    dialect: str | None = _unknown("responses, chat or messages.")
    status_code: int | None = _unknown("HTTP status that the client got.")
    response_status: str | None = _unknown("The answer's own status, as completed or incomplete (Responses).")
    finish_reason: str | None = _unknown(
        "Why it ended, in the provider's word; of the first choice, if there are several."
    )
    upstream_attempted: bool | None = _unknown("What a model server says of itself: it asked the server behind it.")
    upstream_status_code: int | None = _unknown("The same: what that server answered.")
    response_source: Literal["upstream", "local"] | None = _unknown("The same: who made the answer.")
    local_response_reason: str | None = _unknown("The same: why it made the answer itself.")
    started_at: float | None = _unknown("UTC epoch seconds: the application was called.")
    completed_at: float | None = _unknown("UTC epoch seconds: it returned or raised.")
    latency_total_ms: float | None = _unknown(
        "Call to final body message; without one, to the exception. Monotonic clock."
    )
    latency_ttft_ms: float | None = _unknown(
        "Call to first content event of a stream, to the first byte of a plain body."
    )
    tokens_in: int | None = _unknown("The whole prompt, cached tokens counted once.")
    tokens_out: int | None = _unknown("The whole answer, reasoning included.")
    tokens_reasoning: int | None = _unknown("Part of tokens_out.")
    tokens_total: int | None = _unknown("As the provider says, else tokens_in + tokens_out.")
    cached_tokens: int | None = _unknown("Part of tokens_in that was read from a cache.")
    cache_creation_tokens: int | None = _unknown("Part of tokens_in written to a cache.")
    cache_hit: bool | None = _unknown("Whether cached_tokens is above 0.")
    tool_calls: list[ToolCall] | None = _unknown(
        "What the model asked for: call_id, name and arguments (an object) each; null where what it said was not kept."
    )
    reasoning_content: str | None = _unknown("The model's reasoning, where it is readable text.")
    error_category: str | None = _unknown(
        "Why the call was no success: rate_limit, timeout, cancelled, stream_truncated …; null if it was one."
    )
    failure_report: Any = _unknown("NeMo Gym's own; null of what was captured by otel_gym.")
    model_operations: Any = _unknown("NeMo Gym's own; null of what was captured by otel_gym.")
    request: dict[str, Any] | None = _unknown("The request's body.")
    request_raw: str | None = _unknown("Its text, where it is no JSON object.")
    response: dict[str, Any] | None = _unknown("The answer's body; of a stream put together from its events.")
    response_raw: str | None = _unknown("The text of a stream, or of an answer that is no JSON object.")

    def to_json(self) -> str:
        """The record as one line of strict JSON.

        Unlike ``model_dump_json`` it also takes bodies that are nested deeper than pydantic's writer goes (255).
        """
        try:
            return self.model_dump_json()
        except PydanticSerializationError:
            return json.dumps(self.model_dump(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def build_model_call_record(exchange: Exchange | Mapping[str, Any], call_index: int) -> ModelCallRecord:
    """The record of one exchange, live or read back, or of one line of a NeMo Gym capture file.

    What a response says (model, tokens, tools, reasoning …) is read from it by the same rules in both cases.
    Raises pydantic's ValidationError if a capture line holds a value of the wrong type.
    """
    transport = _transport_of(exchange) if isinstance(exchange, Exchange) else _transport_of_line(exchange)
    answer = _answer_fields(_object(transport["request"]), _object(transport["response"]))
    return ModelCallRecord.model_validate({**transport, **answer, "call_index": call_index})


def extract_token_stats(usage: Any) -> dict[str, int | None]:
    """Token counts of a usage object under the record's names; rules in ``otel_gym.wire.usage``."""
    return token_stats(usage)._asdict()


def aggregate_model_call_records(calls: Iterable[ModelCallRecord]) -> dict[str, float | None]:
    """Sums over calls; a sum leaves out what is null and is null if all are. ``num_calls`` counts every attempt."""
    records = list(calls)
    totals: dict[str, float | None] = {
        name: sum_of_known(getattr(record, name) for record in records) for name in SUMMED_FIELDS
    }
    totals["num_calls"] = len(records)
    return totals


def _transport_of(exchange: Exchange) -> dict[str, Any]:
    parsed = parse_exchange(exchange)
    total_ns = exchange.returned_ns if exchange.last_byte_ns is None else exchange.last_byte_ns
    fields = {
        "model_call_id": exchange.model_call_id,
        "client_session_id": _only_value(exchange.request_headers.get(CLIENT_SESSION_HEADER, [])),
        "model_ref": exchange.model_ref,
        "dialect": exchange.dialect,
        "status_code": _status_code(exchange),
        "started_at": exchange.started_unix_nano / 10**9,
        "completed_at": (exchange.started_unix_nano + exchange.returned_ns) / 10**9,
        "latency_total_ms": _milliseconds(total_ns),
        "latency_ttft_ms": _milliseconds(parsed.first_content_ns),
        "error_category": parsed.error_category,
        "request": well_formed(parsed.request),
        "request_raw": parsed.request_raw,
        "response": well_formed(parsed.response),
        "response_raw": parsed.response_raw,
    }
    return {**fields, **_execution_fields(exchange)}


def _execution_fields(exchange: Exchange) -> dict[str, Any]:
    execution = exchange.execution
    if execution is None:
        return {}
    fields = asdict(execution)
    if execution.local_response_reason == CONTEXT_LENGTH_EXCEEDED:
        fields["error_category"] = CONTEXT_LENGTH_EXCEEDED
    return fields


def _status_code(exchange: Exchange) -> int | None:
    if exchange.status_code is not None or exchange.raised is None:
        return exchange.status_code
    return exchange.raised.status_code


def _transport_of_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a capture line that a record takes over; texts and objects of another type are unknown."""
    fields = {name: line.get(name) for name in LINE_FIELDS}
    fields["latency_total_ms"] = line.get("latency_ms")
    fields |= {name: _text(line.get(name)) for name in LINE_TEXTS}
    return fields | {name: well_formed(_object(line.get(name))) for name in ("request", "response")}


LINE_FIELDS = (
    "model_call_id",
    "model_ref",
    "dialect",
    "status_code",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "error_category",
    "latency_ttft_ms",
    "failure_report",
    "model_operations",
)
LINE_TEXTS = ("client_session_id", "client_assistant_message_id", "request_raw", "response_raw")


def _answer_fields(request: dict[str, Any] | None, response: dict[str, Any] | None) -> dict[str, Any]:
    answer = response or {}
    tokens = token_stats(answer.get("usage"))
    return {
        **tokens._asdict(),
        "cache_hit": tokens.cache_hit,
        "response_id": _text(answer.get("id")),
        "response_status": _text(answer.get("status")),
        "model": _text(answer.get("model") or (request or {}).get("model")),
        "finish_reason": _finish_reason(answer),
        "tool_calls": [tool_call_fields(call) for call in tool_calls(answer)],
        "reasoning_content": reasoning_content(answer),
    }


def tool_call_fields(call: RequestedToolCall) -> dict[str, Any]:
    """The fields of a record's tool call."""
    # Not asdict: it would copy the arguments all the way down, and recurse as deep as a hostile server nests them.
    return {"call_id": call.call_id, "name": call.name, "arguments": well_formed(call.arguments)}


def _finish_reason(answer: dict[str, Any]) -> str | None:
    choices = answer.get("choices")
    first_choice = _object(choices[0]) if isinstance(choices, list) and choices else None
    incomplete_details = _object(answer.get("incomplete_details"))
    candidates = (
        answer.get("stop_reason"),
        (first_choice or {}).get("finish_reason"),
        (incomplete_details or {}).get("reason"),
    )
    return next((candidate for candidate in candidates if isinstance(candidate, str)), None)


def _only_value(values: Iterable[str]) -> str | None:
    distinct = {value for value in values if value}
    return distinct.pop() if len(distinct) == 1 else None


def _milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 10**6, 2)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
