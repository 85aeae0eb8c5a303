"""Executions: each ``rollout`` root span is one. Those of one (run, rollout) are never added up.

A span belongs to the execution that it descends from, else to the only one whose interval encloses its start, else to
the only one that there is, else it is ambiguous. The newest finished execution counts; the others are kept and listed.
A span that names a run belongs to no other; one that names none (a server behind the URL prefix alone does not know the
run) is given to a run by the same rule.

An execution that never ended (its process was killed) lasts until the next one of its run begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from otel_gym.conventions import ROLLOUT_SPAN
from otel_gym.store.span import STATUS_ERROR, StoredSpan

SpanIds = tuple[str, str]

UNFINISHED = "unfinished"


@dataclass(slots=True)
class Execution:
    """``root`` None: spans without any ``rollout`` span. ``spans`` are in the order in which they were given."""

    root: StoredSpan | None
    spans: list[StoredSpan] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.root is not None and self.root.end_ns is not None

    @property
    def status(self) -> str | None:
        """ok, error or unfinished, by its root; without one unfinished if a span is, else not told."""
        if self.root is None:
            return UNFINISHED if any(span.end_ns is None for span in self.spans) else None
        if self.root.end_ns is None:
            return UNFINISHED
        return "error" if self.root.status == STATUS_ERROR else "ok"


@dataclass(slots=True)
class Executions:
    """The executions of one (run, rollout), oldest first, and the spans of which none can say whose they are."""

    all: list[Execution]
    ambiguous: list[StoredSpan]

    @property
    def counting(self) -> Execution:
        """The newest finished one, else the newest."""
        return next((each for each in reversed(self.all) if each.is_finished), self.all[-1])


def is_root(span: StoredSpan) -> bool:
    return span.name == ROLLOUT_SPAN and span.parent_span_id is None


def roots_of(spans: Iterable[StoredSpan]) -> list[StoredSpan]:
    """The ``rollout`` spans, oldest first."""
    return sorted(filter(is_root, spans), key=lambda root: (root.start_ns, root.span_id))


def executions_of(spans: Sequence[StoredSpan]) -> Executions:
    """The executions of one (run, rollout)."""
    roots = roots_of(spans)
    if len(roots) < 2:
        return Executions([Execution(roots[0] if roots else None, list(spans))], [])
    by_root = {ids_of(root): Execution(root) for root in roots}
    by_id = {ids_of(span): span for span in spans}
    intervals = Intervals(roots)
    ambiguous: list[StoredSpan] = []
    for span in spans:
        owner: StoredSpan | None = topmost(span, by_id)
        if owner is None or ids_of(owner) not in by_root:
            owner = intervals.only_one_around(span.start_ns)
        (ambiguous if owner is None else by_root[ids_of(owner)].spans).append(span)
    return Executions(list(by_root.values()), ambiguous)


def by_run(spans: Sequence[StoredSpan]) -> dict[str | None, list[StoredSpan]]:
    """The spans of one rollout id, each run apart, in the order given; under None those that no run can be told of."""
    named = {span.run_id for span in spans}
    if len(named) == 1:
        return {named.pop(): list(spans)}
    without_run = [span for span in spans if span.run_id is None]
    named.discard(None)
    given = _runs_given(without_run, spans, named) if without_run and named else {}
    runs: dict[str | None, list[StoredSpan]] = {}
    for span in spans:
        run_id = span.run_id
        runs.setdefault(given.get(ids_of(span)) if run_id is None else run_id, []).append(span)
    return runs


def is_ambiguous(run_id: str | None, runs: Mapping[str | None, Sequence[StoredSpan]]) -> bool:
    """Whether what stands under this run stands there only because no run can be told of it."""
    return run_id is None and len(runs) > 1 and not any(map(is_root, runs[run_id]))


def _runs_given(
    without_run: list[StoredSpan], spans: Sequence[StoredSpan], named: set[str | None]
) -> dict[SpanIds, str | None]:
    """The runs of spans that name none."""
    by_id = {ids_of(span): span for span in spans}
    roots = roots_of(spans)
    intervals = Intervals(roots)
    only_run = next(iter(named)) if len(named) == 1 and all(root.run_id for root in roots) else None
    given = {}
    for span in without_run:
        ancestor = _nearest_decided(span, by_id)
        if ancestor is None:
            ancestor = intervals.only_one_around(span.start_ns)
        given[ids_of(span)] = only_run if ancestor is None else ancestor.run_id
    return given


def _nearest_decided(span: StoredSpan, by_id: Mapping[SpanIds, StoredSpan]) -> StoredSpan | None:
    """The nearest ancestor, or the span itself, that names a run or is a ``rollout`` span."""
    return next((each for each in _line_of(span, by_id) if each.run_id is not None or is_root(each)), None)


class Intervals:
    """When each execution ran."""

    def __init__(self, roots: Sequence[StoredSpan]) -> None:
        self._spans = [(root, root.start_ns, _end_of(root, roots)) for root in roots]

    def only_one_around(self, time_ns: int) -> StoredSpan | None:
        around = [root for root, start, end in self._spans if start <= time_ns and (end is None or time_ns <= end)]
        return around[0] if len(around) == 1 else None


def _end_of(root: StoredSpan, roots: Sequence[StoredSpan]) -> int | None:
    if root.end_ns is not None:
        return root.end_ns
    later = [other.start_ns for other in roots if other.start_ns > root.start_ns and other.run_id == root.run_id]
    return min(later) - 1 if later else None


def topmost(span: StoredSpan, by_id: Mapping[SpanIds, StoredSpan]) -> StoredSpan:
    """The highest known ancestor; a damaged file's cycle of parents ends where it began."""
    *_, highest = _line_of(span, by_id)
    return highest


def _line_of(span: StoredSpan, by_id: Mapping[SpanIds, StoredSpan]) -> Iterable[StoredSpan]:
    """The span, its parent, and so on; a cycle is followed once around."""
    seen: set[str] = set()
    current: StoredSpan | None = span
    while current is not None:
        yield current
        if current.span_id in seen:
            return
        seen.add(current.span_id)
        current = None if current.parent_span_id is None else by_id.get((current.trace_id, current.parent_span_id))


def ids_of(span: StoredSpan) -> SpanIds:
    return span.trace_id, span.span_id
