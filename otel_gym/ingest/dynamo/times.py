"""When a request or a tool ran, of the times that its records give: none is made up."""

from __future__ import annotations

import math
from typing import NamedTuple

from otel_gym.records.dynamo import RequestMetrics, ToolEvent
from otel_gym.store.times import unix_nanoseconds

_NS_OF_MS = 10**6
_LAST_NS = 2**63


class Times(NamedTuple):
    """In UTC ns. ``end_ns`` None: it has not ended."""

    start_ns: int
    end_ns: int | None


def moment_ns(time_ms: int | None) -> int | None:
    """A time of a record; None where it gives none that can be."""
    return time_ms * _NS_OF_MS if time_ms is not None and 0 < time_ms * _NS_OF_MS < _LAST_NS else None


def length_ns(duration_ms: float | None) -> int | None:
    if duration_ms is None or not math.isfinite(duration_ms) or duration_ms < 0:
        return None
    length = unix_nanoseconds(duration_ms, "ms")
    return length if length < _LAST_NS else None


def times_of_request(request: RequestMetrics, event_time_ms: int | None) -> Times | None:
    """From received to finished; where one of them is missing, the record's own time stands for it."""
    event_ns = moment_ns(event_time_ms)
    start_ns = moment_ns(request.request_received_ms) or event_ns
    if start_ns is None:
        return None
    total_ns = length_ns(request.total_time_ms)
    end_ns = max(start_ns, event_ns or start_ns) if total_ns is None else start_ns + total_ns
    return Times(start_ns, end_ns if end_ns < _LAST_NS else start_ns)


def times_of_tool(
    tool: ToolEvent, event_time_ms: int | None, start: ToolEvent | None, start_time_ms: int | None
) -> Times | None:
    """Of a tool that has ended, by what its last record says, and ``start``, the record of its start, if there is one.

    Both times of the last record count most; then its start, or its end, with the duration; then the record of the
    start. None where they contradict each other, and where there is an end alone.
    """
    started_ns, ended_ns = moment_ns(tool.started_at_unix_ms), moment_ns(tool.ended_at_unix_ms)
    took_ns = length_ns(tool.duration_ms)
    if started_ns is not None and ended_ns is not None and ended_ns >= started_ns:
        return Times(started_ns, ended_ns)
    end_ns = ended_ns or moment_ns(event_time_ms)
    if took_ns:
        if started_ns is not None:
            return Times(started_ns, started_ns + took_ns)
        if end_ns is not None and end_ns > took_ns:
            return Times(end_ns - took_ns, end_ns)
    began_ns = None if start is None else moment_ns(start.started_at_unix_ms) or moment_ns(start_time_ms)
    if began_ns is not None and end_ns is not None and end_ns >= began_ns:
        return Times(began_ns, end_ns)
    return None
