"""Model calls and tool calls with Dynamo's records of them: exact keys only, and what none can say is named.

A call is the request of its ``x-request-id``, else the one that its answer is named after; where several have one
``x-request-id`` (clients repeat it when they try again) both must fit. A tool's run is found by session, trajectory and
tool call id, since that id is unique in a trajectory alone. What names two agents is never joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from otel_gym.agent_identity import AgentContext
from otel_gym.records.dynamo import TOOL_STATUSES, DynamoRecord, RequestMetrics, ToolEvent

REQUEST_MISSING = "dynamo_request_missing"
REQUEST_AMBIGUOUS = "dynamo_request_ambiguous"
TOOL_MISSING = "dynamo_tool_missing"
TOOL_AMBIGUOUS = "dynamo_tool_ambiguous"
REQUEST_WITHOUT_CALL = "dynamo_request_without_call"
TOOL_WITHOUT_CALL = "dynamo_tool_without_call"

_PREFIXES = ("chatcmpl-", "cmpl-", "resp_")


def request_id_of_answer(answer_id: str | None) -> str | None:
    """Dynamo's id of the request that an answer is named after: ``chatcmpl-D`` → ``D``."""
    if answer_id is None:
        return None
    return next((answer_id.removeprefix(prefix) for prefix in _PREFIXES if answer_id.startswith(prefix)), answer_id)


@dataclass(slots=True, eq=False)
class DynamoRequest:
    """``joined_to``: the call that it was found to be, of whichever rollout; ``is_known``: a rollout has its agent."""

    metrics: RequestMetrics
    context: AgentContext | None
    joined_to: str | None = None
    is_known: bool = False


@dataclass(slots=True, eq=False)
class DynamoTool:
    """What its last record says, with the status as Dynamo spells it."""

    event: ToolEvent
    event_time_unix_ms: int | None
    context: AgentContext
    is_joined: bool = False
    is_known: bool = False

    @property
    def status(self) -> str | None:
        status = self.event.status
        return None if status is None else TOOL_STATUSES.get(status, status)


@dataclass(slots=True, eq=False)
class AskedCall:
    """A call as its client's side knows it. ``tools``: ids of the tool calls that it asked for."""

    name: str
    x_request_id: str | None = None
    request_id: str | None = None
    context: AgentContext | None = None
    tools: Sequence[str] = ()


@dataclass(slots=True)
class JoinedCall:
    """``gap``: why there is no ``request``; ``matched_by``: ``x_request_id`` or ``request_id``."""

    asked: AskedCall
    request: DynamoRequest | None = None
    matched_by: str | None = None
    gap: str | None = None


@dataclass(slots=True)
class JoinedTool:
    """Of a tool call that was asked for; ``gap``: why there is no ``tool``."""

    call_id: str
    context: AgentContext | None
    tool: DynamoTool | None = None
    gap: str | None = None


@dataclass(slots=True)
class DynamoJoin:
    """``calls`` in the order in which they were asked; ``requests``, ``unasked``: what is of the same agents, and of
    none of the calls."""

    calls: list[JoinedCall] = field(default_factory=list)
    tools: list[JoinedTool] = field(default_factory=list)
    requests: list[DynamoRequest] = field(default_factory=list)
    unasked: list[DynamoTool] = field(default_factory=list)


_Find = Callable[[AskedCall], list[DynamoRequest]]


class DynamoTrace:
    """Records of one or several traces, in memory without replay hashes; each is given to one call."""

    def __init__(self) -> None:
        self.requests: list[DynamoRequest] = []
        self.tools: list[DynamoTool] = []
        self._by_id: dict[str, DynamoRequest] = {}
        self._by_x: dict[str, list[DynamoRequest]] = {}
        self._requests_of: dict[str, list[DynamoRequest]] = {}
        self._tools_of: dict[str, dict[str, list[DynamoTool]]] = {}

    def add(self, record: DynamoRecord) -> None:
        """A record that comes again adds what the first one lacked."""
        if record.event_type == "request_end" and record.request is not None:
            self.add_request(record.request, record.context)
        elif record.event_type in ("tool_end", "tool_error") and record.tool is not None:
            self.add_tool(record.tool, record.context, record.event_time_unix_ms)

    def add_request(self, metrics: RequestMetrics, context: AgentContext | None) -> None:
        metrics.replay = metrics.finish_reason_metadata = None
        request = self._by_id.get(metrics.request_id or "")
        if request is None:
            request = DynamoRequest(RequestMetrics(request_id=metrics.request_id), None)
            self.requests.append(request)
            if metrics.request_id:
                self._by_id[metrics.request_id] = request
        if metrics.x_request_id is not None and request.metrics.x_request_id is None:
            self._by_x.setdefault(metrics.x_request_id, []).append(request)
        if context is not None and context.agent_id and request.context is None:
            request.context = context
            self._requests_of.setdefault(context.agent_id, []).append(request)
        for name in RequestMetrics.__struct_fields__:
            if getattr(request.metrics, name) is None:
                setattr(request.metrics, name, getattr(metrics, name))

    def add_tool(self, event: ToolEvent, context: AgentContext | None, time_ms: int | None) -> None:
        if event.tool_call_id is None or context is None or not context.agent_id:
            return
        tool = DynamoTool(event, time_ms, context)
        known = self._tools_of.setdefault(context.agent_id, {}).setdefault(event.tool_call_id, [])
        if all((each.event, each.event_time_unix_ms, each.context) != (event, time_ms, context) for each in known):
            known.append(tool)
            self.tools.append(tool)

    def join(self, calls: Sequence[AskedCall], runs: Iterable[tuple[AgentContext, str]] = ()) -> DynamoJoin:
        """``calls`` of one rollout, in order. ``runs``: tools that ran, by agent and tool call id, also those that none
        of the calls is known to have asked for."""
        joined = [JoinedCall(call) for call in calls]
        self._join_by(joined, self._of_both, "x_request_id")
        self._join_by(joined, self._of_x, "x_request_id")
        self._join_by(joined, self._of_id, "request_id")
        for call in joined:
            if call.request is None:
                call.gap = REQUEST_AMBIGUOUS if self._of_x(call.asked) or self._is_taken(call) else REQUEST_MISSING
        tools = self._joined_tools(joined, runs)
        agents = {context.agent_id: context for context in _contexts(joined, tools)}
        return DynamoJoin(joined, tools, list(self._rest(agents)), list(self._rest_of_tools(agents)))

    # --- requests

    def _join_by(self, calls: Sequence[JoinedCall], found: _Find, matched_by: str) -> None:
        """Those of which one request alone may be one call alone."""
        waiting = [(call, found(call.asked)) for call in calls if call.request is None]
        wanted: dict[int, int] = {}
        for _, requests in waiting:
            for request in requests:
                wanted[id(request)] = wanted.get(id(request), 0) + 1
        for call, requests in waiting:
            if len(requests) == 1 and wanted[id(requests[0])] == 1:
                call.request, call.matched_by = requests[0], matched_by
                requests[0].joined_to = call.asked.name

    def _of_both(self, asked: AskedCall) -> list[DynamoRequest]:
        return [request for request in self._of_x(asked) if request.metrics.request_id == asked.request_id]

    def _of_x(self, asked: AskedCall) -> list[DynamoRequest]:
        return [request for request in self._by_x.get(asked.x_request_id or "", ()) if _is_free(request, asked)]

    def _of_id(self, asked: AskedCall) -> list[DynamoRequest]:
        request = self._by_id.get(asked.request_id or "")
        return [request] if request is not None and _is_free(request, asked) else []

    def _is_taken(self, call: JoinedCall) -> bool:
        """Whether what it names was found to be another call, of this rollout or another."""
        named = [*self._by_x.get(call.asked.x_request_id or "", ()), self._by_id.get(call.asked.request_id or "")]
        return any(request is not None and _agree(request.context, call.asked.context) for request in named)

    # --- tools

    def _joined_tools(self, calls: Sequence[JoinedCall], runs: Iterable[tuple[AgentContext, str]]) -> list[JoinedTool]:
        asked = [
            JoinedTool(call_id, call.asked.context or (call.request.context if call.request is not None else None))
            for call in calls
            for call_id in call.asked.tools
        ]
        known = {(each.context.agent_id, each.call_id) for each in asked if each.context is not None}
        for context, call_id in runs:
            if (context.agent_id, call_id) not in known:
                known.add((context.agent_id, call_id))
                asked.append(JoinedTool(call_id, context))
        of_key: dict[tuple[str | None, str], list[JoinedTool]] = {}
        for each in asked:
            of_key.setdefault((each.context.agent_id if each.context else None, each.call_id), []).append(each)
        for same in of_key.values():
            self._join_tools(same)
        return asked

    def _join_tools(self, same: list[JoinedTool]) -> None:
        """Of one agent and id; some models count anew in each answer, and then the k-th run is of the k-th answer."""
        context, call_id = same[0].context, same[0].call_id
        of_agent = self._tools_of.get((context.agent_id if context else None) or "", {})
        tools = [tool for tool in of_agent.get(call_id, ()) if not tool.is_joined and _agree(tool.context, context)]
        if len(tools) == len(same):
            for each, tool in zip(same, sorted(tools, key=_time_of), strict=True):
                each.tool, tool.is_joined = tool, True
            return
        for each in same:
            each.gap = TOOL_AMBIGUOUS if tools else TOOL_MISSING

    # --- what is left

    def _rest(self, agents: dict[str | None, AgentContext]) -> Iterator[DynamoRequest]:
        for agent_id, context in agents.items():
            for request in self._requests_of.get(agent_id or "", ()):
                if request.joined_to is None and not request.is_known and _agree(request.context, context):
                    request.is_known = True
                    yield request

    def _rest_of_tools(self, agents: dict[str | None, AgentContext]) -> Iterator[DynamoTool]:
        for agent_id, context in agents.items():
            for tools in self._tools_of.get(agent_id or "", {}).values():
                for tool in tools:
                    if not (tool.is_joined or tool.is_known) and _agree(tool.context, context):
                        tool.is_known = True
                        yield tool


def _contexts(calls: Iterable[JoinedCall], tools: Iterable[JoinedTool]) -> Iterator[AgentContext]:
    found = [call.asked.context or (call.request.context if call.request else None) for call in calls]
    yield from (each for each in (*found, *(tool.context for tool in tools)) if each is not None and each.agent_id)


def _is_free(request: DynamoRequest, asked: AskedCall) -> bool:
    return request.joined_to is None and _agree(request.context, asked.context)


def _agree(one: AgentContext | None, other: AgentContext | None) -> bool:
    """Whether they may be one agent's: a trajectory may be told as a session, and an agent not at all."""
    if one is None or other is None or not one.agent_id or not other.agent_id:
        return True
    if one.agent_id != other.agent_id:
        return False
    both_have_trajectories = one.trajectory_id and other.trajectory_id and one.session_id and other.session_id
    return not both_have_trajectories or one.session_id == other.session_id


def _time_of(tool: DynamoTool) -> float:
    times = (tool.event.ended_at_unix_ms, tool.event_time_unix_ms)
    return next((time for time in times if time is not None), 0)
