"""Stored spans → ExportTraceServiceRequests below a number of bytes, as whole as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from otel_gym.content import fits_int64, safe_text
from otel_gym.conventions import BODY_BLOBS, REQUEST_BODY, RESPONSE_BODY, is_content
from otel_gym.store.blobs import BlobError
from otel_gym.store.span import SpanEvent, SpanLink, StoredSpan
from otel_gym.tracing.otlp.slim import cut_attributes, note_cut

_BODIES = (REQUEST_BODY, RESPONSE_BODY)
_STORE_VERSION = "gym.store.version"
# Beside its spans a message holds little.
_FRAME_BYTES = 16
# To these lengths the attributes of a span are cut that alone is larger than a message; the first that is enough.
_SHORTER = (1_000_000, 250_000, 50_000, 10_000, 2_000, 200)


@dataclass(frozen=True, slots=True)
class SentForm:
    """``attribute_bytes`` 0: attributes are not cut. ``content``: with what was said, asked and answered."""

    attribute_bytes: int
    content: bool
    message_bytes: int


@dataclass(slots=True)
class Told:
    """Spans that are in no message: those that never ended, and those whose ids or times OTLP cannot carry. Then those
    that were cut to fit, and bodies whose media is missing."""

    open: int = 0
    not_otlp: int = 0
    cut_to_fit: int = 0
    missing_media: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    content: bytes
    spans: int


def messages_of(spans: Iterable[StoredSpan], form: SentForm, told: Told) -> Iterator[Message]:
    """Spans of one resource and scope stand together, in the order in which they come."""
    batch = _Batch()
    for span in spans:
        if span.end_ns is None:
            told.open += 1
            continue
        try:
            encoded = _fitting(span, form, told)
        except (ValueError, TypeError, OverflowError):  # ids that are none, times and counts that OTLP cannot carry
            told.not_otlp += 1
            continue
        size, group = _FRAME_BYTES + encoded.ByteSize(), _group(span)
        if batch.spans and batch.size_with(size, group) > form.message_bytes:
            yield batch.message()
            batch = _Batch()
        batch.add(encoded, size, group)
    if batch.spans:
        yield batch.message()


class _Batch:
    def __init__(self) -> None:
        self.spans = 0
        self._size = 0
        self._request = ExportTraceServiceRequest()
        self._groups: dict[bytes, ScopeSpans] = {}

    def size_with(self, size: int, group: bytes) -> int:
        return self._size + size + (0 if group in self._groups else len(group) + _FRAME_BYTES)

    def add(self, encoded: Span, size: int, group: bytes) -> None:
        self._size = self.size_with(size, group)
        if group not in self._groups:
            self._request.resource_spans.append(ResourceSpans.FromString(group))
            self._groups[group] = self._request.resource_spans[-1].scope_spans[0]
        self._groups[group].spans.append(encoded)
        self.spans += 1

    def message(self) -> Message:
        return Message(self._request.SerializeToString(), self.spans)


# What surrounds spans, by the identity of what says it; the spans are held, so that no id is used again.
_groups: dict[tuple[int, str | None, int], tuple[StoredSpan, bytes]] = {}
_MOST_GROUPS = 1024


def _group(span: StoredSpan) -> bytes:
    """ResourceSpans with one ScopeSpans, in which no span stands yet."""
    key = id(span.resource), span.scope_name, id(span.origin)
    held = _groups.get(key)
    if held is None:
        if len(_groups) >= _MOST_GROUPS:
            _groups.clear()
        held = _groups[key] = (span, _new_group(span).SerializeToString())
    return held[1]


def _new_group(span: StoredSpan) -> ResourceSpans:
    origin = span.origin
    of_scope = {name: value for name, value in origin.scope_attributes.items() if name != _STORE_VERSION}
    scope = InstrumentationScope(
        name=safe_text(span.scope_name or ""),
        version=safe_text(origin.scope_version),
        attributes=_pairs(of_scope),
        dropped_attributes_count=origin.scope_dropped,
    )
    return ResourceSpans(
        resource=Resource(attributes=_pairs(span.resource), dropped_attributes_count=origin.resource_dropped),
        scope_spans=[ScopeSpans(scope=scope, schema_url=safe_text(origin.schema_url))],
        schema_url=safe_text(origin.resource_schema_url),
    )


def _fitting(span: StoredSpan, form: SentForm, told: Told) -> Span:
    attributes = _whole_attributes(span, form, told)
    encoded = _span(span, attributes, form.attribute_bytes, form)
    shorter = iter(_SHORTER)
    is_cut = False
    while encoded.ByteSize() + len(_group(span)) + 2 * _FRAME_BYTES > form.message_bytes:
        limit = next(shorter, None)
        if limit is None:
            break
        is_cut = True
        encoded = _span(span, attributes, min(limit, form.attribute_bytes or limit), form)
    told.cut_to_fit += is_cut
    return encoded


def _whole_attributes(span: StoredSpan, form: SentForm, told: Told) -> dict[str, Any]:
    """With the media of bodies put back; without content, unless it is asked for."""
    attributes = _told(span.attributes, form)
    for name in _BODIES:
        if name + BODY_BLOBS not in attributes or name not in attributes:
            continue
        try:
            attributes[name] = span.body(name)
        except BlobError:
            told.missing_media += 1
        else:
            del attributes[name + BODY_BLOBS]
    return attributes


def _told(attributes: Mapping[str, Any], form: SentForm) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if form.content or not is_content(name)}


def _span(span: StoredSpan, attributes: Mapping[str, Any], limit: int, form: SentForm) -> Span:
    cut: dict[str, int] = {}
    short = cut_attributes(dict(attributes), limit, cut)
    note_cut(short, cut)
    lost = len(attributes.keys() - short.keys())
    return Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        trace_state=safe_text(span.trace_state),
        parent_span_id=bytes.fromhex(span.parent_span_id or ""),
        flags=span.flags,
        name=safe_text(span.name),
        kind=_number(span.kind),
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns or 0,
        attributes=_pairs(short),
        dropped_attributes_count=span.dropped_attributes + lost,
        events=[_event(event, limit, form) for event in span.events],
        dropped_events_count=span.dropped_events,
        links=[_link(link, limit) for link in span.links],
        dropped_links_count=span.dropped_links,
        status=Status(code=_number(span.status), message=safe_text(span.status_message or "")),
    )


def _number(enumerated: int) -> Any:
    """Any number is one of an open enumeration; its type has a name for those of now only."""
    return enumerated


def _event(event: SpanEvent, limit: int, form: SentForm) -> Span.Event:
    return Span.Event(
        time_unix_nano=event.time_unix_nano,
        name=safe_text(event.name),
        attributes=_pairs(cut_attributes(_told(event.attributes, form), limit, {})),
        dropped_attributes_count=event.dropped,
    )


def _link(link: SpanLink, limit: int) -> Span.Link:
    return Span.Link(
        trace_id=bytes.fromhex(link.trace_id),
        span_id=bytes.fromhex(link.span_id),
        trace_state=safe_text(link.trace_state),
        attributes=_pairs(cut_attributes(dict(link.attributes), limit, {})),
        dropped_attributes_count=link.dropped,
        flags=link.flags,
    )


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=safe_text(name), value=any_value(value)) for name, value in attributes.items()]


def any_value(value: Any) -> AnyValue:
    """A value as a reader of the store gives it."""
    encoder = _ENCODERS.get(type(value))
    return AnyValue(string_value=safe_text(str(value))) if encoder is None else encoder(value)


_ENCODERS: dict[type, Callable[[Any], AnyValue]] = {
    str: lambda value: AnyValue(string_value=safe_text(value)),
    bool: lambda value: AnyValue(bool_value=value),
    int: lambda value: AnyValue(int_value=value) if fits_int64(value) else AnyValue(string_value=str(value)),
    float: lambda value: AnyValue(double_value=value),
    bytes: lambda value: AnyValue(bytes_value=value),
    list: lambda value: AnyValue(array_value=ArrayValue(values=map(any_value, value))),
    dict: lambda value: AnyValue(kvlist_value=KeyValueList(values=_pairs(value))),
    type(None): lambda value: AnyValue(),
}
