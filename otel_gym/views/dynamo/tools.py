"""A tool's span → the ``tool_start`` and ``tool_end`` or ``tool_error`` records of its run.

The last one carries all that is known of the times. What an import kept comes back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym import conventions as names
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.dynamo.places import CALL_ID, OPERATION

Record = dict[str, Any]
ToolEvent = tuple[str, int, Record]

_TOOL = names.DYNAMO_PREFIX + "tool."
_START, _END, _ERROR = "tool_start", "tool_end", "tool_error"
# What Python's frameworks say of a run that was given up.
_CANCELLED = frozenset({"aborted", "CancelledError", "KeyboardInterrupt", "GeneratorExit"})


def is_run(attributes: Mapping[str, Any]) -> bool:
    return attributes.get(OPERATION) == "execute_tool"


def events_of(span: StoredSpan) -> list[ToolEvent]:
    """Of each record its type, its time in UNIX ms, and its ``tool``, in order. Of a run without times only its end."""
    kept = span.attributes.get(_TOOL + "events")
    if isinstance(kept, list | tuple):
        return _kept_events(span, [each for each in kept if each in (_START, _END, _ERROR)])
    is_timed = span.attributes.get(names.TIME_KNOWN) is not False
    started = span.start_ns // 10**6
    times: Record = {}
    if is_timed:
        times["started_at_unix_ms"] = started
    start: ToolEvent = (_START, started, {**_name(span), "status": "running", **times})
    if span.end_ns is None:
        return [start]
    ended = span.end_ns // 10**6
    error_type = _error_type(span)
    has_failed = span.status == STATUS_ERROR or "error.type" in span.attributes
    status = "succeeded" if not has_failed else "cancelled" if error_type in _CANCELLED else "error"
    tool = _name(span) | _known(
        {
            **times,
            "ended_at_unix_ms": ended if is_timed else None,
            "status": status,
            "duration_ms": (span.end_ns - span.start_ns) / 10**6 if is_timed else None,
            "error_type": error_type,
        }
    )
    end: ToolEvent = (_ERROR if has_failed else _END, ended, _ordered(tool))
    return [start, end] if is_timed else [end]


def _kept_events(span: StoredSpan, kinds: list[str]) -> list[ToolEvent]:
    told = span.attributes
    fields = {
        name: told.get(_TOOL + name)
        for name in ("started_at_unix_ms", "ended_at_unix_ms", "status", "duration_ms", "output_tokens", "output_bytes")
    }
    fields["tool_name_hash"], fields["error_type"] = told.get(_TOOL + "name_hash"), _error_type(span)
    told_at = told.get(names.DYNAMO_PREFIX + "event_time_unix_ms")
    last = told_at if type(told_at) is int else (span.start_ns if span.end_ns is None else span.end_ns) // 10**6
    events: list[ToolEvent] = []
    for kind in kinds:
        if kind != _START:
            events.append((kind, last, _ordered(_name(span) | _known(fields))))
            continue
        start = {"status": "running", "started_at_unix_ms": fields["started_at_unix_ms"]}
        began = last if len(kinds) == 1 else span.start_ns // 10**6
        events.append((kind, began, _ordered(_name(span) | _known(start))))
    return events


# As Dynamo writes them.
_ORDER = (
    "tool_call_id",
    "tool_class",
    "started_at_unix_ms",
    "ended_at_unix_ms",
    "status",
    "duration_ms",
    "output_tokens",
    "output_bytes",
    "tool_name_hash",
    "error_type",
)


def _ordered(tool: Record) -> Record:
    return {name: tool[name] for name in _ORDER if name in tool}


def _known(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value is not None}


def _name(span: StoredSpan) -> Record:
    name = _text(span, "gen_ai.tool.name") or span.name.removeprefix("execute_tool ").strip() or "tool"
    return {"tool_call_id": _text(span, CALL_ID) or span.span_id, "tool_class": name}


def _error_type(span: StoredSpan) -> str | None:
    """None also where it says that it is not known."""
    error_type = _text(span, "error.type")
    return None if error_type == "_OTHER" else error_type


def _text(span: StoredSpan, name: str) -> str | None:
    value = span.attributes.get(name)
    return value if isinstance(value, str) and value else None
