"""Rollouts → a checked Mooncake trace.

All requests are held, since rows stand in the order of time over all rollouts, but in compact form; rows are made one
at a time, once to be checked and once to be written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from otel_gym.records.mooncake import AgenticRow, MooncakeRow, RowProblem, ToolEvent, check_rows, encode_row
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.mooncake.reading import Wanted, read_rollouts
from otel_gym.views.mooncake.requests import MooncakeError, Request, Session, Skipped, Tool
from otel_gym.views.mooncake.tool_waits import SessionTools, time_in_tools
from otel_gym.views.mooncake.waits import NEW_RULES, OLD_RULES, Waits

_NOTHING = (
    "no request that can be replayed: it takes token ids of the prompts or Dynamo's replay hashes, "
    "and how many tokens were made"
)


@dataclass(slots=True)
class MooncakeTrace:
    """``left_out``: a line for each record that cannot be replayed. ``failed``, ``payloads``: as of Recorded.
    ``without_output``: requests that made no token, on which the replay of Dynamo 1.3.1 dies."""

    rows: _PlainRows
    rules: str
    left_out: list[str] = field(default_factory=list)
    failed: int = 0
    payloads: int = 0
    without_output: int = 0

    @property
    def block_size(self) -> int:
        return self.rows.block_size

    def __len__(self) -> int:
        return len(self.rows.requests)

    def lines(self) -> Iterator[bytes]:
        return map(encode_row, self.rows)


def mooncake_trace(
    rollouts: Iterable[RolloutSpans], wanted: Wanted, rules: str | None = None, *, lenient: bool = False
) -> MooncakeTrace:
    """The trace of all rollouts; its rows are such that Dynamo's replay completes every one.

    ``rules``: one of RULES; None: those of the Dynamo that recorded it, else the newer. MooncakeError where a record
    cannot be replayed, or, with ``lenient``, where none can.
    """
    skipped = Skipped(lenient)
    recorded = read_rollouts(rollouts, wanted, skipped)
    rules = rules or (OLD_RULES if recorded.of_agent_trace else NEW_RULES)
    requests = _of_one_size(_without_doubles(sorted(recorded.requests, key=lambda one: one.order), skipped), skipped)
    if wanted.agentic:
        requests = _with_one_parent(requests, skipped)
    while requests:
        rows = _AgenticRows(requests, recorded.tools, rules, skipped) if wanted.agentic else _PlainRows(requests)
        problems = list(check_rows(map(encode_row, rows), rows.block_size, agentic=wanted.agentic))
        refused = {problem.line - 1: problem for problem in problems if problem.is_refused}
        if not refused:
            return MooncakeTrace(rows, rules, skipped.texts, recorded.failed, recorded.payloads, len(problems))
        requests = _without_refused(requests, refused, skipped)
    raise MooncakeError("; ".join([_NOTHING, *skipped.texts[:1]]))


class _PlainRows:
    """Requests that arrive on their own, in order of time."""

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        _number_blocks(requests)
        self._first_ms = requests[0].start_ms

    @property
    def block_size(self) -> int:
        return self.requests[0].block_size

    def __iter__(self) -> Iterator[MooncakeRow | AgenticRow]:
        for request in self.requests:
            yield MooncakeRow(request.input_length, request.output_length, request.hashes.tolist(), self.since(request))

    def since(self, request: Request) -> float:
        return float(request.start_ms - self._first_ms)


class _AgenticRows(_PlainRows):
    """Requests that wait for others and for tools."""

    def __init__(self, requests: list[Request], tools: list[Tool], rules: str, skipped: Skipped) -> None:
        super().__init__(requests)
        self._is_new = rules == NEW_RULES
        self._waits = Waits(requests, tools, rules, skipped)
        by_session: dict[Session, list[Tool]] = {}
        for tool in tools:
            by_session.setdefault(tool.session, []).append(tool)
        self._tools = {session: SessionTools(those) for session, those in by_session.items()}
        self._names = _session_names(requests)

    def __iter__(self) -> Iterator[MooncakeRow | AgenticRow]:
        for place, request in enumerate(self.requests):
            yield self._row(place, request)

    def _row(self, place: int, request: Request) -> AgenticRow:
        wait_for = self._waits.wait_for[place]
        row = AgenticRow(
            request.request_id,
            self._names[request.session],
            request.input_length,
            request.output_length,
            request.hashes.tolist(),
            self.since(request),
            request_kind=self._kind(request.session) if self._is_new else None,
            wait_for=[self.requests[before].request_id for before in wait_for],
            branches=[self.requests[after].request_id for after in self._waits.branches.get(place, ())],
            prefix_reset=place not in self._waits.before,
        )
        if wait_for:
            ready_ms = max(self.requests[before].end_ms for before in wait_for)
            self._set_delay(row, place, request, ready_ms)
        return row

    def _set_delay(self, row: AgenticRow, place: int, request: Request, ready_ms: int) -> None:
        """What passed between the last answer that it waited for and its start, the time in tools apart."""
        gap = max(0, request.start_ms - ready_ms)
        tools = self._tools_before(place, request, ready_ms)
        in_tools = min(gap, time_in_tools(tools, ready_ms, request.start_ms))
        row.delay = float(gap - in_tools)
        row.tool_wait_ms = float(in_tools) if in_tools else None
        row.tool_events = [_tool_event(tool) for tool in tools]

    def _tools_before(self, place: int, request: Request, ready_ms: int) -> list[Tool]:
        tools = self._tools.get(request.session)
        if tools is None:
            return []
        if not self._is_new:
            return tools.overlapping(ready_ms, request.start_ms)
        before = self._waits.before.get(place)
        since_ms = ready_ms if before is None else self.requests[before].start_ms
        return tools.consumed(request.request_id, since_ms, request.start_ms)

    def _kind(self, session: Session) -> str:
        if session in self._waits.background:
            return "background_agent"
        return "agent" if session in self._waits.parents else "foreground"


def _tool_event(tool: Tool) -> ToolEvent:
    return ToolEvent(
        tool.call_id,
        tool.tool_class,
        tool.start_ms,
        tool.end_ms,
        tool.duration_ms,
        tool.status,
        tool.output_bytes,
        tool.output_tokens,
        tool.error_type,
    )


def _number_blocks(requests: Iterable[Request]) -> None:
    """Puts in place of each hash its number in order of first appearance, which takes half the memory."""
    numbers: dict[int, int] = {}
    for request in requests:
        request.hashes = array("I", [numbers.setdefault(value, len(numbers)) for value in request.hashes])


def _session_names(requests: Iterable[Request]) -> dict[Session, str]:
    """Agents of one name in two rollouts are two."""
    sessions = dict.fromkeys(request.session for request in requests)
    bearers: dict[str, list[Session]] = {}
    for session in sessions:
        bearers.setdefault(session.name, []).append(session)
    return {
        session: name if len(those) == 1 else f"{session.rollout}:{name}"
        for name, those in bearers.items()
        for session in those
    }


def _without_doubles(requests: Iterable[Request], skipped: Skipped) -> list[Request]:
    kept: dict[str, Request] = {}
    for request in requests:
        known = kept.setdefault(request.request_id, request)
        if known is not request:
            problem = f"its request id is that of span {known.span_id} of rollout {known.session.rollout} too"
            skipped.met(request.place, problem, "name the rollouts to export, so that each request comes once")
    return list(kept.values())


def _of_one_size(requests: list[Request], skipped: Skipped) -> list[Request]:
    kept = [request for request in requests if request.block_size == requests[0].block_size]
    for request in requests if len(kept) < len(requests) else ():
        if request.block_size != requests[0].block_size:
            problem = (
                f"its hashes are of blocks of {request.block_size} tokens, and those of {requests[0].request_id} "
                f"of {requests[0].block_size}"
            )
            skipped.met(request.place, problem, "export the rollouts of each block size apart")
    return kept


def _with_one_parent(requests: list[Request], skipped: Skipped) -> list[Request]:
    parents: dict[Session, Session] = {}
    kept = []
    for request in requests:
        parent = request.parent and parents.setdefault(request.session, request.parent)
        if parent != request.parent:
            problem = f"it puts the agent {request.session.name} below {request.parent and request.parent.name}"
            problem += f", and another request below {parent and parent.name}"
            skipped.met(request.place, problem, "an agent has one parent: name it the same in each request")
            continue
        kept.append(request)
    return kept


def _without_refused(requests: list[Request], refused: dict[int, RowProblem], skipped: Skipped) -> list[Request]:
    for place, problem in refused.items():
        cure = "dynamo.replay refuses such a row: correct its record"
        skipped.met(requests[place].place, problem.text, cure)
    return [request for place, request in enumerate(requests) if place not in refused]
