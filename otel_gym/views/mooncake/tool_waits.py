"""Which tools a request waited for, and how long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from otel_gym.views.mooncake.requests import Tool


class SessionTools:
    """The tools of one agent."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = sorted(tools, key=lambda tool: (tool.start_ms, tool.end_ms))
        self._starts = [tool.start_ms for tool in self._tools]
        self._latest_ends = list(accumulate((tool.end_ms for tool in self._tools), max))
        self._of_consumer: dict[str, list[Tool]] = {}
        for tool in self._tools:
            if tool.claude is not None and tool.claude.consumer_request_id is not None:
                self._of_consumer.setdefault(tool.claude.consumer_request_id, []).append(tool)

    def overlapping(self, since_ms: int, until_ms: int) -> list[Tool]:
        """Those that ran at some time of the window (2026-06)."""
        if until_ms <= since_ms:
            return []
        found = [tool for tool in self._ending_after(since_ms, until_ms) if tool.end_ms > tool.start_ms]
        return found[::-1]

    def consumed(self, request_id: str, since_ms: int, until_ms: int) -> list[Tool]:
        """Those whose results a transcript says it got, and those that ended in the window (2026-08)."""
        ended = [
            tool
            for tool in self._ending_after(since_ms, until_ms + 1)
            if tool.end_ms <= until_ms
            and (tool.claude is None or not (tool.claude.consumer_request_id or tool.claude.is_background))
        ]
        named = self._of_consumer.get(request_id, [])
        if not named:
            return ended[::-1]
        return sorted(named + ended[::-1], key=lambda tool: (tool.start_ms, tool.end_ms))

    def _ending_after(self, since_ms: int, before_ms: int) -> Iterator[Tool]:
        """Those that end after ``since_ms`` and began before ``before_ms``, the last first."""
        for place in range(bisect_left(self._starts, before_ms) - 1, -1, -1):
            if self._latest_ends[place] <= since_ms:
                return
            if self._tools[place].end_ms > since_ms:
                yield self._tools[place]


def time_in_tools(tools: Iterable[Tool], since_ms: int, until_ms: int) -> int:
    """How long, in ms of the window, at least one of them ran; ``tools`` in order of their starts."""
    total, reached = 0, since_ms
    for tool in tools:
        start, end = max(tool.start_ms, reached), min(tool.end_ms, until_ms)
        if end > start:
            total += end - start
            reached = end
    return total
