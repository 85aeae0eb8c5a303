"""The live sink of tool events: runs of tools in a traced process, sent to where Dynamo, or the relay, is bound.

Dynamo's variables name the address at which Dynamo binds; a traced process connects to it, and never binds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, Span

from otel_gym.dynamo_settings import AGENT_TRACE, DEFAULT_TOPIC, REQUEST_TRACE, ToolEvents, read_tool_events
from otel_gym.settings import Settings
from otel_gym.tracing.live_sinks import Count
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import plain_attributes
from otel_gym.tracing.payloads import Payload
from otel_gym.tracing.tool_events import ToolEventPublisher
from otel_gym.views.dynamo.live import stored_span
from otel_gym.views.dynamo.open_spans import OpenSpans
from otel_gym.views.dynamo.places import MOST_ROOTS, Place, learn_root
from otel_gym.views.dynamo.records import Record, records_of
from otel_gym.views.dynamo.tools import is_run

LOST = "dynamo_lost_tool_events"
_START = "tool_start"


def sinks(environ: Mapping[str, str], settings: Settings, count: Count) -> list[ToolEventSink]:
    """One an endpoint. Where both schemas have the same, the newer is sent: one Dynamo takes one of them alone."""
    by_endpoint = {each.endpoint: each for each in read_tool_events(environ)}
    return [ToolEventSink(each, count) for each in by_endpoint.values()]


class ToolEventSink:
    """A run's start is sent when it starts, and its end, with all times, when it has ended."""

    def __init__(self, events: ToolEvents, count: Count) -> None:
        shape: Any = "nested" if events.schema == AGENT_TRACE else "flat"
        self._publisher = ToolEventPublisher(events.endpoint, events.topic or DEFAULT_TOPIC, shape)
        self._schema = events.schema
        self._count = count
        self._counted = 0
        self._open = OpenSpans()
        self._roots: dict[str, str] = {}

    def on_start(self, span: Span) -> None:
        place = self._open.start(span)
        attributes = plain_attributes(span)
        if is_run(attributes):
            self._send(span, attributes, place, is_start=True)

    def add(self, span: ReadableSpan, payload: Payload | None) -> None:
        attributes = payload.attributes if payload is not None and payload.attributes else plain_attributes(span)
        ended = self._open.end(span, attributes)
        if is_run(attributes):
            self._send(span, attributes, ended.place, is_start=False)

    def flush(self, timeout_s: float) -> bool:
        """Waits until what came is handed to ZeroMQ."""
        flushed = self._publisher.flush(timeout_s)
        lost = self._publisher.dropped.total()
        if lost > self._counted:
            self._count(LOST, lost - self._counted)
            self._counted = lost
        return flushed

    def _send(self, span: ReadableSpan, attributes: Mapping[str, Any], place: Place, *, is_start: bool) -> None:
        try:
            learn_root(place.context, self._roots, MOST_ROOTS)
            for record in records_of(stored_span(span, attributes), place, self._schema, roots=self._roots):
                if (record["event_type"] == _START) == is_start:
                    self._publisher.send(_on_the_wire(record))
        except Exception:
            log_once("a tool's run could not be made an event of Dynamo's")


def _on_the_wire(record: Record) -> Record:
    """A record of the newer schema is sent flat."""
    if record["schema"] != REQUEST_TRACE:
        return record | {"event_source": "harness"}
    context = record["agent_context"]
    said = {name: context[name] for name in ("session_id", "parent_session_id") if context.get(name)}
    return (
        {name: record[name] for name in ("schema", "event_type", "event_time_unix_ms")}
        | said
        | {"tool": record["tool"]}
    )
