"""Spans → ModelCallRecords.

A span of our capture holds its exchange whole, and the record is the one that the live exchange gives.
A ``chat`` span of another instrumentation gives the same record from its attributes; what it did not
record is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import KeptBody, body_of_text
from otel_gym.records.model_call import ModelCallRecord, build_model_call_record
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.wire.dialects import DIALECTS
from otel_gym.wire.exchange import Exchange, Execution, Raised

_NO_BODY = KeptBody(b"")

# Spellings of earlier conventions, newest first.
_RENAMED: dict[str, tuple[str, ...]] = {
    "tokens_in": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "tokens_out": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "tokens_reasoning": ("gen_ai.usage.reasoning.output_tokens",),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens",),
    "cache_creation_tokens": ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
}


_SAID_AT_START = {"model_call_id": names.MODEL_CALL_ID, "dialect": names.DIALECT}


@dataclass(slots=True)
class StoredModelCall:
    """A record and the span that it was made from."""

    span: StoredSpan
    record: ModelCallRecord


def model_call_records(rollout: RolloutSpans) -> list[ModelCallRecord]:
    """The records of a rollout in the order in which their calls began; ``call_index`` counts from 0."""
    return [call.record for call in model_calls(rollout)]


def model_calls(rollout: RolloutSpans) -> Iterator[StoredModelCall]:
    """A client's own span around a captured call is no second call (R033)."""
    calls = [span for span in without_client_layer(rollout).spans if is_model_call(span)]
    for index, span in enumerate(calls):
        yield StoredModelCall(span, record_of(span, index))


def record_of(span: StoredSpan, call_index: int) -> ModelCallRecord:
    """The record of one model-call span, ours or another's. A call that never ended has what its start told."""
    if names.MODEL_CALL_ID not in span.attributes:
        return _record_of_attributes(span, call_index)
    if span.end_ns is None:
        said = {name: span.attributes.get(key) for name, key in _SAID_AT_START.items()}
        return _record_of_attributes(span, call_index).model_copy(update=_known(said))
    record = build_model_call_record(exchange_of(span), call_index)
    if names.REQUEST_BODY in span.attributes or names.RESPONSE_BODY in span.attributes:
        return record
    return record.model_copy(update=_known(fields_of_attributes(span)))


def exchange_of(span: StoredSpan) -> Exchange:
    """The exchange that our capture put on a span."""
    attributes = span.attributes
    dialect = attributes.get(names.DIALECT)
    request, response = _body(attributes, names.REQUEST_BODY), _body(attributes, names.RESPONSE_BODY)
    first_chunk_ns = attributes.get(names.FIRST_CHUNK_NS)
    return Exchange(
        dialect=dialect if dialect in DIALECTS else "chat",
        model_call_id=attributes[names.MODEL_CALL_ID],
        started_unix_nano=span.start_ns,
        model_ref=_model_ref(attributes),
        request_headers=_headers(attributes, names.REQUEST_HEADER),
        request_body=request.content,
        request_content_encoding=request.coding,
        status_code=attributes.get("http.response.status_code"),
        response_headers=_headers(attributes, names.RESPONSE_HEADER),
        response_content_type=attributes.get(names.RESPONSE_CONTENT_TYPE),
        response_content_encoding=response.coding,
        chunks=[(first_chunk_ns or 0, response.content)] if response.content else [],
        last_byte_ns=attributes.get(names.LAST_BYTE_NS),
        returned_ns=attributes.get(names.RETURNED_NS, (span.end_ns or span.start_ns) - span.start_ns),
        first_content_ns=attributes.get(names.FIRST_CONTENT_NS),
        raised=_raised(attributes),
        execution=_execution(attributes),
        live=False,
    )


def _body(attributes: Mapping[str, Any], name: str) -> KeptBody:
    text = attributes.get(name)
    if not isinstance(text, str):
        return _NO_BODY
    try:
        return body_of_text(text, attributes.get(name + names.BODY_ENCODING))
    except ValueError:
        return _NO_BODY


def _model_ref(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    name = attributes.get(names.MODEL_REF_NAME)
    return None if name is None else {"type": attributes.get(names.MODEL_REF_TYPE), "name": name}


def _headers(attributes: Mapping[str, Any], prefix: str) -> dict[str, list[str]]:
    return {name[len(prefix) :]: list(values) for name, values in attributes.items() if name.startswith(prefix)}


def _raised(attributes: Mapping[str, Any]) -> Raised | None:
    if names.EXCEPTION_TYPE not in attributes:
        return None
    body = attributes.get(names.EXCEPTION_BODY)
    return Raised(
        attributes[names.EXCEPTION_TYPE],
        attributes.get(names.EXCEPTION_CATEGORY, "exception"),
        attributes.get(names.EXCEPTION_STATUS_CODE),
        None if body is None else body.encode(),
    )


def _execution(attributes: Mapping[str, Any]) -> Execution | None:
    said = {field.name: attributes.get(f"gym.execution.{field.name}") for field in fields(Execution)}
    return Execution(**said) if any(value is not None for value in said.values()) else None


def _record_of_attributes(span: StoredSpan, call_index: int) -> ModelCallRecord:
    end_ns = span.end_ns
    times = {
        "started_at": span.start_ns / 10**9,
        "completed_at": None if end_ns is None else end_ns / 10**9,
        "latency_total_ms": None if end_ns is None else round((end_ns - span.start_ns) / 10**6, 2),
    }
    return ModelCallRecord.model_validate({"call_index": call_index, **times, **fields_of_attributes(span)})


def fields_of_attributes(span: StoredSpan) -> dict[str, Any]:
    """What the conventions' attributes say, in the record's fields."""
    attributes = span.attributes
    tokens = {name: _first(attributes, spellings) for name, spellings in _RENAMED.items()}
    tokens_in, tokens_out, cached = tokens["tokens_in"], tokens["tokens_out"], tokens["cached_tokens"]
    reasons = attributes.get("gen_ai.response.finish_reasons")
    return {
        **tokens,
        "tokens_total": None if tokens_in is None or tokens_out is None else tokens_in + tokens_out,
        "cache_hit": None if cached is None else cached > 0,
        "response_id": attributes.get("gen_ai.response.id"),
        "model": attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model"),
        "finish_reason": reasons[0] if isinstance(reasons, list) and reasons else None,
        "error_category": attributes.get(names.ERROR_CATEGORY) or _error_category(span),
    }


def _error_category(span: StoredSpan) -> str | None:
    return "exception" if span.status == STATUS_ERROR else None


def _first(attributes: Mapping[str, Any], spellings: tuple[str, ...]) -> int | None:
    return next((attributes[name] for name in spellings if type(attributes.get(name)) is int), None)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
