"""Events of tools → the runs that they tell of, each an ``execute_tool`` span."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from otel_gym.conventions import DYNAMO_PREFIX
from otel_gym.ingest.dynamo.calls import record_attributes
from otel_gym.ingest.dynamo.reading import Row
from otel_gym.records.dynamo import TOOL_STATUSES, ToolEvent
from otel_gym.records.dynamo_times import moment_ns, tool_times

# The conventions ask for a name; Dynamo's own converter says the same.
UNKNOWN_TOOL = "unknown-tool"
_PREFIX = f"{DYNAMO_PREFIX}tool."
_PLAIN = ("started_at_unix_ms", "ended_at_unix_ms", "duration_ms", "output_tokens", "output_bytes")


@dataclass(slots=True)
class ToolRun:
    """One of ``start`` and ``end`` may be missing. Without an end it was open when the trace ended."""

    start: Row | None
    end: Row | None

    @property
    def last(self) -> Row:
        row = self.end or self.start
        assert row is not None
        return row

    @property
    def call_id(self) -> str | None:
        return _tool(self.last).tool_call_id

    def times(self) -> tuple[int, int | None] | None:
        """UTC ns. No end: it has not ended. None: unknown."""
        begun_ms = None if self.start is None else _tool(self.start).started_at_unix_ms or self.start.time_ms
        if self.end is not None:
            tool = _tool(self.end)
            return tool_times(
                tool.started_at_unix_ms, tool.ended_at_unix_ms, tool.duration_ms, self.end.time_ms, begun_ms
            )
        start_ns = moment_ns(begun_ms)
        return None if start_ns is None else (start_ns, None)

    def error_type(self) -> str | None:
        """None for one that is open, succeeded, or was cancelled."""
        if self.end is None:
            return None
        tool = _tool(self.end)
        status = TOOL_STATUSES.get(tool.status or "")
        has_failed = status == "error" or (status != "cancelled" and self.end.record.event_type == "tool_error")
        return (tool.error_type or "_OTHER") if has_failed else None

    def attributes(self) -> dict[str, Any]:
        rows = [row for row in (self.start, self.end) if row is not None]
        said: dict[str, Any] = {}
        for row in rows:  # what its end says counts more
            said |= msgspec.to_builtins(_tool(row))
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": said.get("tool_class") or UNKNOWN_TOOL,
            "gen_ai.tool.call.id": said.get("tool_call_id"),
            f"{_PREFIX}status": TOOL_STATUSES.get(said.get("status", ""), said.get("status")),
            f"{_PREFIX}name_hash": said.get("tool_name_hash"),
            f"{_PREFIX}events": [row.record.event_type for row in rows],
            **{_PREFIX + name: said.get(name) for name in _PLAIN},
            "error.type": self.error_type(),
        }
        return record_attributes(self.last, attributes, self.start)


def _tool(row: Row) -> ToolEvent:
    return row.record.tool or ToolEvent()


def tool_runs(rows: Iterable[Row]) -> list[ToolRun]:
    """Of one agent, its events oldest first: an end is that of the youngest start of its call that has none yet."""
    runs: list[ToolRun] = []
    begun: dict[str, list[ToolRun]] = {}
    for row in rows:
        call_id = _tool(row).tool_call_id
        if row.record.event_type == "tool_start":
            run = ToolRun(row, None)
            runs.append(run)
            if call_id is not None:
                begun.setdefault(call_id, []).append(run)
            continue
        waiting = begun.get(call_id or "")
        if waiting:
            waiting.pop().end = row
        else:
            runs.append(ToolRun(None, row))
    return runs
