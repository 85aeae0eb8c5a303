"""A finished SDK span, with its payload, as one line of OTLP/JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import StatusCode

from otel_gym.content import (
    MOST_REMEMBERED_NAMES,
    KeptBody,
    body_text,
    described,
    known,
    safe_attributes,
    safe_text,
    safe_value,
)
from otel_gym.content_policy import DEFAULT_POLICY, ContentPolicy
from otel_gym.conventions import (
    BODY_BYTES,
    BODY_ENCODING,
    BODY_SHA256,
    CONTENT_CUT,
    CONTENT_REPLACED,
    REQUEST_BODY,
    RESPONSE_BODY,
    SCHEMA_URL,
    STORE_VERSION,
)
from otel_gym.settings import Settings
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.otlp_json import encode_attributes, encode_json, encode_strict_json, key_values
from otel_gym.tracing.membership import length_limit, plain_attributes
from otel_gym.tracing.payloads import Payload

# About what a SERVER span holds in memory while it waits: it has no long texts.
SERVER_SPAN_BYTES = 4096

_EXCEPTION = "exception."
_EXCEPTION_TEXTS = frozenset({"exception.message", "exception.stacktrace"})
_IS_REMOTE_KNOWN = 0x100
_IS_REMOTE = 0x200
_MOST_KNOWN = 1024
_LAST_NS = 2**63 - 1


def content_of(settings: Settings, directory: Path) -> ContentOnce | None:
    """What keeps content once in a writer's files; None where it is off."""
    return ContentOnce(BlobStore(directory, fsync=settings.syncs)) if settings.content_once else None


def encode_span(
    span: ReadableSpan,
    payload: Payload | None = None,
    content: ContentPolicy = DEFAULT_POLICY,
    identity: Mapping[str, Any] | None = None,
    rollout_id: str = "",
    once: ContentOnce | None = None,
) -> bytes:
    """One TracesData with one span, and its newline. A span that has not ended has no end time.

    ``payload`` and ``identity`` hold what the span's own attributes may have lost to a limit. ``once`` gives the
    bodies of ``payload`` their stored form; only the thread that writes may pass it.
    """
    head, tail = _envelope(span.resource, span.instrumentation_scope, content)
    store = None if once is None else partial(_stored, once, span, rollout_id)
    try:
        try:
            pieces = _Parts(span, payload, content, identity, store).pieces()
        except Exception:
            # Some text or value that JSON cannot carry: the same again, made safe on the way.
            if once is not None:
                once.failed(rollout_id)
            pieces = SafeParts(span, payload, content, identity, store).pieces()
    except Exception:
        if once is not None:
            once.failed(rollout_id)  # there is no line that a later one could build on
        raise
    return b"".join([head, *pieces, tail])


def _stored(once: ContentOnce, span: ReadableSpan, rollout_id: str, bodies: dict[str, Any]) -> dict[str, Any]:
    return once.stored(bodies, rollout_id, f"{span.context.span_id:016x}")


class _Parts:
    """The parts of a span, redacted, and its OTLP/JSON."""

    def __init__(
        self,
        span: ReadableSpan,
        payload: Payload | None,
        content: ContentPolicy,
        identity: Mapping[str, Any] | None,
        store: Callable[[dict[str, Any]], dict[str, Any]] | None,
    ) -> None:
        self._span = span
        self._store = store
        self._payload = payload
        self._content = content
        # The ids last: in a payload they may have been cut.
        self._beside = {**(payload.attributes if payload else {}), **(identity or {})}

    def pieces(self) -> list[bytes]:
        """The span's JSON object, cut in pieces: bodies are long, and joined once, with their line."""
        span, context, parent = self._span, self._span.context, self._span.parent
        flags = int(context.trace_flags) | _IS_REMOTE_KNOWN
        pieces = [b'{"traceId":"%032x","spanId":"%016x"' % (context.trace_id, context.span_id)]
        if context.trace_state:
            pieces.append(b',"traceState":%b' % encode_json(self.text(context.trace_state.to_header())))
        if parent is not None:
            pieces.append(b',"parentSpanId":"%016x"' % parent.span_id)
            flags |= _IS_REMOTE if parent.is_remote else 0
        name = encode_strict_json(self.text(span.name))
        pieces.append(
            b',"flags":%d,"name":%b,"kind":%d,"startTimeUnixNano":"%d"'
            % (flags, name, span.kind.value + 1, span.start_time or 0)
        )
        end = span.end_time
        if end is not None:
            # What a program says it is, also before the start; but a time, and not 0, which would mean no end.
            pieces.append(b',"endTimeUnixNano":"%d"' % (end if 0 < end <= _LAST_NS else min(max(end, 1), _LAST_NS)))
        if span.status.status_code is not StatusCode.UNSET:
            pieces.append(b',"status":%b' % encode_strict_json(self._status()))
        if span._events:
            pieces.append(b',"events":[%b]' % b",".join([self._event(event) for event in span.events]))
        if span._links:
            pieces.append(b',"links":[%b]' % b",".join([self._link(link) for link in span.links]))
        pieces += (b',"attributes":', encode_attributes(self.all_attributes()))
        for kind, count in (
            (b"Attributes", self.dropped_attributes()),
            (b"Events", span.dropped_events),
            (b"Links", span.dropped_links),
        ):
            if count:
                pieces.append(b',"dropped%bCount":%d' % (kind, count))
        pieces.append(b"}")
        return pieces

    def all_attributes(self) -> Mapping[str, Any]:
        """Of the span, its payload and its bodies. Read last: what else was replaced may be counted here."""
        plain = plain_attributes(self._span)
        attributes = self._attributes({**plain, **self._beside} if self._beside else plain)
        if self._payload is not None:
            attributes = {**attributes, **self._bodies(self._payload)}
        limit = length_limit(self._span)
        if limit is not None and (cut := self._cut_at(limit, plain)):
            attributes = {**attributes, CONTENT_CUT: cut}
        return attributes

    def _cut_at(self, limit: int, plain: Mapping[str, Any]) -> int:
        """How many texts are as long as the limit, less those that are written whole from beside the span."""
        texts = [value for name, value in plain.items() if isinstance(value, str) and name not in self._beside]
        return sum(len(text) >= limit for text in texts)

    def text(self, text: str) -> str:
        return self._content.text(self._safe_text(text))

    def _safe_text(self, text: str) -> str:
        return text

    def _without_urls(self, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Attributes of an event; texts of an exception may name the URL that was asked for, and repeat content."""
        return {
            name: self._content.message(self._safe_text(value)) if str(name).startswith(_EXCEPTION) else value
            for name, value in (attributes or {}).items()
            if self._content.bodies or name not in _EXCEPTION_TEXTS
        }

    def _attributes(self, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return self._content.attributes(without_queries(attributes)) if attributes else {}

    def dropped_attributes(self) -> int:
        """What is lost for good: what limits dropped, less what is written from beside the span."""
        dropped = self._span.dropped_attributes
        if not dropped:
            return 0
        attributes = plain_attributes(self._span)
        return max(0, dropped - sum(name not in attributes for name in self._beside))

    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = {"code": self._span.status.status_code.value}
        message = self.status_message()
        return {**status, "message": message} if message else status

    def status_message(self) -> str | None:
        description = self._span.status.description
        return self._content.message(self._safe_text(description)) if description and self._content.bodies else None

    def _event(self, event: Any) -> bytes:
        return b'{"timeUnixNano":"%d","name":%b,"attributes":%b%b}' % (
            event.timestamp,
            encode_strict_json(self.text(event.name)),
            encode_attributes(self.event_attributes(event)),
            _dropped(event),
        )

    def event_attributes(self, event: Any) -> Mapping[str, Any]:
        return self._attributes(self._without_urls(event.attributes))

    def link_attributes(self, link: Any) -> Mapping[str, Any]:
        return self._attributes(link.attributes)

    def _link(self, link: Any) -> bytes:
        return b'{"traceId":"%032x","spanId":"%016x","attributes":%b%b}' % (
            link.context.trace_id,
            link.context.span_id,
            encode_attributes(self.link_attributes(link)),
            _dropped(link),
        )

    def _bodies(self, payload: Payload) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for name, body in ((REQUEST_BODY, payload.request), (RESPONSE_BODY, payload.response)):
            if body is not None:
                series = f"{self._span.context.trace_id:x}:{name}"
                attributes |= body_attributes(name, body, partial(self._content.body, series=series))
        return self._store(attributes) if self._store and attributes else attributes


class SafeParts(_Parts):
    """The same with every text and value made safe, and what was replaced counted."""

    _replaced = 0

    def _safe_text(self, text: Any) -> str:
        safe, replaced = safe_value(described(text))
        self._replaced += replaced
        return str(safe)

    def _attributes(self, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
        safe, replaced = safe_attributes(attributes or {})
        counted = safe.pop(CONTENT_REPLACED, 0)  # by capture, in the bodies
        self._replaced += replaced + (counted if isinstance(counted, int) else 0)
        return super()._attributes(safe)

    def all_attributes(self) -> Mapping[str, Any]:
        attributes = super().all_attributes()
        return {**attributes, CONTENT_REPLACED: self._replaced} if self._replaced else attributes


def resource_attributes(resource: Resource, content: ContentPolicy) -> Mapping[str, Any]:
    return content.attributes(safe_attributes(resource.attributes)[0])


def scope_parts(scope: InstrumentationScope, content: ContentPolicy) -> dict[str, Any]:
    """Its name, version and attributes, each as it may be stored and sent."""
    parts: dict[str, Any] = {
        "name": content.text(safe_text(described(scope.name))),
        "attributes": content.attributes(safe_attributes(scope.attributes or {})[0]),
    }
    return {**parts, "version": content.text(safe_text(described(scope.version)))} if scope.version else parts


def _dropped(part: Any) -> bytes:
    """The count of an event or a link."""
    dropped = part.dropped_attributes
    return b',"droppedAttributesCount":%d' % dropped if dropped else b""


# Where HTTP instrumentations, old and new, put a URL with its query. Clients send keys in it.
_QUERY = "url.query"
_TARGET = "http.target"
# The names of a span's attributes → those among them that may hold a query.
_with_queries: dict[tuple[Any, ...], tuple[str, ...]] = {}


def _may_hold_query(name: Any) -> bool:
    return isinstance(name, str) and (name == _TARGET or name.startswith("url.") or name.endswith(".url"))


def without_queries(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes with the queries of URLs left out."""
    names = tuple(attributes)
    found = _with_queries.get(names)
    if found is None:
        found = tuple(filter(_may_hold_query, names))
        if len(_with_queries) >= _MOST_KNOWN:
            _with_queries.clear()
        if len(names) <= MOST_REMEMBERED_NAMES:
            _with_queries[names] = found
    if not found:
        return attributes
    cut = {name: _without_query(attributes[name]) for name in found if name != _QUERY}
    return {name: cut.get(name, value) for name, value in attributes.items() if name != _QUERY}


def _without_query(value: Any) -> Any:
    if isinstance(value, str):
        return value.partition("?")[0]
    return [_without_query(item) for item in value] if isinstance(value, list | tuple) else value


def body_attributes(name: str, body: KeptBody, clean: Callable[[str], str]) -> dict[str, Any]:
    """The attributes that stand for a body, its secrets taken out by ``clean``."""
    text, encoding = body_text(body)
    if encoding is None:
        text = clean(text)
    elif body.coding is None or _is_text(body.content):
        # No UTF-8, yet its secrets are ASCII: every other byte comes back as it was. Or text that says of itself
        # that it is compressed.
        text, encoding = body_text(KeptBody(_cleaned_bytes(body.content, clean), body.coding))
    return known(
        {
            name: text,
            name + BODY_ENCODING: encoding,
            name + BODY_BYTES: body.whole_bytes,
            name + BODY_SHA256: body.sha256,
        }
    )


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _cleaned_bytes(content: bytes, clean: Callable[[str], str]) -> bytes:
    return clean(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


_envelopes: dict[tuple[int, int, int], tuple[Resource, InstrumentationScope | None, ContentPolicy, bytes, bytes]] = {}


def _envelope(resource: Resource, scope: InstrumentationScope | None, content: ContentPolicy) -> tuple[bytes, bytes]:
    """What surrounds the span in its line: the same for all spans of one scope, so encoded once.

    Found by identity, since hashing a Resource costs more than encoding it; the objects are held so
    that an id cannot be used again.
    """
    key = (id(resource), id(scope), id(content))
    held = _envelopes.get(key)
    if held is None:
        if len(_envelopes) > 64:
            _envelopes.clear()
        held = _envelopes[key] = (resource, scope, content, *_encode_envelope(resource, scope, content))
    return held[3], held[4]


def _encode_envelope(
    resource: Resource, scope: InstrumentationScope | None, content: ContentPolicy
) -> tuple[bytes, bytes]:
    scope_json: dict[str, Any] = {"name": "", "attributes": {}}
    schema_url = SCHEMA_URL
    if scope is not None:
        scope_json |= scope_parts(scope, content)
        schema_url = content.text(described(scope.schema_url or SCHEMA_URL))
    scope_json["attributes"] = key_values({**scope_json["attributes"], "gym.store.version": STORE_VERSION})
    return (
        b'{"resourceSpans":[{"resource":'
        + encode_json({"attributes": key_values(resource_attributes(resource, content))})
        + b',"scopeSpans":[{"scope":'
        + encode_json(scope_json)
        + b',"spans":[',
        b'],"schemaUrl":' + encode_json(schema_url) + b"}]}]}\n",
    )
