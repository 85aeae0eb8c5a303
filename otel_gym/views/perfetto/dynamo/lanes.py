"""Lanes for slices that come in whatever order, most of them in that of their ends, as they are written."""

from __future__ import annotations

from bisect import bisect_right, insort

import msgspec


class OnlineLanes(msgspec.Struct, gc=False):
    """Nothing overlaps on a lane: one holds what lies between its first start and its last end, and gets more at these.

    What comes in the order of ends has as many lanes as there are at once. Most have one lane: what the others need,
    (last end, lane) in order, and the first start of lane n + 1, is made with the second.
    """

    _first_ns: int = -1
    _last_ns: int = -1
    _others: list[tuple[int, int]] | None = None
    _starts: list[int] | None = None

    def lane_of(self, start_ns: int, end_ns: int) -> int:
        """The number of its lane, from 0. What has no length takes a nanosecond."""
        end_ns = max(end_ns, start_ns + 1)
        if self._others is None or self._starts is None:
            if self._takes_first(start_ns, end_ns):
                return 0
            self._others, self._starts = [], []
        # Of the lanes that are free then, the one that was busy last: so there are no more than needed.
        at = bisect_right(self._others, (start_ns, len(self._others) + 1)) - 1
        if (at < 0 or self._others[at][0] < self._last_ns) and self._takes_first(start_ns, end_ns):
            return 0
        if at >= 0:
            lane = self._others.pop(at)[1]
        else:
            lane = _before(self._starts, start_ns, end_ns)
            if lane:
                return lane
            self._starts.append(start_ns)
            lane = len(self._starts)
        insort(self._others, (end_ns, lane))
        return lane

    def _takes_first(self, start_ns: int, end_ns: int) -> bool:
        if start_ns >= self._last_ns:
            if self._last_ns < 0:
                self._first_ns = start_ns
            self._last_ns = end_ns
            return True
        if end_ns <= self._first_ns:
            self._first_ns = start_ns
            return True
        return False


def _before(starts: list[int], start_ns: int, end_ns: int) -> int:
    """A lane that begins after it; 0 if there is none, as always where things come in the order of their ends."""
    for number, first_ns in enumerate(starts):
        if end_ns <= first_ns:
            starts[number] = start_ns
            return number + 1
    return 0
