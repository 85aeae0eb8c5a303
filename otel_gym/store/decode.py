"""One line of OTLP/JSON → spans, fast: msgspec builds typed objects for what writers really write.

The types know every field of TracesData and refuse all others, so that a line that is anything else (numbers and names
in their rarer forms, unknown fields, two records glued into something that happens to be JSON) goes the slow way of
``otlp_json``, which takes all forms that the format allows.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from otel_gym.content import fits_int64
from otel_gym.store.otlp_json import COUNTS, ENUMERATIONS, TIMES, MalformedLineError, deeper, spans_of_line
from otel_gym.store.repair import has_inner_start
from otel_gym.store.span import Origin, SpanEvent, SpanLink, StoredSpan

# Resources and scopes seen so far, by their text: every line of a writer repeats its own.
_MOST_KEPT = 1024


Count = Annotated[int, Meta(ge=COUNTS.start, lt=COUNTS.stop)]
Enumeration = Annotated[int, Meta(ge=ENUMERATIONS.start, lt=ENUMERATIONS.stop)]


class _Strict(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    pass


class _AnyValue(_Strict):
    """Of the fields one is set; null stands for none of them."""

    string_value: str | None = None
    int_value: str | int | None = None
    bool_value: bool | None = None
    double_value: float | str | None = None
    array_value: _ArrayValue | None = None
    kvlist_value: _KeyValueList | None = None
    bytes_value: str | None = None


class _ArrayValue(_Strict):
    values: list[_AnyValue] = []


class _KeyValue(_Strict):
    key: str = ""
    value: _AnyValue = msgspec.field(default_factory=_AnyValue)


class _KeyValueList(_Strict):
    values: list[_KeyValue] = []


class _Event(_Strict):
    time_unix_nano: str | int = 0
    name: str = ""
    attributes: list[_KeyValue] = []
    dropped_attributes_count: Count = 0


class _Link(_Strict):
    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: list[_KeyValue] = []
    dropped_attributes_count: Count = 0
    flags: Count = 0


class _Status(_Strict):
    message: str | None = None
    code: Enumeration = 0


class _Span(_Strict):
    trace_id: str
    span_id: str
    trace_state: str = ""
    parent_span_id: str = ""
    flags: Count = 0
    name: str = ""
    kind: Enumeration = 0
    start_time_unix_nano: str | int = 0
    end_time_unix_nano: str | int = 0
    attributes: list[_KeyValue] = []
    dropped_attributes_count: Count = 0
    events: tuple[_Event, ...] = ()
    dropped_events_count: Count = 0
    links: tuple[_Link, ...] = ()
    dropped_links_count: Count = 0
    status: _Status | None = None


class _Resource(_Strict):
    attributes: list[_KeyValue] = []
    dropped_attributes_count: Count = 0


class _Scope(_Strict):
    name: str | None = None
    version: str = ""
    attributes: list[_KeyValue] = []
    dropped_attributes_count: Count = 0


class _ScopeSpans(_Strict):
    scope: Raw = Raw(b"null")
    spans: list[_Span] = []
    schema_url: str = ""


class _ResourceSpans(_Strict):
    resource: Raw = Raw(b"{}")
    scope_spans: list[_ScopeSpans] = []
    schema_url: str = ""


class _TracesData(_Strict):
    resource_spans: list[_ResourceSpans]


class _Envelope(NamedTuple):
    """What surrounds spans, as they name it."""

    resource: dict[str, Any]
    scope_name: str | None
    origin: Origin


_decode_line = msgspec.json.Decoder(_TracesData).decode
_decode_span = msgspec.json.Decoder(_Span).decode
_decode_resource = msgspec.json.Decoder(_Resource).decode
_decode_scope = msgspec.json.Decoder(_Scope | None).decode
_resources: dict[bytes, tuple[dict[str, Any], int]] = {}
_envelopes: dict[tuple[bytes, str, bytes, str], _Envelope] = {}


def decode_line(line: bytes) -> list[StoredSpan]:
    """The spans of a line that is one record. MalformedLineError if it is none, or more than one."""
    try:
        document = _decode_line(line)
        return [
            _span(span, envelope)
            for group in document.resource_spans
            for resource in (bytes(group.resource),)
            for scope_spans in group.scope_spans
            for envelope in (_envelope((resource, group.schema_url, bytes(scope_spans.scope), scope_spans.schema_url)),)
            for span in scope_spans.spans
        ]
    except (ValueError, RecursionError):
        # msgspec's errors are ValueErrors, as are those of numbers and base64
        if has_inner_start(line):
            raise MalformedLineError("more than one record on the line") from None
        return spans_of_line(line)


class _Frame(NamedTuple):
    """What stands on a line before and behind its one span."""

    before: bytes
    behind: bytes
    envelope: _Envelope


_MOST_FRAMES = 4


class SpanLines:
    """``decode_line`` for the many lines of few writers: each repeats what surrounds its span, which is read once."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []

    def decode(self, line: bytes) -> list[StoredSpan]:
        for before, behind, envelope in self._frames:
            if line.startswith(before) and line.endswith(behind):
                try:
                    return [_span(_decode_span(memoryview(line)[len(before) : -len(behind)]), envelope)]
                except (ValueError, RecursionError):
                    break  # several spans, or none that is plain
        else:
            self._learn(line)
        return decode_line(line)

    def _learn(self, line: bytes) -> None:
        start = line.find(b'"spans":[') + len(b'"spans":[')
        end = max(line.rfind(b'],"schemaUrl":'), line.rfind(b"]}]}]}"))
        try:
            document = _decode_line(line)
            [group] = document.resource_spans
            [scope_spans] = group.scope_spans
            [span] = scope_spans.spans
            if _decode_span(line[start:end]) != span:
                return
            key = (bytes(group.resource), group.schema_url, bytes(scope_spans.scope), scope_spans.schema_url)
            frame = _Frame(line[:start], line[end:], _envelope(key))
        except (ValueError, RecursionError):
            return
        self._frames = [frame, *self._frames[: _MOST_FRAMES - 1]]


def _envelope(key: tuple[bytes, str, bytes, str]) -> _Envelope:
    known = _envelopes.get(key)
    if known is None:
        resource_text, resource_schema_url, scope_text, schema_url = key
        resource, dropped = _resource(resource_text)
        scope = _decode_scope(scope_text) or _Scope()
        origin = Origin(
            scope.version,
            _attributes(scope.attributes),
            scope.dropped_attributes_count,
            schema_url,
            resource_schema_url,
            dropped,
        )
        known = _Envelope(resource, scope.name, origin)
        if len(_envelopes) >= _MOST_KEPT:
            _envelopes.clear()
        _envelopes[key] = known
    return known


def _resource(text: bytes) -> tuple[dict[str, Any], int]:
    """Its attributes, the same object for all scopes of it, and how many were dropped."""
    known = _resources.get(text)
    if known is None:
        resource = _decode_resource(text)
        known = _attributes(resource.attributes), resource.dropped_attributes_count
        if len(_resources) >= _MOST_KEPT:
            _resources.clear()
        _resources[text] = known
    return known


def _span(span: _Span, envelope: _Envelope) -> StoredSpan:
    status = span.status
    resource, scope_name, origin = envelope
    return StoredSpan(
        span.trace_id.lower(),
        span.span_id.lower(),
        span.parent_span_id.lower() or None,
        span.name,
        span.kind,
        _time(span.start_time_unix_nano),
        _time(span.end_time_unix_nano or 0) or None,
        _attributes(span.attributes),
        [_event(event) for event in span.events] if span.events else [],
        [_link(link) for link in span.links] if span.links else [],
        0 if status is None else status.code,
        None if status is None else status.message,
        resource,
        scope_name,
        _dropped(span),
        None,
        span.trace_state,
        span.flags,
        span.dropped_events_count,
        span.dropped_links_count,
        origin,
    )


def _time(value: str | int) -> int:
    time = int(value)
    if not 0 <= time < TIMES.stop:
        raise ValueError(f"{time} is no time")
    return time


def _dropped(span: _Span) -> int:
    """All that limits dropped: of the span, and of its events and links."""
    dropped = span.dropped_attributes_count + span.dropped_events_count + span.dropped_links_count
    if span.events or span.links:
        dropped += sum(event.dropped_attributes_count for event in span.events)
        dropped += sum(link.dropped_attributes_count for link in span.links)
    return dropped


def _event(event: _Event) -> SpanEvent:
    time_ns = _time(event.time_unix_nano)
    return SpanEvent(event.name, time_ns, _attributes(event.attributes), event.dropped_attributes_count)


def _link(link: _Link) -> SpanLink:
    return SpanLink(
        link.trace_id.lower(),
        link.span_id.lower(),
        _attributes(link.attributes),
        link.trace_state,
        link.flags,
        link.dropped_attributes_count,
    )


def _attributes(pairs: list[_KeyValue], depth: int = 0) -> dict[str, Any]:
    """Texts, of which most attributes are, without a call."""
    return {
        pair.key: _value(pair.value, depth) if (text := pair.value.string_value) is None else text for pair in pairs
    }


def _value(value: _AnyValue, depth: int) -> Any:
    """The commonest kinds first."""
    if value.int_value is not None:
        number = int(value.int_value)
        return number if fits_int64(number) else str(number)
    if value.double_value is not None:
        return float(value.double_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.string_value is not None:
        return value.string_value
    if value.array_value is not None:
        return [_value(entry, deeper(depth)) for entry in value.array_value.values]
    if value.kvlist_value is not None:
        return _attributes(value.kvlist_value.values, deeper(depth))
    return None if value.bytes_value is None else base64.b64decode(value.bytes_value)
