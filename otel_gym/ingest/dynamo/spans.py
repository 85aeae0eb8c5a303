"""The rows of a trace → rollouts: one a root session, and one for the requests that name no session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from otel_gym import conventions as names
from otel_gym.agent_identity import AgentContext, agent_context_from
from otel_gym.content import known
from otel_gym.ingest.dynamo.agents import Agent, sessions_of
from otel_gym.ingest.dynamo.calls import call_attributes, call_name, object_of
from otel_gym.ingest.dynamo.reading import Row, Trace
from otel_gym.ingest.dynamo.tools import tool_runs
from otel_gym.ingest.imported import ImportedRollout, ImportedSpan
from otel_gym.records.dynamo import TOOL_EVENTS, RequestMetrics
from otel_gym.records.dynamo_times import moment_ns, request_times

SOURCE = "dynamo"
# The rollout of requests that no session is named for.
REQUESTS = "dynamo-requests"
_SERVICE = "dynamo"
_NO_TIME_NS = 1


def rollouts_of(trace: Trace) -> Iterator[ImportedRollout]:
    """One after the other, so that only one rollout's spans need room. The first tells the damage of all."""
    joined = _Payloads(trace)
    rows, silent = _with_content(trace.rows)
    sessions = sessions_of(sorted([*rows, *joined.alone], key=lambda row: row.order))
    damage = [*trace.damage, *joined.damage, *silent, *_shared_ids(rows), *sessions.damage]
    for session_id, agents in [*sessions.roots.items(), (REQUESTS, [])]:
        unnamed = [] if agents else sessions.unnamed
        if not (agents or unnamed):
            continue
        rollout = ImportedRollout(SOURCE, session_id, [], _SERVICE, damage=damage, comes_in_parts=True)
        _Spans(rollout, joined).add(agents, unnamed)
        yield rollout
        damage = []


def _with_content(rows: Iterable[Row]) -> tuple[list[Row], list[str]]:
    """Without those that name neither a request nor a tool; and how many these are."""
    kept, silent = [], Counter[str]()
    for row in rows:
        said = row.record.tool if row.record.event_type in TOOL_EVENTS else row.record.request
        if said is None:
            silent[row.record.event_type] += 1
        else:
            kept.append(row)
    return kept, [
        f"{number} {kind} without a {'tool' if kind in TOOL_EVENTS else 'request'} in it: no span can be made of it"
        for kind, number in sorted(silent.items())
    ]


def _shared_ids(rows: Iterable[Row]) -> list[str]:
    """Dynamo gives each request an id of its own."""
    found: dict[str, list[RequestMetrics]] = {}
    for row in rows:
        request = _request(row)
        if row.record.event_type == "request_end" and request.request_id is not None:
            found.setdefault(request.request_id, []).append(request)
    several = {request_id: requests for request_id, requests in found.items() if len(requests) > 1}
    if not several:
        return []
    first, (one, other, *_) = next(iter(several.items()))
    number = "one request has" if len(several) == 1 else f"{len(several):,} requests have"
    differing = f"{first}: {_differing(one, other)}"
    return [f"{number} records that say different things ({differing}): each is kept, as a call of its own"]


def _differing(one: RequestMetrics, other: RequestMetrics) -> str:
    names = [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]
    return ", ".join(names) or "time or agent"


def _request(row: Row) -> RequestMetrics:
    return row.record.request or RequestMetrics()


class _Payloads:
    """Bodies by request id. ``alone``: those of requests that have no record of their end."""

    def __init__(self, trace: Trace) -> None:
        self._by_id: dict[str, Row] = {}
        self.alone: list[Row] = []
        self.damage: list[str] = []
        ended = {_request(row).request_id for row in trace.rows if row.record.event_type == "request_end"}
        others = Counter[str]()
        # A record of the trace says more than one of the audit, which has no time.
        for row in sorted(trace.payloads, key=lambda row: row.record.event_time_unix_ms is None):
            request_id = row.record.payload.request_id if row.record.payload is not None else None
            if request_id is None or (request_id not in ended and request_id not in self._by_id):
                self.alone.append(_with_context(row))
            if request_id is None:
                continue
            if self._by_id.setdefault(request_id, row) is not row and not _is_same(self._by_id[request_id], row):
                others[request_id] += 1
        if others:
            number = "one request has" if len(others) == 1 else f"{len(others):,} requests have"
            self.damage.append(f"{number} payloads that differ (the first: {next(iter(others))}): its first is kept")

    def of(self, row: Row) -> Row | None:
        if row.record.payload is not None:
            return row
        return self._by_id.get(_request(row).request_id or "")


def _is_same(one: Row, other: Row) -> bool:
    bodies = [(row.record.payload.request, row.record.payload.response) for row in (one, other) if row.record.payload]
    return len({tuple(map(bytes, pair)) for pair in bodies}) == 1


def _with_context(row: Row) -> Row:
    """A payload's own record names no agent; the request of Dynamo up to 1.2 does."""
    payload = row.record.payload
    if row.context is None and payload is not None:
        beside = (object_of(payload.request) or {}).get("nvext")
        said = beside.get("agent_context") if isinstance(beside, dict) else None
        row.context = agent_context_from(said) if isinstance(said, dict) else None
    return row


class _Spans:
    """Makes the spans of one rollout."""

    def __init__(self, rollout: ImportedRollout, payloads: _Payloads) -> None:
        self._rollout = rollout
        self._payloads = payloads
        self._last_ns = _NO_TIME_NS
        self._ids: Counter[tuple[str, ...]] = Counter()

    def add(self, agents: list[Agent], unnamed: list[Row]) -> None:
        root = ImportedSpan(self._rollout.span_id("rollout"), names.ROLLOUT_SPAN, _NO_TIME_NS, _NO_TIME_NS)
        spans = self._rollout.spans
        spans.append(root)
        ids: dict[int, int] = {}
        for agent in agents:
            turn = self._agent(agent, root.span_id if agent.parent is None else ids[id(agent.parent)])
            ids[id(agent)] = turn.span_id
            below = list(self._below(agent.rows, turn.span_id, *map(str, agent.key)))
            _enclose(turn, below)
            spans += [turn, *below]
        spans += self._below(unnamed, root.span_id)
        _enclose(root, spans[1:])

    def _agent(self, agent: Agent, parent_id: int) -> ImportedSpan:
        name, context = agent.context.agent_id, agent.context
        lasting = AgentContext(
            session_id=context.session_id,
            session_type_id=context.session_type_id,
            trajectory_id=context.trajectory_id,
            parent_trajectory_id=context.parent_trajectory_id,
            parent_session_id=context.parent_session_id,
        )
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.agent.id": name,
            "gen_ai.conversation.id": context.session_id,
            **lasting.attributes(),
        }
        span_id = self._rollout.span_id("agent", *map(str, agent.key))
        return ImportedSpan(span_id, f"invoke_agent {name}", 0, 0, parent_id, known(attributes))

    def _below(self, rows: list[Row], parent_id: int, *agent: str) -> Iterator[ImportedSpan]:
        """The calls and the tools of one agent, in the order in which they began."""
        spans = [self._call(row, parent_id) for row in rows if row.record.event_type not in TOOL_EVENTS]
        for run in tool_runs(row for row in rows if row.record.event_type in TOOL_EVENTS):
            attributes, error = run.attributes(), run.error_type()
            span_id = self._id("tool", *agent, run.call_id or f"/{run.last.digest}")
            span = ImportedSpan(span_id, f"execute_tool {attributes['gen_ai.tool.name']}", 0, 0, parent_id, attributes)
            span.error = None if error is None else ""
            spans.append(_placed(span, run.times(), run.last))
        yield from sorted(spans, key=lambda span: (span.start_ns, span.span_id))

    def _call(self, row: Row, parent_id: int) -> ImportedSpan:
        attributes = call_attributes(row, self._payloads.of(row))
        request_id = attributes.get(f"{names.DYNAMO_PREFIX}request_id")
        span_id = self._id("request", request_id or f"/{row.digest}")
        span = ImportedSpan(span_id, call_name(attributes), 0, 0, parent_id, attributes)
        request = _request(row)
        times = request_times(request.request_received_ms, row.time_ms, request.total_time_ms)
        return _placed(span, times, row)

    def _id(self, *parts: str) -> int:
        """Of several things with one name, each has its own."""
        number = self._ids[parts]
        self._ids[parts] += 1
        return self._rollout.span_id(*parts, str(number))


def _placed(span: ImportedSpan, times: tuple[int, int | None] | None, row: Row) -> ImportedSpan:
    """Where no times are known, at the record's own time, if it has one."""
    if times is None:
        times = (moment_ns(row.time_ms) or _NO_TIME_NS,) * 2
        span.attributes[names.TIME_KNOWN] = False
    span.start_ns, span.end_ns = times
    return span


def _enclose(span: ImportedSpan, below: list[ImportedSpan]) -> None:
    """From the first to the last time of those below; of none that are unknown, if any is known."""
    placed = [one for one in below if one.attributes.get(names.TIME_KNOWN) is not False]
    if not placed:
        span.attributes[names.TIME_KNOWN] = False
    placed = placed or [one for one in below if one.start_ns > _NO_TIME_NS] or below
    span.start_ns = min(one.start_ns for one in placed)
    span.end_ns = max(one.start_ns if one.end_ns is None else one.end_ns for one in placed)
