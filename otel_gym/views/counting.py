"""Of each rollout the execution that counts, and how many model calls the others have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.layers import is_model_call, without_client_layer


class CountingExecutions:
    """Rollouts, each with the spans of its counting execution alone.

    ``calls_left_out`` grows as they are drawn: model calls of earlier or unfinished executions, and ambiguous ones.
    """

    def __init__(self, rollouts: Iterable[RolloutSpans]) -> None:
        self._rollouts = rollouts
        self.calls_left_out = 0

    def __iter__(self) -> Iterator[RolloutSpans]:
        for rollout in self._rollouts:
            counting = rollout.with_spans(rollout.executions().counting.spans)
            self.calls_left_out += _calls(rollout) - _calls(counting)
            yield counting


def _calls(rollout: RolloutSpans) -> int:
    return sum(map(is_model_call, without_client_layer(rollout).spans))
