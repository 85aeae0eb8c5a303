"""Lanes for slices that come in whatever order, most of them in that of their ends, as they are written."""

from __future__ import annotations

from bisect import bisect_right, insort


class OnlineLanes:
    """Nothing overlaps on a lane: one holds what lies between its first start and its last end, and gets more at these.

    What comes in the order of ends has as many lanes as there are at once.
    """

    __slots__ = ("_first_ns", "_last_ns", "_others", "_starts")

    def __init__(self) -> None:
        # Most have one lane: what the others need is made with the second.
        self._first_ns = self._last_ns = -1
        self._others: list[tuple[int, int]] | None = None  # (last end, lane), sorted
        self._starts: list[int] = []  # of lane n + 1

    def lane_of(self, start_ns: int, end_ns: int) -> int:
        """The number of its lane, from 0. What has no length takes a nanosecond."""
        end_ns = max(end_ns, start_ns + 1)
        if start_ns >= self._last_ns:
            if self._last_ns < 0:
                self._first_ns = start_ns
            self._last_ns = end_ns
            return 0
        if end_ns <= self._first_ns:
            self._first_ns = start_ns
            return 0
        if self._others is None:
            self._others = []
        at = bisect_right(self._others, (start_ns, len(self._others) + 1)) - 1
        if at >= 0:
            lane = self._others.pop(at)[1]
        else:
            lane = self._before(start_ns, end_ns)
            if lane:
                return lane
            self._starts.append(start_ns)
            lane = len(self._starts)
        insort(self._others, (end_ns, lane))
        return lane

    def _before(self, start_ns: int, end_ns: int) -> int:
        """A lane that begins after it; 0 if there is none, as always where things come in the order of their ends."""
        for number, first_ns in enumerate(self._starts):
            if end_ns <= first_ns:
                self._starts[number] = start_ns
                return number + 1
        return 0
