"""All rollouts of a run on one time axis, a row each or a row a worker: stragglers and idle gaps are seen at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from otel_gym import conventions as names
from otel_gym.content import safe_text
from otel_gym.store.executions import Execution
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.agent_tree import is_tool, text_of
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.views.perfetto.arguments import cut
from otel_gym.views.perfetto.counters import at_once
from otel_gym.views.perfetto.flows import failed
from otel_gym.views.perfetto.lanes import Lanes
from otel_gym.views.perfetto.shapes import Counter, Instant, Process, Slice, Track
from otel_gym.views.perfetto.timeline import last_moment
from otel_gym.views.rewards import reward_of

Rows = Literal["rollout", "worker"]

_ROLLOUT, _PHASE = "rollout", "phase"
# Where a root names the process that ran it: the first of these of which it has some.
_WORKER_NAMES = (("service.instance.id",), ("host.name", "process.pid"))


class _Row(msgspec.Struct, eq=False):
    rollout: str
    worker: str | None
    made: Slice
    calls: list[tuple[int, int]]


def overview(rollouts: Iterable[RolloutSpans], rows: Rows = "rollout") -> Iterator[Process]:
    """One process a run. Of each rollout the execution that counts is shown, with when models and tools were busy."""
    runs: dict[str | None, list[_Row]] = {}
    untimed: dict[str | None, int] = {}
    for rollout in rollouts:
        rows_of_run, row = runs.setdefault(rollout.run_id, []), _row_of(rollout)
        if row is None:
            untimed[rollout.run_id] = untimed.get(rollout.run_id, 0) + 1
        else:
            rows_of_run.append(row)
    for run_id, of_run in runs.items():
        of_run.sort(key=lambda row: (row.made.start_ns, row.rollout))
        tracks = _by_worker(of_run) if rows == "worker" else [Track(row.rollout, [[row.made]]) for row in of_run]
        name = "rollouts of no run" if run_id is None else f"run {run_id}"
        left_out = f", {untimed[run_id]} more without times" if run_id in untimed else ""
        yield Process(
            f"{name}: {len(of_run)} rollout{'s' * (len(of_run) != 1)}{left_out}",
            [Track("run", counters=_counters(of_run)), *tracks],
        )


def _row_of(rollout: RolloutSpans) -> _Row | None:
    executions = rollout.executions()
    counting = executions.counting
    timed = [span for span in counting.spans if span.attributes.get(names.TIME_KNOWN) is not False]
    root = counting.root
    if all(span is root for span in timed) and len(timed) < len(counting.spans):
        return None  # a root without times of its own has those of its source's file
    start_ns = min(span.start_ns for span in timed)
    end_ns = max(map(last_moment, timed))
    if root is not None and root in timed and root.end_ns is not None:
        end_ns = max(root.end_ns, start_ns)
    status = counting.status
    reward = reward_of(executions, counting)
    called = without_client_layer(rollout.with_spans(counting.spans)).spans
    model_calls = list(filter(is_model_call, called))
    calls = _intervals(model_calls, end_ns)
    tools = _intervals(filter(is_tool, counting.spans), end_ns)
    args: dict[str, Any] = {"rollout_id": rollout.rollout_id, "model_calls": len(calls), "tool_calls": len(tools)}
    failures = [span for span in model_calls if failed(span)]
    shown = (
        ("reward", reward),
        ("status", status),
        ("run_id", rollout.run_id),
        ("failed_calls", len(failures) or None),
    )
    for name, value in shown:
        if value is not None:
            args[name] = value
    made = Slice("rollout", start_ns, end_ns, _ROLLOUT, args, status == "error")
    made.children += _phases(calls, tools, made)
    _mark(failures, made)
    return _Row(rollout.rollout_id, _worker_of(counting), made, calls)


def _worker_of(execution: Execution) -> str | None:
    resource = execution.root.resource if execution.root is not None else execution.spans[0].resource
    told = (
        " ".join(f"{name} {resource[name]}" for name in names_of_one if name in resource)
        for names_of_one in _WORKER_NAMES
    )
    return next(filter(None, told), None)


def _intervals(spans: Iterable[StoredSpan], last_ns: int) -> list[tuple[int, int]]:
    """Those whose times are known; what never ended lasts to the end."""
    return [
        (span.start_ns, last_ns if span.end_ns is None else max(span.end_ns, span.start_ns))
        for span in spans
        if span.attributes.get(names.TIME_KNOWN) is not False
    ]


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


def _mark(failures: Iterable[StoredSpan], within: Slice) -> None:
    """An instant where each of these calls ended, within the phase that went on then."""
    phases = list(within.children)
    for span in failures:
        if span.end_ns is None or span.attributes.get(names.TIME_KNOWN) is False:
            continue
        time_ns = min(max(span.end_ns, within.start_ns), within.end_ns)
        around = next((each for each in phases if isinstance(each, Slice) and _covers(each, time_ns)), within)
        args = {"call": safe_text(span.name), "span_id": span.span_id}
        error = text_of(span, names.ERROR_CATEGORY) or text_of(span, "error.type") or span.status_message
        if error:
            args["error"] = cut(error)
        around.children.append(Instant("failed call", time_ns, _PHASE, args))
    for each in (within, *phases):
        if isinstance(each, Slice):
            each.children.sort(key=_by_time)


def _covers(phase: Slice, time_ns: int) -> bool:
    return phase.start_ns < time_ns < phase.end_ns


def _by_time(child: Slice | Instant) -> tuple[int, bool]:
    return (child.time_ns, False) if isinstance(child, Instant) else (child.start_ns, True)


def _by_worker(rows: Sequence[_Row]) -> list[Track]:
    """A row each, more of them where a worker ran several rollouts at once; without a name all are of one worker."""
    workers: dict[str, Lanes] = {}
    for row in rows:
        row.made.name = f"rollout {row.rollout}"  # which the row does not say
        workers.setdefault(row.worker or "rollouts", Lanes()).add(row.made, None)
    return [Track(name, lanes.lanes) for name, lanes in workers.items()]


def _counters(rows: Sequence[_Row]) -> list[Counter]:
    rollouts = [(row.made.start_ns, row.made.end_ns) for row in rows]
    calls = [interval for row in rows for interval in row.calls]
    return [
        Counter(name, unit, at_once(intervals))
        for name, unit, intervals in (
            ("concurrent rollouts", "rollouts", rollouts),
            ("concurrent model calls", "calls", calls),
        )
        if intervals
    ]
