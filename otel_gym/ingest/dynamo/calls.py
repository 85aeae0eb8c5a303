"""A request that has ended, with its payload → a ``chat MODEL`` span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import msgspec

from otel_gym.content import fits_int64, known, safe_attributes, safe_json
from otel_gym.conventions import (
    DIALECT,
    DYNAMO_EXTRA,
    DYNAMO_PREFIX,
    FIRST_CONTENT_NS,
    REQUEST_BODY,
    REQUEST_HEADER,
    RESPONSE_BODY,
    is_kept_header,
)
from otel_gym.ingest.dynamo.reading import Row
from otel_gym.records.dynamo import FinishMetadata, RequestMetrics, RequestPayload
from otel_gym.records.dynamo_times import length_ns
from otel_gym.tracing.model_call import (
    OPERATION,
    REQUEST_MODEL,
    message_attributes,
    provider_of,
    request_attributes,
    response_attributes,
)
from otel_gym.wire.bodies import load_json_object
from otel_gym.wire.exchange import DialectName, Exchange, JsonObject, ParsedExchange
from otel_gym.wire.parts import content_of

# Parts of the names that Dynamo has for endpoints; of /v1/completions there is no dialect.
_DIALECTS: dict[str, DialectName] = {"chat": "chat", "response": "responses", "message": "messages"}
_MESSAGES = ("gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions")
# Which API was spoken is not said where no model is.
_PROVIDER = "dynamo"
# Fields that are attributes of the same name.
_PLAIN = tuple(
    name for name, field in RequestMetrics.__annotations__.items() if name.endswith(("_id", "_ms", "_rate", "_depth"))
)


def call_name(attributes: Mapping[str, Any]) -> str:
    model = attributes.get(REQUEST_MODEL)
    return f"{OPERATION} {model}" if model else OPERATION


def call_attributes(row: Row, payload: Row | None) -> dict[str, Any]:
    """Of a request, with what its payload adds; ``row`` may be the payload itself."""
    said = payload.record.payload if payload is not None else None
    attributes = {} if said is None else _payload_attributes(said)
    attributes |= known(_request_attributes(row.record.request or RequestMetrics()))
    if attributes.get("gen_ai.request.stream") is True:
        attributes[FIRST_CONTENT_NS] = length_ns(attributes.get(f"{DYNAMO_PREFIX}ttft_ms"))
    if REQUEST_MODEL not in attributes:
        attributes["gen_ai.provider.name"] = _PROVIDER
    return record_attributes(row, attributes | {"gen_ai.operation.name": OPERATION}, payload)


def record_attributes(row: Row, attributes: Mapping[str, Any], other: Row | None = None) -> dict[str, Any]:
    """``attributes`` with what every record says, and the fields of both records that are not known."""
    record, context = row.record, row.context
    extra = row.extra if other is None else other.extra | row.extra
    said = {
        "gen_ai.conversation.id": None if context is None else context.session_id or None,
        **({} if context is None else context.attributes()),
        f"{DYNAMO_PREFIX}schema": record.schema,
        f"{DYNAMO_PREFIX}event_source": record.event_source,
        f"{DYNAMO_PREFIX}event_time_unix_ms": record.event_time_unix_ms,
        DYNAMO_EXTRA: safe_json(extra) if extra else None,
    }
    found = known({**said, **attributes})
    made_later = {name: value for name, value in found.items() if callable(value)}
    return safe_attributes({name: value for name, value in found.items() if name not in made_later})[0] | made_later


def _request_attributes(request: RequestMetrics) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        REQUEST_MODEL: request.model or None,
        "gen_ai.provider.name": provider_of("chat"),
        "gen_ai.usage.input_tokens": _count(request.input_tokens),
        "gen_ai.usage.output_tokens": _count(request.output_tokens),
        "gen_ai.usage.cache_read.input_tokens": _count(request.cached_tokens),
        "gen_ai.response.finish_reasons": _finish_reasons(request.finish_reason_metadata),
        **{DYNAMO_PREFIX + name: getattr(request, name) for name in _PLAIN},
    }
    if request.worker is not None:
        for name, value in msgspec.structs.asdict(request.worker).items():  # beyond 2^53 doubles lose digits
            attributes[DYNAMO_PREFIX + name] = str(value) if name.endswith("_id") and value is not None else value
    if request.replay is not None:
        replay = f"{DYNAMO_PREFIX}replay."
        attributes[f"{replay}trace_block_size"] = request.replay.trace_block_size
        attributes[f"{replay}input_length"] = request.replay.input_length
        attributes[f"{replay}input_sequence_hashes"] = list(map(str, request.replay.input_sequence_hashes))
    if request.finish_reason_metadata is not None:
        text = msgspec.json.encode(request.finish_reason_metadata).decode()
        attributes[f"{DYNAMO_PREFIX}finish_reason_metadata"] = text
    return attributes


def _count(tokens: int | None) -> int | None:
    return tokens if tokens is not None and tokens >= 0 and fits_int64(tokens) else None


def _finish_reasons(said: FinishMetadata | None) -> list[str] | None:
    """One a choice, in the order of the choices; of a request that tells of no choice, its own."""
    if said is None:
        return None
    choices = sorted(said.choices, key=lambda choice: choice.choice_index or 0)
    reasons = [choice.finish_reason for choice in choices] or [said.finish_reason]
    return [reason for reason in reasons if reason] or None


# --- what a payload adds


def _payload_attributes(payload: RequestPayload) -> dict[str, Any]:
    """Its bodies, and what they say; the messages are made when they are written."""
    request, response = (object_of(raw) for raw in (payload.request, payload.response))
    dialect = _dialect(payload, request)
    attributes: dict[str, Any] = {
        f"{DYNAMO_PREFIX}request_id": payload.request_id,
        f"{DYNAMO_PREFIX}endpoint": payload.endpoint,
        f"{DYNAMO_PREFIX}payload_complete": payload.payload_complete,
        f"{DYNAMO_PREFIX}payload_drop_reason": payload.payload_drop_reason,
        REQUEST_MODEL: payload.model or None,
        REQUEST_BODY: text_of(payload.request),
        RESPONSE_BODY: text_of(payload.response),
        **_kept_headers(payload),
    }
    if dialect is None:
        return known(attributes)
    parsed = ParsedExchange(request=request, response=response)
    attributes |= {
        DIALECT: dialect,
        "gen_ai.provider.name": provider_of(dialect),
        **{name: partial(_message, _Bodies(dialect, payload), name) for name in _MESSAGES},
    }
    said = request_attributes(dialect, request) | response_attributes(Exchange(dialect, "", 0), parsed)
    return known(attributes | said)


def _dialect(payload: RequestPayload, request: JsonObject | None) -> DialectName | None:
    """An audit names no endpoint: it has chat alone."""
    if payload.endpoint is None:
        return "chat" if request and "messages" in request else None
    return next((dialect for part, dialect in _DIALECTS.items() if part in payload.endpoint), None)


def object_of(raw: msgspec.Raw) -> JsonObject | None:
    return load_json_object(text_of(raw) or "")


def text_of(raw: msgspec.Raw) -> str | None:
    content = bytes(raw)
    return None if content in (b"", b"null") else content.decode("utf-8", "replace")


@dataclass(frozen=True, eq=False)
class _Bodies:
    dialect: DialectName
    payload: RequestPayload


def _message(bodies: _Bodies, name: str) -> str | None:
    return _messages(bodies).get(name)


@lru_cache(maxsize=1)
def _messages(bodies: _Bodies) -> dict[str, str]:
    request, response = object_of(bodies.payload.request), object_of(bodies.payload.response)
    return message_attributes(content_of(bodies.dialect, request, response))


def _kept_headers(payload: RequestPayload) -> dict[str, list[str]]:
    """Those that capture keeps: no credentials."""
    headers = {name.lower(): value for name, value in (payload.http_request_headers or {}).items()}
    return {
        REQUEST_HEADER + name: [value] if isinstance(value, str) else [one for one in value if isinstance(one, str)]
        for name, value in headers.items()
        if is_kept_header(name.encode()) and isinstance(value, str | list)
    }
