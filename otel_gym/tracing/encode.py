"""A finished SDK span, with its payload, as one line of OTLP/JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_gym.content import KeptBody, body_text, safe_text
from otel_gym.conventions import (
    BODY_BYTES,
    BODY_ENCODING,
    BODY_SHA256,
    REQUEST_BODY,
    RESPONSE_BODY,
    SCHEMA_URL,
    STORE_VERSION,
)
from otel_gym.settings import Settings
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.tracing.payloads import Payload

_IS_REMOTE_KNOWN = 0x100
_IS_REMOTE = 0x200


def content_of(settings: Settings, directory: Path) -> ContentOnce | None:
    """What keeps content once in a writer's files; None where it is off."""
    return ContentOnce(BlobStore(directory)) if settings.content_once else None


def encode_span(span: ReadableSpan, payload: Payload | None, rollout_id: str, content: ContentOnce | None) -> bytes:
    """One TracesData with one span, without a newline; ``content`` gives its bodies their stored form."""
    bodies = _payload_attributes(payload)
    if content is not None and bodies:
        bodies = content.stored(bodies, rollout_id, format(span.context.span_id, "016x"))
    head, tail = _envelope(span.resource, span.instrumentation_scope)
    try:
        return head + encode_json(_span(span, bodies)) + tail
    except Exception:
        if content is not None:
            content.failed(rollout_id)  # there is no line that a later one could build on
        raise


def _span(span: ReadableSpan, bodies: dict[str, Any]) -> dict[str, Any]:
    context, parent = span.context, span.parent
    flags = int(context.trace_flags) | _IS_REMOTE_KNOWN
    encoded: dict[str, Any] = {"traceId": format(context.trace_id, "032x"), "spanId": format(context.span_id, "016x")}
    if context.trace_state:
        encoded["traceState"] = context.trace_state.to_header()
    if parent is not None:
        encoded["parentSpanId"] = format(parent.span_id, "016x")
        flags |= _IS_REMOTE if parent.is_remote else 0
    encoded |= {
        "flags": flags,
        "name": safe_text(span.name),
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": key_values(_without_queries(span.attributes or {})) + key_values(bodies),
        "status": _status(span),
    }
    if span.events:
        encoded["events"] = [_event(event) for event in span.events]
    if span.links:
        encoded["links"] = [_link(link) for link in span.links]
    if span.dropped_attributes:
        encoded["droppedAttributesCount"] = span.dropped_attributes
    return encoded


# Where HTTP instrumentations, old and new, put a URL's query. Clients send keys in it.
_QUERIES = ("url.query",)
_URLS = ("url.full", "http.url", "http.target")


def _without_queries(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(name in attributes for name in (*_QUERIES, *_URLS)):
        return attributes
    kept = {name: value for name, value in attributes.items() if name not in _QUERIES}
    return kept | {name: str(kept[name]).partition("?")[0] for name in _URLS if name in kept}


def _status(span: ReadableSpan) -> dict[str, Any]:
    status: dict[str, Any] = {"code": span.status.status_code.value}
    if span.status.description:
        status["message"] = safe_text(span.status.description)
    return status


def _event(event: Any) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.timestamp),
        "name": safe_text(event.name),
        "attributes": key_values(event.attributes or {}),
    }


def _link(link: Any) -> dict[str, Any]:
    return {
        "traceId": format(link.context.trace_id, "032x"),
        "spanId": format(link.context.span_id, "016x"),
        "attributes": key_values(link.attributes or {}),
    }


def _payload_attributes(payload: Payload | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if payload is None:
        return attributes
    for name, body in ((REQUEST_BODY, payload.request), (RESPONSE_BODY, payload.response)):
        if body is not None:
            attributes |= _body_attributes(name, body)
    return attributes


def _body_attributes(name: str, body: KeptBody) -> dict[str, Any]:
    text, encoding = body_text(body)
    attributes = {
        name: text,
        name + BODY_ENCODING: encoding,
        name + BODY_BYTES: body.whole_bytes,
        name + BODY_SHA256: body.sha256,
    }
    return {key: value for key, value in attributes.items() if value is not None}


_envelopes: dict[tuple[int, int], tuple[Resource, InstrumentationScope | None, bytes, bytes]] = {}


def _envelope(resource: Resource, scope: InstrumentationScope | None) -> tuple[bytes, bytes]:
    """What surrounds the span in its line: the same for all spans of one scope, so encoded once.

    Found by identity, since hashing a Resource costs more than encoding it; the objects are held so
    that an id cannot be used again.
    """
    key = (id(resource), id(scope))
    known = _envelopes.get(key)
    if known is None:
        if len(_envelopes) > 64:
            _envelopes.clear()
        known = _envelopes[key] = (resource, scope, *_encode_envelope(resource, scope))
    return known[2], known[3]


def _encode_envelope(resource: Resource, scope: InstrumentationScope | None) -> tuple[bytes, bytes]:
    scope_name, version = (scope.name, scope.version) if scope else ("", None)
    scope_json: dict[str, Any] = {"name": scope_name, "attributes": key_values({"gym.store.version": STORE_VERSION})}
    if version:
        scope_json["version"] = version
    schema_url = (scope.schema_url if scope else None) or SCHEMA_URL
    return (
        b'{"resourceSpans":[{"resource":'
        + encode_json({"attributes": key_values(resource.attributes)})
        + b',"scopeSpans":[{"scope":'
        + encode_json(scope_json)
        + b',"spans":[',
        b'],"schemaUrl":' + encode_json(schema_url) + b"}]}]}",
    )
