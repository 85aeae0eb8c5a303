"""All rollouts of a run on one time axis, a row each or a row a worker: stragglers and idle gaps are seen at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from otel_gym import conventions as names
from otel_gym.store.executions import Execution
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.agent_tree import is_tool
from otel_gym.views.layers import is_model_call
from otel_gym.views.perfetto.lanes import Lanes
from otel_gym.views.perfetto.shapes import Counter, Process, Slice, Track
from otel_gym.views.perfetto.timeline import last_moment, status_of
from otel_gym.views.rewards import reward_of

Rows = Literal["rollout", "worker"]
ROWS = ("rollout", "worker")

_ROLLOUT, _PHASE = "rollout", "phase"
# Where a root names the process that ran it: the first of these that it has.
_WORKER_NAMES = ("service.instance.id", "process.pid", "host.name")


class _Row(msgspec.Struct, eq=False):
    rollout: str
    worker: str | None
    made: Slice
    calls: list[tuple[int, int]]


def overview(rollouts: Iterable[RolloutSpans], rows: Rows = "rollout") -> Iterator[Process]:
    """One process a run. Of each rollout the execution that counts is shown, with when models and tools were busy."""
    runs: dict[str | None, list[_Row]] = {}
    for rollout in rollouts:
        row = _row_of(rollout)
        if row is not None:
            runs.setdefault(rollout.run_id, []).append(row)
    for run_id, of_run in runs.items():
        of_run.sort(key=lambda row: (row.made.start_ns, row.rollout))
        tracks = _by_worker(of_run) if rows == "worker" else [Track(row.rollout, [[row.made]]) for row in of_run]
        name = "rollouts of no run" if run_id is None else f"run {run_id}"
        yield Process(f"{name}: {len(of_run)} rollouts", [Track("run", counters=_counters(of_run)), *tracks])


def _row_of(rollout: RolloutSpans) -> _Row | None:
    executions = rollout.executions()
    counting = executions.counting
    if not counting.spans:
        return None
    start_ns = min(span.start_ns for span in counting.spans)
    end_ns = max(map(last_moment, counting.spans))
    root = counting.root
    if root is not None:
        start_ns, end_ns = min(start_ns, root.start_ns), end_ns if root.end_ns is None else max(root.end_ns, start_ns)
    status = status_of(counting)
    reward = reward_of(executions, counting)
    calls = _intervals(span for span in counting.spans if is_model_call(span))
    tools = _intervals(span for span in counting.spans if is_tool(span))
    args: dict[str, Any] = {"rollout_id": rollout.rollout_id, "model_calls": len(calls), "tool_calls": len(tools)}
    for name, value in (("reward", reward), ("status", status), ("run_id", rollout.run_id)):
        if value is not None:
            args[name] = value
    made = Slice("rollout", start_ns, end_ns, _ROLLOUT, args, status == "error")
    made.children += _phases(calls, tools, made)
    return _Row(rollout.rollout_id, _worker_of(counting), made, calls)


def _worker_of(execution: Execution) -> str | None:
    resource = execution.root.resource if execution.root is not None else execution.spans[0].resource
    return next((f"{name} {resource[name]}" for name in _WORKER_NAMES if name in resource), None)


def _intervals(spans: Iterable[StoredSpan]) -> list[tuple[int, int]]:
    """Those whose times are known."""
    return [(span.start_ns, last_moment(span)) for span in spans if span.attributes.get(names.TIME_KNOWN) is not False]


def _phases(calls: Sequence[tuple[int, int]], tools: Sequence[tuple[int, int]], within: Slice) -> Iterator[Slice]:
    """When a model was at work, else when a tool was; between them the harness was, or nothing."""
    edges: list[tuple[int, int]] = []
    for weight, intervals in ((1 << 32, calls), (1, tools)):
        for start, end in intervals:
            begin, stop = max(start, within.start_ns), min(end, within.end_ns)
            if begin < stop:
                edges += [(begin, weight), (stop, -weight)]
    edges.sort()
    busy, phase, since = 0, "", 0
    for time_ns, weight in edges:
        busy += weight
        now = "model" if busy >= 1 << 32 else "tool" if busy else ""
        if now == phase:
            continue
        if phase and since < time_ns:
            yield Slice(phase, since, time_ns, _PHASE, {})
        phase, since = now, time_ns


def _by_worker(rows: Sequence[_Row]) -> list[Track]:
    """A row each, more of them where a worker ran several rollouts at once; without a name all are of one worker."""
    workers: dict[str, Lanes] = {}
    for row in rows:
        workers.setdefault(row.worker or "rollouts", Lanes()).add(row.made, None)
    return [Track(name, lanes.lanes) for name, lanes in workers.items()]


def _counters(rows: Sequence[_Row]) -> list[Counter]:
    rollouts = [(row.made.start_ns, row.made.end_ns) for row in rows]
    calls = [interval for row in rows for interval in row.calls]
    return [
        Counter(name, unit, _running(intervals))
        for name, unit, intervals in (
            ("concurrent rollouts", "rollouts", rollouts),
            ("concurrent model calls", "calls", calls),
        )
        if intervals
    ]


def _running(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    edges = sorted(edge for start, end in intervals for edge in ((start, 1), (end, -1)))
    points: dict[int, float] = {}
    number = 0
    for time_ns, change in edges:
        number += change
        points[time_ns] = number
    return list(points.items())
