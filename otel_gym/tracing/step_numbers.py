"""The number of each agent's next step, from 1."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

# Of a process that knows rollouts by their ids alone: how many agents it remembers, the newest.
_MOST_AGENTS = 4096


class StepNumbers:
    """Without a lock: each step is one that no other thread can cut in two."""

    def __init__(self) -> None:
        self._next: dict[Hashable, count[int]] = {}

    def take(self, agent: Hashable, given: int | None) -> int:
        """``given``, if it is not None; the agent's next step is then the one after it."""
        if len(self._next) >= _MOST_AGENTS and agent not in self._next:
            self._next.pop(next(iter(self._next)), None)
        if given is None:
            return next(self._next.setdefault(agent, count(1)))
        self._next[agent] = count(given + 1)
        return given
