"""OTLP in protobuf → spans. ExportTraceServiceRequest and TracesData are the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_gym.ingest.otlp.received import MalformedError, Received
from otel_gym.store.otlp_json import COUNTS
from otel_gym.store.span import Origin, SpanEvent, SpanLink, StoredSpan

_NO_ID = bytes(16)


def spans_of_proto(content: bytes) -> Received:
    """The spans of one message. MalformedError if it is none; spans with ids that are none are refused."""
    try:
        message = TracesData.FromString(content)
    except DecodeError as error:
        raise MalformedError(f"no OTLP message in protobuf: {error}") from None
    received = Received()
    for group in message.resource_spans:
        resource = _attributes(group.resource.attributes)
        for scope_spans in group.scope_spans:
            origin = _origin(group, scope_spans)
            scope_name = scope_spans.scope.name or None
            for span in scope_spans.spans:
                problem = _problem_of_ids(span)
                if problem is None:
                    received.spans.append(_span(span, resource, scope_name, origin))
                else:
                    received.refuse(problem)
    return received


def _origin(group: ResourceSpans, scope_spans: ScopeSpans) -> Origin:
    scope = scope_spans.scope
    return Origin(
        scope.version,
        _attributes(scope.attributes),
        scope.dropped_attributes_count,
        scope_spans.schema_url,
        group.schema_url,
        group.resource.dropped_attributes_count,
    )


def _problem_of_ids(span: Span) -> str | None:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or trace_id == _NO_ID:
        return f"trace_id {trace_id.hex() or 'empty'!r} is none: 16 bytes, not all of them 0"
    if len(span_id) != 8 or span_id == _NO_ID[:8]:
        return f"span_id {span_id.hex() or 'empty'!r} is none: 8 bytes, not all of them 0"
    if len(parent_id) not in (0, 8):
        return f"parent_span_id {parent_id.hex()!r} is none: 8 bytes, or empty"
    return None


def _span(span: Span, resource: dict[str, Any], scope_name: str | None, origin: Origin) -> StoredSpan:
    parent_id = span.parent_span_id
    events, links, lost_links = _events(span), *_links(span)
    dropped_links = min(span.dropped_links_count + lost_links, COUNTS.stop - 1)
    dropped = span.dropped_attributes_count + span.dropped_events_count + dropped_links
    if events or links:
        dropped += sum(event.dropped for event in events) + sum(link.dropped for link in links)
    status = span.status
    return StoredSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        parent_id.hex() if parent_id and parent_id != _NO_ID[:8] else None,
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano or None,
        _attributes(span.attributes),
        events,
        links,
        status.code,
        status.message or None,
        resource,
        scope_name,
        dropped,
        None,
        span.trace_state,
        span.flags,
        span.dropped_events_count,
        dropped_links,
        origin,
    )


def _events(span: Span) -> list[SpanEvent]:
    return [
        SpanEvent(event.name, event.time_unix_nano, _attributes(event.attributes), event.dropped_attributes_count)
        for event in span.events
    ]


def _links(span: Span) -> tuple[list[SpanLink], int]:
    """Those that lead to a span, and how many do not."""
    links = [
        SpanLink(
            link.trace_id.hex(),
            link.span_id.hex(),
            _attributes(link.attributes),
            link.trace_state,
            link.flags,
            link.dropped_attributes_count,
        )
        for link in span.links
        if len(link.trace_id) == 16 and len(link.span_id) == 8
    ]
    return links, len(span.links) - len(links)


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """The last of a repeated key wins."""
    attributes: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        kind = value.WhichOneof("value")
        attributes[pair.key] = value.string_value if kind == "string_value" else _READERS[kind](value)
    return attributes


def _value(value: AnyValue) -> Any:
    return _READERS[value.WhichOneof("value")](value)


_READERS: dict[str | None, Callable[[AnyValue], Any]] = {
    "string_value": lambda value: value.string_value,
    "int_value": lambda value: value.int_value,
    "bool_value": lambda value: value.bool_value,
    "double_value": lambda value: value.double_value,
    "array_value": lambda value: [_value(item) for item in value.array_value.values],
    "kvlist_value": lambda value: _attributes(value.kvlist_value.values),
    "bytes_value": lambda value: value.bytes_value,
    # Of profiles: an index into a table that spans do not have.
    "string_value_strindex": lambda value: None,
    None: lambda value: None,
}
