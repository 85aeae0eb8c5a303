"""Which rollouts of a store count: those that no later attempt of the same task supersedes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from otel_gym.identity import RolloutIndices, indices_from_rollout_id
from otel_gym.store.reader import RolloutSpans, Store


def counting_rollouts(
    rollouts: Iterable[RolloutSpans], attempts: LaterAttempts, *, named: bool
) -> Iterator[RolloutSpans]:
    """Those that no later attempt supersedes, or, with ``named``, all: they were asked for one by one."""
    for rollout in rollouts:
        if named or not (rollout.is_ambiguous or attempts.supersede(rollout)):
            yield rollout


class LaterAttempts:
    """Which attempts of a task's rollout a store holds. Only those folders are read that may hold a later one."""

    def __init__(self, store: Store, rollout_ids: Sequence[str] | None = None) -> None:
        """``rollout_ids`` are those of the store, where they are known."""
        self._store = store
        self._attempts: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for rollout_id in store.rollout_ids() if rollout_ids is None else rollout_ids:
            indices = indices_from_rollout_id(rollout_id)
            if indices is not None:
                self._attempts.setdefault(_place(indices), []).append((indices.attempt, rollout_id))
        self._runs: dict[str, frozenset[str | None]] = {}

    def supersede(self, rollout: RolloutSpans) -> bool:
        """Whether the same run has a later attempt."""
        indices = indices_from_rollout_id(rollout.rollout_id)
        if indices is None:
            return False
        later = [name for attempt, name in self._attempts.get(_place(indices), ()) if attempt > indices.attempt]
        return any(rollout.run_id in self._runs_of(name) for name in later)

    def _runs_of(self, rollout_id: str) -> frozenset[str | None]:
        if rollout_id not in self._runs:
            self._runs[rollout_id] = frozenset(rollout.run_id for rollout in self._store.rollouts(rollout_id))
        return self._runs[rollout_id]


def _place(indices: RolloutIndices) -> tuple[int, int]:
    return indices.task_index, indices.rollout_index
