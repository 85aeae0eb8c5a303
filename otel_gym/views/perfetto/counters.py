"""Numbers over time: how long the context was, how fast tokens came, how many calls ran at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from otel_gym.store.span import StoredSpan
from otel_gym.views.perfetto.flows import Call
from otel_gym.views.perfetto.shapes import Counter
from otel_gym.views.perfetto.stages import first_content_ns
from otel_gym.wire.usage import token_count

_INPUT = "gen_ai.usage.input_tokens"
_OUTPUT = "gen_ai.usage.output_tokens"
_CACHED = "gen_ai.usage.cache_read.input_tokens"


def counters_of_group(calls: Sequence[Call], end_ns: int) -> list[Counter]:
    """Of one agent: what its calls were sent, from each on until the rollout's ``end_ns``."""
    found = []
    for name, attribute in (("context tokens", _INPUT), ("cached tokens", _CACHED)):
        points: list[tuple[int, float]] = [
            (call.slice.start_ns, tokens) for call in calls if (tokens := _count(call.span, attribute)) is not None
        ]
        if points:
            found.append(Counter(name, "tokens", _closed(points, end_ns)))
    return found


def counters_of_rollout(calls: Sequence[Call], end_ns: int) -> list[Counter]:
    counters = [
        Counter("concurrent calls", "calls", at_once((call.slice.start_ns, call.slice.end_ns) for call in calls)),
        Counter("output tokens/s", "tokens/s", _sums(_rates(calls))),
        Counter("cumulative tokens", "tokens", _closed(_sums(_totals(calls)), end_ns)),
    ]
    return [counter for counter in counters if counter.points]


def _closed(points: list[tuple[int, float]], end_ns: int) -> list[tuple[int, float]]:
    """With a 0 where the rollout ends: a counter has no end, it would stand at its last value beside later rollouts."""
    return [*points, (max(end_ns, points[-1][0] + 1), 0)] if points else []


def at_once(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, float]]:
    """How many of them there are, a point for each time at which that changes."""
    return _sums([edge for start, end in intervals for edge in ((start, 1), (end, -1))])


_Changes = list[tuple[int, float]]


def _rates(calls: Sequence[Call]) -> _Changes:
    """From a call's first token, or where that is unknown its start, to its end."""
    changes: _Changes = []
    for call in calls:
        tokens = _count(call.span, _OUTPUT)
        start = first_content_ns(call.span) or call.slice.start_ns
        took = call.slice.end_ns - start
        if tokens is not None and took > 0 and call.span.end_ns is not None:
            rate = tokens * 10**9 / took
            changes += [(start, rate), (call.slice.end_ns, -rate)]
    return changes


def _totals(calls: Sequence[Call]) -> _Changes:
    changes: _Changes = []
    for call in calls:
        told = [tokens for name in (_INPUT, _OUTPUT) if (tokens := _count(call.span, name)) is not None]
        if told:
            changes.append((call.slice.end_ns, sum(told)))
    return changes


def _sums(changes: _Changes) -> list[tuple[int, float]]:
    """The running sum, a point for each time."""
    points: dict[int, float] = {}
    total: float = 0
    for time_ns, change in sorted(changes):
        total += change
        points[time_ns] = max(total if type(total) is int else round(total, 6), 0)
    return list(points.items())


def _count(span: StoredSpan, name: str) -> int | None:
    return token_count(span.attributes.get(name))
