"""Which lane each slice of a track goes to: what overlaps on one lane is lost, or its ends are swapped."""

from __future__ import annotations

from heapq import heappop, heappush

from otel_gym.views.perfetto.shapes import Lane, Slice

# Perfetto's engine takes 512; below a call are its stages.
_DEEPEST = 500


class Lanes:
    """Takes slices in the order of their starts, the longer of two first and a parent before its children.

    A slice lies within its parent where that is the innermost one open; else it goes to the first lane that is free.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self._open: list[list[Slice]] = []
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def add(self, new: Slice, parent: Slice | None) -> None:
        if parent is not None and parent.lane >= 0 and self._fits_into(new, parent):
            new.lane = parent.lane
            parent.children.append(new)
            self._open[new.lane].append(new)
            return
        while self._busy and self._busy[0][0] <= new.start_ns:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            new.lane = heappop(self._free)
        else:
            new.lane = len(self.lanes)
            self.lanes.append([])
            self._open.append([])
        self.lanes[new.lane].append(new)
        self._open[new.lane] = [new]
        heappush(self._busy, (new.closes_ns, new.lane))

    def _fits_into(self, new: Slice, parent: Slice) -> bool:
        stack = self._open[parent.lane]
        while stack and stack[-1].closes_ns <= new.start_ns:
            stack.pop()
        if len(stack) >= _DEEPEST:
            return False
        return bool(stack) and stack[-1] is parent and new.closes_ns <= parent.closes_ns and new.end_ns <= parent.end_ns
