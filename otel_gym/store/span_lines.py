"""A span as it is read back → a line of TracesData that says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.store.otlp_json import encode_attributes, encode_json, key_values
from otel_gym.store.span import STATUS_UNSET, Origin, SpanEvent, SpanLink, StoredSpan

_MOST_ENVELOPES = 256
# What surrounds spans, by the identity of the objects that say it, which are held so that no id is used again.
_envelopes: dict[tuple[int, str | None, int], tuple[dict[str, Any], Origin, bytes, bytes]] = {}


def line_of_span(span: StoredSpan) -> bytes:
    """The span as one line of TracesData, without its newline. Texts that UTF-8 cannot carry get U+FFFD."""
    head, tail = _envelope(span)
    pieces = [head, b'{"traceId":%b,"spanId":%b' % (encode_json(span.trace_id), encode_json(span.span_id))]
    if span.trace_state:
        pieces.append(b',"traceState":%b' % encode_json(span.trace_state))
    if span.parent_span_id is not None:
        pieces.append(b',"parentSpanId":%b' % encode_json(span.parent_span_id))
    if span.flags:
        pieces.append(b',"flags":%d' % span.flags)
    pieces.append(b',"name":%b,"kind":%d,"startTimeUnixNano":"%d"' % (encode_json(span.name), span.kind, span.start_ns))
    if span.end_ns is not None:
        pieces.append(b',"endTimeUnixNano":"%d"' % span.end_ns)
    if span.status != STATUS_UNSET or span.status_message is not None:
        pieces.append(b',"status":%b' % encode_json(_status(span)))
    if span.events:
        pieces.append(b',"events":[%b]' % b",".join(map(_event, span.events)))
    if span.links:
        pieces.append(b',"links":[%b]' % b",".join(map(_link, span.links)))
    pieces += (b',"attributes":', _attributes(span.attributes))
    for kind, count in (
        (b"Attributes", span.dropped_attributes),
        (b"Events", span.dropped_events),
        (b"Links", span.dropped_links),
    ):
        if count:
            pieces.append(b',"dropped%bCount":%d' % (kind, count))
    pieces += (b"}", tail)
    return b"".join(pieces)


def _status(span: StoredSpan) -> dict[str, Any]:
    return {"code": span.status} | ({} if span.status_message is None else {"message": span.status_message})


def _event(event: SpanEvent) -> bytes:
    return b'{"timeUnixNano":"%d","name":%b,"attributes":%b%b}' % (
        event.time_unix_nano,
        encode_json(event.name),
        _attributes(event.attributes),
        _dropped(event.dropped),
    )


def _link(link: SpanLink) -> bytes:
    trace_state = b',"traceState":%b' % encode_json(link.trace_state) if link.trace_state else b""
    flags = b',"flags":%d' % link.flags if link.flags else b""
    return b'{"traceId":%b,"spanId":%b%b,"attributes":%b%b%b}' % (
        encode_json(link.trace_id),
        encode_json(link.span_id),
        trace_state,
        _attributes(link.attributes),
        _dropped(link.dropped),
        flags,
    )


def _dropped(count: int) -> bytes:
    return b',"droppedAttributesCount":%d' % count if count else b""


def _attributes(attributes: Mapping[str, Any]) -> bytes:
    try:
        return encode_attributes(attributes)
    except (UnicodeEncodeError, ValueError, TypeError, OverflowError):
        return encode_json(key_values(attributes))


def _envelope(span: StoredSpan) -> tuple[bytes, bytes]:
    key = (id(span.resource), span.scope_name, id(span.origin))
    held = _envelopes.get(key)
    if held is None:
        if len(_envelopes) >= _MOST_ENVELOPES:
            _envelopes.clear()
        held = _envelopes[key] = (span.resource, span.origin, *_new_envelope(span))
    return held[2], held[3]


def _new_envelope(span: StoredSpan) -> tuple[bytes, bytes]:
    origin = span.origin
    resource: dict[str, Any] = {"attributes": key_values(span.resource)}
    if origin.resource_dropped:
        resource["droppedAttributesCount"] = origin.resource_dropped
    scope: dict[str, Any] = {} if span.scope_name is None else {"name": span.scope_name}
    if origin.scope_version:
        scope["version"] = origin.scope_version
    if origin.scope_attributes:
        scope["attributes"] = key_values(origin.scope_attributes)
    if origin.scope_dropped:
        scope["droppedAttributesCount"] = origin.scope_dropped
    return (
        b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":['
        % (encode_json(resource), encode_json(scope)),
        b"]%b}]%b}]}" % (_schema_url(origin.schema_url), _schema_url(origin.resource_schema_url)),
    )


def _schema_url(url: str) -> bytes:
    return b',"schemaUrl":%b' % encode_json(url) if url else b""
