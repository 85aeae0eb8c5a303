"""A span as the OTLP copy sends it: redacted as in the store, without content unless it is asked for, cut.

What the store says in attributes and viewers show as events (first token, retry) becomes events here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status, StatusCode

from otel_gym.content import body_of_text, safe_text
from otel_gym.content_policy import ContentPolicy
from otel_gym.conventions import (
    BODY_BYTES,
    BODY_ENCODING,
    BODY_SHA256,
    FIRST_CONTENT_NS,
    FIRST_TOKEN_EVENT,
    JSON_CONTENT,
    OTLP_CUT,
    REQUEST_BODY,
    REQUEST_HEADER,
    RESPONSE_BODY,
    RETRY_COUNT,
    RETRY_EVENT,
    is_content,
)
from otel_gym.tracing.encode import SafeParts, resource_attributes, scope_parts
from otel_gym.tracing.otlp.cutting import byte_length, cut_text, cut_value, head_of, value_size
from otel_gym.tracing.payloads import Payload

# Ids, times, kind, flags, counts and what frames them, with room to spare.
_SPAN_BYTES = 256
_EVENT_BYTES = 64
_LINK_BYTES = 96
_ATTRIBUTE_BYTES = 24
_GROUP_BYTES = 64
_LAST_NS = 2**63 - 1

_BODIES = (REQUEST_BODY, RESPONSE_BODY)
_RETRY_HEADER = REQUEST_HEADER + "x-stainless-retry-count"
# Of a span that is too large for a message: what its attributes keep at least, and what is told of one that is cut.
_LEAST_KEPT_BYTES = 1000
_BESIDE_BYTES = 400
# What a span that is too large all the same keeps of its events, links and attributes.
_FEW = 50
_SHORT_BYTES = 200


@dataclass(frozen=True, slots=True)
class SlimForm:
    """``attribute_bytes`` 0: attributes are not cut. ``span_bytes``: a message holds no larger span."""

    content: ContentPolicy
    attribute_bytes: int
    span_bytes: int


class SlimSpan(ReadableSpan):
    """A copy whose parts can be replaced; ``dropped`` counts attributes, events and links that are left out."""

    dropped: tuple[int, int, int] = (0, 0, 0)

    @property
    def dropped_attributes(self) -> int:
        return self.dropped[0]

    @property
    def dropped_events(self) -> int:
        return self.dropped[1]

    @property
    def dropped_links(self) -> int:
        return self.dropped[2]


class _SlimParts(SafeParts):
    """Without what is content, unless that is asked for."""

    def _attributes(self, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if attributes and not self._content.messages:
            attributes = {name: value for name, value in attributes.items() if not is_content(str(name))}
        return super()._attributes(attributes)


def slim_span(
    span: ReadableSpan, payload: Payload | None, identity: Mapping[str, Any] | None, form: SlimForm
) -> SlimSpan:
    """``payload`` and ``identity`` as in the store's ``encode_span``."""
    if payload is not None and not form.content.messages:
        payload = payload.without_bodies()
    parts = _SlimParts(span, payload, form.content, identity, None)
    limit, cut = form.attribute_bytes, dict[str, int]()
    name, message = parts.text(span.name), parts.status_message()
    events = [_event(event, parts, limit) for event in span.events]
    links = [Link(link.context, cut_attributes(dict(parts.link_attributes(link)), limit, {})) for link in span.links]
    whole = dict(parts.all_attributes())  # last: it counts what was replaced in all of them
    events += _told_events(span, whole)
    attributes = cut_attributes(whole, limit, cut)
    slim = SlimSpan(
        name=name,
        context=span.context,
        parent=span.parent,
        resource=_slim_resource(span.resource, form),
        attributes=attributes,
        events=events,
        links=links,
        kind=span.kind,
        status=_status(span.status, message, limit),
        start_time=_time(span.start_time),
        end_time=_time(span.end_time),
        instrumentation_scope=_slim_scope(span.instrumentation_scope, form),
    )
    slim.dropped = (parts.dropped_attributes(), span.dropped_events, span.dropped_links)
    note_cut(attributes, cut)
    if span_size(slim) > form.span_bytes:
        _make_fit(slim, attributes, cut, form.span_bytes)
    return slim


def _event(event: Any, parts: SafeParts, limit: int) -> Event:
    attributes = cut_attributes(dict(parts.event_attributes(event)), limit, {})
    return Event(parts.text(event.name), attributes, _time(event.timestamp))


def _told_events(span: ReadableSpan, attributes: Mapping[str, Any]) -> list[Event]:
    events = []
    start = _time(span.start_time) or 0
    retries = _retry_count(attributes.get(_RETRY_HEADER))
    if retries:
        events.append(Event(RETRY_EVENT, {RETRY_COUNT: retries}, start))
    first = attributes.get(FIRST_CONTENT_NS)
    if type(first) is int and attributes.get("gen_ai.request.stream") is True:
        events.append(Event(FIRST_TOKEN_EVENT, {}, _time(start + first)))
    return events


def _retry_count(values: Any) -> int:
    text = values[0] if isinstance(values, list | tuple) and values else ""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _status(status: Status, message: str | None, limit: int) -> Status:
    if status.status_code is not StatusCode.ERROR or not message:
        return Status(status.status_code)
    return Status(status.status_code, cut_text(message, limit) if limit and _is_longer(message, limit) else message)


def _time(time_ns: int | None) -> int | None:
    """One that OTLP can carry: programs may say any number."""
    return None if time_ns is None else min(max(int(time_ns), 0), _LAST_NS)


# ── cutting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut_attributes(attributes: dict[str, Any], limit: int, cut: dict[str, int]) -> dict[str, Any]:
    """In place; ``cut`` gets the names of what was cut, with its whole length."""
    if limit:
        for name in [name for name, value in attributes.items() if _is_longer(value, limit)]:
            _cut_one(attributes, name, limit, cut)
    return attributes


def _is_longer(value: Any, limit: int) -> bool:
    if isinstance(value, str):
        return len(value) * 4 > limit and byte_length(value) > limit
    return not isinstance(value, int | float) and value_size(value) > limit


def _cut_one(attributes: dict[str, Any], name: str, limit: int, cut: dict[str, int]) -> None:
    value = attributes[name]
    cut.setdefault(name, value_size(value))
    if name in _BODIES and isinstance(value, str):
        attributes |= _body_head(attributes, name, value, limit)
        return
    shorter = cut_value(name, value, limit)
    if shorter is None:
        del attributes[name]
    else:
        attributes[name] = shorter


def _body_head(attributes: Mapping[str, Any], name: str, text: str, limit: int) -> dict[str, Any]:
    """The form that the store gives to bodies of which only the head is kept."""
    encoding = attributes.get(name + BODY_ENCODING)
    head = head_of(text, limit if encoding is None else limit // 4 * 4)  # base64 comes in fours
    whole = {} if name + BODY_BYTES in attributes else _whole(name, text, encoding)
    return {name: head, **whole}


def _whole(name: str, text: str, encoding: str | None) -> dict[str, Any]:
    try:
        content = body_of_text(text, encoding).content
    except ValueError:  # not of ours
        return {}
    return {name + BODY_BYTES: len(content), name + BODY_SHA256: sha256(content).hexdigest()}


def note_cut(attributes: dict[str, Any], cut: Mapping[str, int]) -> None:
    if cut:
        attributes[OTLP_CUT] = [f"{name}={length}" for name, length in list(cut.items())[:_FEW]]


# ── one span that is too large for a message ───────────────────────────────────────────────────────────────────────


def _make_fit(slim: SlimSpan, attributes: dict[str, Any], cut: dict[str, int], limit: int) -> None:
    """Cuts its largest attributes as far as need be, then leaves out events, links and attributes beyond the first."""
    excess = span_size(slim) - limit
    for name in sorted(attributes, key=lambda name: -value_size(attributes[name])):
        # Its name stands in the list of what was cut, and a body has its length and hash beside it.
        length, beside = value_size(attributes[name]), byte_length(name) + _BESIDE_BYTES
        kept = max(_LEAST_KEPT_BYTES, length - excess - beside)
        if excess <= 0 or kept + beside >= length:
            break
        if name != OTLP_CUT:
            _shorten(attributes, name, kept, cut)
            excess -= length - kept - beside
    note_cut(attributes, cut)
    if span_size(slim) > limit:
        _leave_out(slim, attributes)


def _shorten(attributes: dict[str, Any], name: str, limit: int, cut: dict[str, int]) -> None:
    value = attributes[name]
    if name in _BODIES or name in JSON_CONTENT or not isinstance(value, str):
        _cut_one(attributes, name, limit, cut)
        return
    cut.setdefault(name, byte_length(value))
    attributes[name] = cut_text(value, limit, f", sha256 {sha256(value.encode()).hexdigest()}")


def _leave_out(slim: SlimSpan, attributes: dict[str, Any]) -> None:
    events, links = slim._events, slim._links
    kept = [name for name in attributes if byte_length(name) <= _SHORT_BYTES][:_FEW]
    short = cut_attributes({name: attributes[name] for name in kept}, _SHORT_BYTES, {})
    slim._events = [Event(head_of(event.name, _SHORT_BYTES), {}, event.timestamp) for event in events[:_FEW]]
    slim._links = [Link(link.context) for link in links[:_FEW]]
    slim._name = head_of(slim.name, _SHORT_BYTES)
    slim._status = Status(slim.status.status_code, head_of(slim.status.description or "", _SHORT_BYTES) or None)
    before = slim.dropped
    slim.dropped = (
        before[0] + len(attributes) - len(short),
        before[1] + len(events) - len(slim._events),
        before[2] + len(links) - len(slim._links),
    )
    attributes.clear()
    attributes.update(short)


# ── sizes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def attributes_size(attributes: Mapping[str, Any] | None) -> int:
    return sum(_ATTRIBUTE_BYTES + byte_length(name) + value_size(value) for name, value in (attributes or {}).items())


def span_size(span: SlimSpan) -> int:
    """Bytes that the span takes in protobuf, at most, without its resource and scope."""
    events = sum(_EVENT_BYTES + byte_length(event.name) + attributes_size(event.attributes) for event in span._events)
    links = sum(
        _LINK_BYTES + len(link.context.trace_state.to_header()) + attributes_size(link.attributes)
        for link in span._links
    )
    state = span.context.trace_state
    texts = (
        byte_length(span.name) + byte_length(span.status.description or "") + len(state.to_header() if state else "")
    )
    return _SPAN_BYTES + texts + attributes_size(span._attributes) + events + links


def group_size(span: SlimSpan) -> int:
    """Bytes that its resource and scope take, at most, once for all spans of a message that share them."""
    scope = span.instrumentation_scope
    size = _GROUP_BYTES + attributes_size(span.resource.attributes) + byte_length(span.resource.schema_url)
    if scope is None:
        return size
    texts = (scope.name, scope.version or "", scope.schema_url or "")
    return size + _GROUP_BYTES + sum(map(byte_length, texts)) + attributes_size(scope.attributes)


# ── what surrounds a span: made once for all spans of a provider and a scope ───────────────────────────────────────

_MOST_KNOWN = 64
# By identity, since hashing a Resource costs more than encoding it; the originals are held, so that no id is another's.
_known: dict[tuple[int, int], tuple[object, SlimForm, Any]] = {}


def _slim_resource(resource: Resource, form: SlimForm) -> Resource:
    def make() -> Resource:
        attributes = cut_attributes(dict(resource_attributes(resource, form.content)), form.attribute_bytes, {})
        return Resource(attributes, form.content.text(safe_text(resource.schema_url or "")))

    slim: Resource = _once(resource, form, make)
    return slim


def _slim_scope(scope: InstrumentationScope | None, form: SlimForm) -> InstrumentationScope | None:
    if scope is None:
        return None

    def make() -> InstrumentationScope:
        parts = scope_parts(scope, form.content)
        attributes = cut_attributes(dict(parts["attributes"]), form.attribute_bytes, {})
        url = form.content.text(safe_text(scope.schema_url or ""))
        return InstrumentationScope(parts["name"], parts.get("version"), url, attributes)

    slim: InstrumentationScope = _once(scope, form, make)
    return slim


def _once(original: object, form: SlimForm, make: Callable[[], Any]) -> Any:
    held = _known.get((id(original), id(form)))
    if held is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        held = _known[id(original), id(form)] = (original, form, make())
    return held[2]
