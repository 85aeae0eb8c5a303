"""Which requests each waits for: the one before it of its agent, and those that started an agent or took its result.

``2026-06`` and ``2026-08`` are the rules of Dynamo's own conversions of these months: an agent was started by the
request above it that had ended last when it began, or by the one that had begun last. The newer one also believes what
Claude Code's transcripts prove of a tool. The request above that begins first after the agent has ended waits for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property

from otel_gym.views.mooncake.requests import ClaudeLink, Request, Session, Skipped, Tool

OLD_RULES = "2026-06"
NEW_RULES = "2026-08"
RULES = (OLD_RULES, NEW_RULES)
_MODES = ("blocking", "background")


class Waits:
    """Requests by their places in ``requests``, which are sorted. ``wait_for`` and ``branches`` hold such places."""

    def __init__(self, requests: Sequence[Request], tools: Sequence[Tool], rules: str, skipped: Skipped) -> None:
        self._requests = requests
        self._skipped = skipped
        self.wait_for: list[list[int]] = [[] for _ in requests]
        self.branches: dict[int, list[int]] = {}
        self.before: dict[int, int] = {}
        self.parents: dict[Session, Session] = {}
        self.background: set[Session] = set()
        self._turns: dict[Session, _Turns] = {}
        self._begun_last = rules == NEW_RULES
        self._build(tools)

    def _build(self, tools: Sequence[Tool]) -> None:
        for place, request in enumerate(self._requests):
            turns = self._turns.setdefault(request.session, _Turns(self._requests))
            if turns.places:
                self.before[place] = turns.places[-1]
                self.wait_for[place].append(turns.places[-1])
            turns.places.append(place)
            if request.parent is not None:
                self.parents.setdefault(request.session, request.parent)
        links = self._claude_links(tools) if self._begun_last else {}
        for session, parent in self.parents.items():
            child, above = self._turns[session], self._turns.get(parent)
            if above is None:
                continue
            linked = links.get(session)
            if linked is None:
                self._join(child, above.spawn(child.start_ms, self._begun_last), above.first_from(child.end_ms))
            else:
                self._join(child, *linked)

    def _join(self, child: _Turns, spawn: int | None, join: int | None) -> None:
        first = child.places[0]
        if spawn is not None:
            _add(self.wait_for[first], spawn)
            _add(self.branches.setdefault(spawn, []), first)
        if join is not None:
            _add(self.wait_for[join], child.last)

    def _claude_links(self, tools: Sequence[Tool]) -> dict[Session, tuple[int, int | None]]:
        """Of an agent that a tool started: the request that asked for it, and the one that got its result."""
        if all(tool.claude is None for tool in tools):
            return {}
        places = {request.request_id: place for place, request in enumerate(self._requests)}
        links: dict[Session, tuple[int, int | None]] = {}
        for tool in tools:
            if tool.claude is None:
                continue
            child = Session(tool.session.rollout, tool.claude.child_session_id, is_said=True)
            problem = self._wrong_link(tool, tool.claude, places)
            if problem is None and child in links:
                problem = f"another tool started the agent {child.name} too"
            if problem is not None:
                tool.claude = None
                self._skipped.met(tool.place, problem, "correct its record")
            elif child in self._turns:
                consumer = tool.claude.consumer_request_id
                links[child] = (
                    places[tool.claude.source_request_id],
                    None if consumer is None else places[consumer],
                )
                if tool.claude.is_background:
                    self.background.add(child)
        return links

    def _wrong_link(self, tool: Tool, link: ClaudeLink, places: dict[str, int]) -> str | None:
        if link.execution_mode not in _MODES:
            return f"execution_mode {link.execution_mode!r} is none of {', '.join(_MODES)}"
        for request_id in filter(None, (link.source_request_id, link.consumer_request_id)):
            place = places.get(request_id)
            if place is None:
                return f"it names the request {request_id}, which is not there"
            if self._requests[place].session != tool.session:
                return f"it names the request {request_id}, which is another agent's"
        child = Session(tool.session.rollout, link.child_session_id, is_said=True)
        parent = self.parents.get(child)
        if parent is not None and parent in self._turns and parent != tool.session:
            return f"it started the agent {child.name}, which is below {parent.name}"
        return None


class _Turns:
    """The requests of one agent, in order."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self.places: list[int] = []

    @property
    def start_ms(self) -> int:
        return self._requests[self.places[0]].start_ms

    @cached_property
    def last(self) -> int:
        """Which ends last."""
        return max(self.places, key=lambda place: self._ending(place))

    def _ending(self, place: int) -> tuple[int, int, str]:
        request = self._requests[place]
        return request.end_ms, request.start_ms, request.request_id

    @property
    def end_ms(self) -> int:
        return self._requests[self.last].end_ms

    def spawn(self, moment_ms: int, begun_last: bool) -> int | None:
        """The request that had begun last, or ended last, when another agent began."""
        if begun_last:
            number = bisect_right(self._starts, moment_ms)
            return self.places[number - 1] if number else None
        number = bisect_right(self._by_end, moment_ms, key=lambda place: self._requests[place].end_ms)
        return self._by_end[number - 1] if number else None

    def first_from(self, moment_ms: int) -> int | None:
        number = bisect_left(self._starts, moment_ms)
        return self.places[number] if number < len(self.places) else None

    @cached_property
    def _starts(self) -> list[int]:
        return [self._requests[place].start_ms for place in self.places]

    @cached_property
    def _by_end(self) -> list[int]:
        return sorted(self.places, key=lambda place: self._requests[place].end_ms)


def _add(places: list[int], place: int) -> None:
    if place not in places:
        places.append(place)
