"""Which start belongs to which end of a tool, of records that come in whatever order."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from otel_gym.records.dynamo import ToolEvent

# Ends that tell no time of their own and came before their start are rare: so many are waited for.
_MOST_HELD = 10_000


class Told(NamedTuple):
    """A record of a tool. ``agent`` is whose it is."""

    agent: Any
    tool: ToolEvent
    event_type: str
    event_ms: int | None

    @property
    def time_ms(self) -> int:
        return self.event_ms or 0


class ToolPairs:
    """Pairs the last start before an end with it, as nested brackets are. ``key`` is the agent and the tool call."""

    def __init__(self) -> None:
        self._starts: dict[tuple[int, str | None], list[Told]] = {}
        self._held: dict[tuple[int, str | None], list[Told]] = {}
        self._held_number = 0
        # Ends that had times of their own, and no start before them: (hash of the key, time) each.
        self._ends = array("q")

    def start(self, key: tuple[int, str | None], told: Told) -> None:
        self._starts.setdefault(key, []).append(told)

    def start_of(self, key: tuple[int, str | None], end: Told) -> Told | None:
        """Takes the start that it ends away."""
        waiting = self._starts.get(key)
        if waiting is None:
            return None
        for at in range(len(waiting) - 1, -1, -1):
            if waiting[at].time_ms <= end.time_ms:
                start = waiting.pop(at)
                if not waiting:
                    del self._starts[key]
                return start
        return None

    def ended(self, key: tuple[int, str | None], end: Told) -> None:
        """It had times of its own, and no start so far."""
        self._ends.extend((hash(key), end.time_ms))

    def hold(self, key: tuple[int, str | None], end: Told) -> bool:
        """An end without times of its own, of which the start may come yet. False: there are too many of them."""
        if self._held_number >= _MOST_HELD:
            return False
        self._held_number += 1
        self._held.setdefault(key, []).append(end)
        return True

    def rest(self) -> Iterator[tuple[Told, Told | None]]:
        """What is left: ends, each with its start or None, and starts that nothing ended, each with itself."""
        ends: dict[int, list[int]] = {}
        if self._starts:
            for at in range(0, len(self._ends), 2):
                ends.setdefault(self._ends[at], []).append(self._ends[at + 1])
        for key in {**self._starts, **self._held}:
            yield from _replayed(self._starts.get(key, []), self._held.get(key, []), ends.get(hash(key), []))
        self._starts.clear()
        self._held.clear()


def _replayed(starts: list[Told], held: list[Told], ends: list[int]) -> Iterator[tuple[Told, Told | None]]:
    """In the order of time: each end takes the last start that is open."""
    told: list[tuple[int, int, Told | None]] = [(start.time_ms, 0, start) for start in starts]
    told += [(end.time_ms, 1, end) for end in held]
    told += [(time_ms, 1, None) for time_ms in ends]
    is_open: list[Told] = []
    for _, is_end, each in sorted(told, key=lambda one: one[:2]):
        if not is_end and each is not None:
            is_open.append(each)
            continue
        start = is_open.pop() if is_open else None
        if each is not None:
            yield each, start
    for start in is_open:
        yield start, start
