"""Executions: each ``rollout`` root span is one. Those of one (run, rollout) are never added up."""

from __future__ import annotations

from otel_gym.conventions import ROLLOUT_SPAN
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan


def roots_of(rollout: RolloutSpans) -> list[StoredSpan]:
    """The ``rollout`` spans, oldest first."""
    return [span for span in rollout.spans if span.name == ROLLOUT_SPAN and span.parent_span_id is None]


def counting_root(rollout: RolloutSpans) -> StoredSpan | None:
    """The root of the execution that counts: the newest finished one, else the newest; None without any."""
    roots = roots_of(rollout)
    finished = [root for root in roots if root.end_ns is not None]
    return next(reversed(finished or roots), None)


def counting_execution(rollout: RolloutSpans) -> RolloutSpans:
    """The spans of the execution that counts; all of them where there is at most one."""
    return spans_of_execution(rollout, counting_root(rollout))


def execution_roots(rollout: RolloutSpans) -> list[tuple[StoredSpan | None, bool]]:
    """The root of each execution, and whether it counts; (None, …) for spans of which none can say whose they are."""
    roots = roots_of(rollout)
    if not roots:
        return [(None, True)]
    counting = counting_root(rollout)
    several: list[tuple[StoredSpan | None, bool]] = [] if len(roots) == 1 else [(None, False)]
    return [*((root, root is counting) for root in roots), *several]


def spans_of_execution(rollout: RolloutSpans, root: StoredSpan | None) -> RolloutSpans:
    """The spans of one execution, of those of none for ``root`` None; all of them where there is at most one.

    A span belongs to the execution that it descends from, else to the one whose interval its start falls into.
    """
    roots = roots_of(rollout)
    if len(roots) < 2:
        return rollout
    by_id = {(span.trace_id, span.span_id): span for span in rollout.spans}
    spans = [span for span in rollout.spans if _execution_of(span, roots, by_id) is root]
    return RolloutSpans(rollout.run_id, rollout.rollout_id, spans)


def _execution_of(
    span: StoredSpan, roots: list[StoredSpan], by_id: dict[tuple[str, str], StoredSpan]
) -> StoredSpan | None:
    top = topmost(span, by_id)
    if any(top is root for root in roots):
        return top
    around = [
        root for root in roots if root.start_ns <= span.start_ns and (root.end_ns or span.start_ns) >= span.start_ns
    ]
    return around[-1] if around else None


def topmost(span: StoredSpan, by_id: dict[tuple[str, str], StoredSpan]) -> StoredSpan:
    """The highest known ancestor; a damaged file's cycle of parents ends where it began."""
    seen: set[str] = set()
    while span.parent_span_id is not None and span.span_id not in seen:
        parent = by_id.get((span.trace_id, span.parent_span_id))
        if parent is None:
            break
        seen.add(span.span_id)
        span = parent
    return span
