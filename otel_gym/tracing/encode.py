"""A finished SDK span, with its payload, as one line of OTLP/JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_gym.content import KeptBody, body_text
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
from otel_gym.tracing.membership import plain_attributes
from otel_gym.tracing.payloads import Payload

# What a finished span costs while it waits, beyond its texts.
_SPAN_BYTES = 3000

_IS_REMOTE_KNOWN = 0x100
_IS_REMOTE = 0x200


def content_of(settings: Settings, directory: Path) -> ContentOnce | None:
    """What keeps content once in a writer's files; None where it is off."""
    return ContentOnce(BlobStore(directory, fsync=settings.syncs)) if settings.content_once else None


def encode_span(
    span: ReadableSpan, payload: Payload | None = None, rollout_id: str = "", content: ContentOnce | None = None
) -> bytes:
    """One TracesData with one span, and its newline. A span that has not ended has no end time.

    ``content`` gives the bodies of ``payload`` their stored form; only the thread that writes may pass it.
    """
    head, tail = _envelope(span.resource, span.instrumentation_scope)
    attributes = _without_queries(plain_attributes(span))
    try:
        if payload is not None:
            attributes = {**attributes, **_bodies(span, payload, rollout_id, content)}
        return b"%b%b%b" % (head, encode_json(_span(span, attributes)), tail)
    except Exception:
        if content is not None:
            content.failed(rollout_id)  # there is no line that a later one could build on
        raise


def _bodies(span: ReadableSpan, payload: Payload, rollout_id: str, content: ContentOnce | None) -> dict[str, Any]:
    bodies = _payload_attributes(payload)
    if content is None:
        return bodies
    return content.stored(bodies, rollout_id, f"{span.context.span_id:016x}")


def size_of(span: ReadableSpan) -> int:
    """About what a span that waits holds in memory, in bytes."""
    return _SPAN_BYTES + sum([len(value) for value in plain_attributes(span).values() if type(value) is str])


def _span(span: ReadableSpan, attributes: Mapping[str, Any]) -> dict[str, Any]:
    context, parent = span.context, span.parent
    encoded: dict[str, Any] = {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
    flags = int(context.trace_flags) | _IS_REMOTE_KNOWN
    if parent is not None:
        encoded["parentSpanId"] = f"{parent.span_id:016x}"
        flags |= _IS_REMOTE if parent.is_remote else 0
    encoded["flags"] = flags
    encoded["name"] = span.name
    encoded["kind"] = span.kind.value + 1
    encoded["startTimeUnixNano"] = str(span.start_time)
    if span.end_time is not None:
        encoded["endTimeUnixNano"] = str(span.end_time)
    encoded["attributes"] = key_values(attributes)
    _add_rest(encoded, span)
    return encoded


def _add_rest(encoded: dict[str, Any], span: ReadableSpan) -> None:
    """What most spans do not have."""
    if span.status.status_code.value:
        encoded["status"] = _status(span)
    if span.context.trace_state:
        encoded["traceState"] = span.context.trace_state.to_header()
    if span._events:
        encoded["events"] = [_event(event) for event in span.events]
    if span._links:
        encoded["links"] = [_link(link) for link in span.links]
    for name, dropped in (
        ("droppedAttributesCount", span.dropped_attributes),
        ("droppedEventsCount", span.dropped_events),
        ("droppedLinksCount", span.dropped_links),
    ):
        if dropped:
            encoded[name] = dropped


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
        status["message"] = span.status.description
    return status


def _event(event: Any) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": key_values(event.attributes or {}),
    }


def _link(link: Any) -> dict[str, Any]:
    return {
        "traceId": format(link.context.trace_id, "032x"),
        "spanId": format(link.context.span_id, "016x"),
        "attributes": key_values(link.attributes or {}),
    }


def _payload_attributes(payload: Payload) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
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
        b'],"schemaUrl":' + encode_json(schema_url) + b"}]}]}\n",
    )
