"""One span → Dynamo's records of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.dynamo_settings import AGENT_TRACE, REQUESTS
from otel_gym.store.span import StoredSpan
from otel_gym.views.dynamo.places import Place, context_of_record
from otel_gym.views.dynamo.requests import NO_ANSWER, Answer, is_answered, request_of
from otel_gym.views.dynamo.tools import events_of, is_run

Record = dict[str, Any]


def records_of(
    span: StoredSpan,
    place: Place,
    schema: str,
    *,
    answer: Answer = NO_ANSWER,
    block_size: int | None = None,
    roots: Mapping[str, str] | None = None,
) -> list[Record]:
    """Of an answered model call one record, of a tool's run one or two, of any other span none.

    schema      AGENT_TRACE or REQUEST_TRACE
    answer      what the bodies of the call tell
    block_size  tokens of a block, for replay hashes where token ids are known; None: without. ReplayHashError
    roots       session → the first one above it, of sessions that stand below another
    """
    told = span.attributes
    source = told.get(names.DYNAMO_PREFIX + "event_source")
    # Dynamo writes requests of no session, but in the schema that has no other place for them.
    is_bare = schema != AGENT_TRACE and not place.is_told and names.DYNAMO_PREFIX + "schema" in told
    context = {} if is_bare else context_of_record(place.context, schema, roots or {})
    if is_run(told):
        return [
            _record(schema, kind, time, _source(source, "harness"), context, "tool", tool)
            for kind, time, tool in events_of(span)
        ]
    if span.end_ns is None or not is_answered(told):
        return []
    time, request = request_of(span, answer, block_size)
    return [_record(schema, REQUESTS, time, _source(source, "dynamo"), context, "request", request)]


def _source(told: Any, otherwise: str) -> str:
    """One that Dynamo knows; an older name of harnesses is none."""
    return told if told in ("dynamo", "harness") else otherwise


def _record(schema: str, kind: str, time_ms: int, source: str, context: Record, part: str, content: Record) -> Record:
    """Keys in the order in which Dynamo writes them. A record without context has no source there either."""
    record: Record = {"schema": schema, "event_type": kind, "event_time_unix_ms": time_ms}
    if context:
        record |= {"event_source": source, "agent_context": context}
    return record | {part: content}


def line_of(event: bytes, timestamp_ms: int) -> bytes:
    """The line of a trace file; ``timestamp_ms`` counts from the start of what writes it."""
    return b'{"timestamp":%d,"event":%b}\n' % (timestamp_ms, event)


def event_json(record: Record) -> str:
    """What no strict parser takes, such as NaN in what an import kept, is null."""
    return safe_json(record)
