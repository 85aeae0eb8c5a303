"""When what a record of Dynamo's tells of began and ended, as Dynamo's own converter reads it. UTC nanoseconds."""

from __future__ import annotations

_NS_OF_MS = 10**6
_LAST_NS = 2**63
_LAST_MS = _LAST_NS // _NS_OF_MS
_THIS_AGE_MS = _LAST_MS // 2


def moment_ns(time_ms: int | None) -> int | None:
    """A UNIX time of a record; None where it gives none that can be."""
    return time_ms * _NS_OF_MS if time_ms is not None and 0 < time_ms <= _LAST_MS else None


def length_ns(duration_ms: float | None) -> int | None:
    """A duration of a record; None where it gives none that can be."""
    return round(duration_ms * 1e6) if duration_ms is not None and 0 <= duration_ms <= _LAST_MS else None


def request_times(received_ms: int | None, event_ms: int | None, total_ms: float | None) -> tuple[int, int] | None:
    """From received to finished; where one of them is missing, the record's own time stands for it."""
    if received_ms is not None and total_ms is not None and 0 < received_ms <= _THIS_AGE_MS >= total_ms >= 0:
        start_ns = received_ms * _NS_OF_MS  # almost always
        return start_ns, start_ns + round(total_ms * 1e6)
    return _odd_request_times(received_ms, event_ms, total_ms)


def _odd_request_times(received_ms: int | None, event_ms: int | None, total_ms: float | None) -> tuple[int, int] | None:
    start_ns = moment_ns(received_ms) or moment_ns(event_ms)
    if start_ns is None:
        return None
    total_ns = length_ns(total_ms)
    if total_ns is not None:
        return start_ns, start_ns + total_ns if start_ns + total_ns < _LAST_NS else start_ns
    return start_ns, max(start_ns, moment_ns(event_ms) or start_ns)


def stages(
    took_ns: int, wait_ms: float | None, prefill_ms: float | None, ttft_ms: float | None
) -> tuple[int, int, int | None]:
    """Where the wait and, from there, the prefill end, and where the decoding begins: ns after the start.

    Both end at the first token at the latest, or where that is unknown at the end; then there is no decoding. A stage
    that has no length was not told of.
    """
    first_ns = took_ns if ttft_ms is None else _within(round(ttft_ms * 1e6), took_ns)
    wait_end = 0 if wait_ms is None else _within(round(wait_ms * 1e6), first_ns)
    prefill_end = wait_end if prefill_ms is None else wait_end + _within(round(prefill_ms * 1e6), first_ns - wait_end)
    return wait_end, prefill_end, None if ttft_ms is None else first_ns


def _within(time_ns: int, last_ns: int) -> int:
    if time_ns > last_ns:
        return last_ns
    return time_ns if time_ns > 0 else 0


def tool_times(
    started_ms: int | None, ended_ms: int | None, duration_ms: float | None, event_ms: int | None, begun_ms: int | None
) -> tuple[int, int] | None:
    """Of a tool that has ended, by what its last record says; ``begun_ms`` is what the record of its start does.

    Both times of the last record count most, if they differ; then its start, or its end, with the duration; then both
    times as they are; then ``begun_ms``. None where they contradict each other, and where there is an end alone.
    """
    started_ns, ended_ns = moment_ns(started_ms), moment_ns(ended_ms)
    if started_ns is not None and ended_ns is not None and ended_ns > started_ns:
        return started_ns, ended_ns
    end_ns = ended_ns or moment_ns(event_ms)
    took_ns = length_ns(duration_ms)
    if took_ns:
        if started_ns is not None:
            return started_ns, min(started_ns + took_ns, _LAST_NS - 1)
        if end_ns is not None and end_ns > took_ns:
            return end_ns - took_ns, end_ns
    if started_ns is not None and started_ns == ended_ns:  # both are whole milliseconds
        return started_ns, ended_ns
    begun_ns = moment_ns(begun_ms)
    if begun_ns is not None and end_ns is not None and end_ns >= begun_ns:
        return begun_ns, end_ns
    return None
