"""Which model calls of a store count, and of which execution of their rollout each is.

What counts is the newest finished execution of the last attempt. The calls of other executions, of earlier attempts and
of no certain run do not, and are called superseded; they are drawn where everything is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.json_lines import Row
from otel_gym.views.model_calls import StoredModelCall, model_calls


@dataclass(frozen=True, slots=True)
class CountedCall:
    """``execution`` is the span id of the ``rollout`` span; None where there is none, or none can be told."""

    call: StoredModelCall
    run_id: str | None
    rollout_id: str
    execution: str | None
    superseded: bool


def counted_calls(
    rollouts: Iterable[RolloutSpans], attempts: LaterAttempts, *, every: bool = False, named: bool = False
) -> Iterator[CountedCall]:
    """The calls that count, or, with ``every``, those of all attempts and executions, oldest first.

    ``named``: the rollouts were asked for one by one, and are drawn even where a later attempt supersedes them, or
    where they are of no certain run.
    """
    for rollout in rollouts:
        is_superseded = rollout.is_ambiguous or attempts.supersede(rollout)
        if is_superseded and not (every or named):
            continue
        for spans, execution, counts in _executions(rollout):
            if not (every or counts):
                continue
            for call in model_calls(rollout.with_spans(spans)):
                yield CountedCall(call, rollout.run_id, rollout.rollout_id, execution, is_superseded or not counts)


def model_call_rows(calls: Iterable[CountedCall]) -> Iterator[Row]:
    """A row a record; run, rollout, execution and whether it is superseded come first."""
    for each in calls:
        place: Row = {
            "run_id": each.run_id,
            "rollout_id": each.rollout_id,
            "execution": each.execution,
            "superseded": each.superseded,
        }
        # Not model_dump: it would copy every body, and recurse as deep as a hostile server nests.
        yield place | dict(each.call.record)


def _executions(rollout: RolloutSpans) -> Iterator[tuple[list[StoredSpan], str | None, bool]]:
    """The spans of each execution, its root's id, and whether it counts; last those of which none can say whose."""
    executions = rollout.executions()
    for each in executions.all:
        yield each.spans, None if each.root is None else each.root.span_id, each is executions.counting
    if executions.ambiguous:
        yield executions.ambiguous, None, False
