"""A span that came, as it may be stored: cleaned by the same rules as the spans that are made here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from otel_gym.content import body_of_text
from otel_gym.content_policy import ContentPolicy
from otel_gym.conventions import (
    BODY_BYTES,
    BODY_ENCODING,
    BODY_SHA256,
    REQUEST_BODY,
    RESPONSE_BODY,
    STORE_VERSION,
)
from otel_gym.ingest.kept_content import may_say_content
from otel_gym.store.span import Origin, SpanEvent, StoredSpan
from otel_gym.tracing.encode import body_attributes, without_queries

_BODIES = (REQUEST_BODY, RESPONSE_BODY)
_EXCEPTION = "exception."
_STORE_VERSION = "gym.store.version"
# Names and beginnings of names under which instrumentations of others put what was said.
_FOREIGN_CONTENT = (
    *_BODIES,
    "gen_ai.prompt.",
    "gen_ai.completion.",
    "gen_ai.event.content",
    "input.value",
    "output.value",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.completions",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "exception.stacktrace",
)
_MOST_KEPT = 256


class Cleaner:
    """Cleans spans in place, all but what they share: of a resource and a scope one is made for all their spans."""

    def __init__(self, policy: ContentPolicy) -> None:
        self._policy = policy
        # By identity; the objects are held, so that no id is used again.
        self._resources: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._origins: dict[int, tuple[Origin, Origin]] = {}

    def clean(self, span: StoredSpan) -> StoredSpan:
        policy = self._policy
        span.name = policy.text(span.name)
        if span.trace_state:
            span.trace_state = policy.text(span.trace_state)
        span.attributes = self._attributes_of_span(span)
        for event in span.events:
            event.name, event.attributes = policy.text(event.name), self._attributes_of_event(event)
        for link in span.links:
            link.attributes = self._attributes(link.attributes)
        if span.status_message is not None:
            span.status_message = policy.message(span.status_message) if policy.bodies else None
        if span.scope_name is not None:
            span.scope_name = policy.text(span.scope_name)
        span.resource, span.origin = self._resource(span.resource), self._origin(span.origin)
        return span

    def _attributes_of_span(self, span: StoredSpan) -> dict[str, Any]:
        attributes = span.attributes
        texts = {name: attributes[name] for name in _BODIES if isinstance(attributes.get(name), str)}
        if not texts or not self._policy.bodies:
            return self._attributes(attributes)
        cleaned = self._attributes({name: value for name, value in attributes.items() if name not in texts})
        for name, text in texts.items():
            cleaned |= self._body(name, text, attributes, f"{span.trace_id}:{name}")
        return cleaned

    def _body(self, name: str, text: str, attributes: Mapping[str, Any], series: str) -> dict[str, Any]:
        clean = partial(self._policy.body, series=series)
        encoding = attributes.get(name + BODY_ENCODING)
        if not isinstance(encoding, str):
            return {name: clean(text)}
        try:
            body = body_of_text(text, encoding)
        except ValueError:
            return {name: clean(text)}
        whole_bytes, sha256 = attributes.get(name + BODY_BYTES), attributes.get(name + BODY_SHA256)
        return body_attributes(name, replace(body, whole_bytes=whole_bytes, sha256=sha256), clean)

    def _attributes_of_event(self, event: SpanEvent) -> dict[str, Any]:
        said = {
            name: self._policy.message(value) if name.startswith(_EXCEPTION) and isinstance(value, str) else value
            for name, value in event.attributes.items()
        }
        return self._attributes(said)

    def _attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        if not self._policy.bodies:
            attributes = {name: value for name, value in attributes.items() if not _says_content(name, value)}
        return dict(self._policy.attributes(without_queries(attributes))) if attributes else {}

    def _resource(self, resource: dict[str, Any]) -> dict[str, Any]:
        known = self._resources.get(id(resource))
        if known is None:
            if len(self._resources) >= _MOST_KEPT:
                self._resources.clear()
            known = self._resources[id(resource)] = (resource, self._attributes(resource))
        return known[1]

    def _origin(self, origin: Origin) -> Origin:
        known = self._origins.get(id(origin))
        if known is None:
            if len(self._origins) >= _MOST_KEPT:
                self._origins.clear()
            attributes = {**self._attributes(origin.scope_attributes), _STORE_VERSION: STORE_VERSION}
            cleaned = replace(
                origin,
                scope_version=self._policy.text(origin.scope_version),
                scope_attributes=attributes,
                schema_url=self._policy.text(origin.schema_url),
                resource_schema_url=self._policy.text(origin.resource_schema_url),
            )
            known = self._origins[id(origin)] = (origin, cleaned)
        return known[1]


def _says_content(name: str, value: Any) -> bool:
    return name.startswith(_FOREIGN_CONTENT) or may_say_content(name, value)
