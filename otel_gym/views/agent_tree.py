"""Which agent, and which step of it, each span of a rollout belongs to.

An agent is the ``invoke_agent`` spans of one name (and id) below one parent: each is a turn of it. An agent that
stands below another's tool call was spawned by it. Where no such span is, the agents are those that calls and tools
name in their agent context, if they name several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_gym import conventions as names
from otel_gym.agent_identity import AgentContext, agent_context_of_attributes
from otel_gym.store.executions import ids_of
from otel_gym.store.span import StoredSpan

OPERATION = "gen_ai.operation.name"
CALL_ID = "gen_ai.tool.call.id"
_SESSION = names.AGENT_CONTEXT_PREFIX + "session_id"
_TRAJECTORY = names.AGENT_CONTEXT_PREFIX + "trajectory_id"


@dataclass(slots=True, eq=False)
class Agent:
    """``turns`` are its ``invoke_agent`` spans, oldest first; none of an agent that only contexts name. ``spawned_by``
    is the id of a tool call.
    """

    name: str | None
    agent_id: str | None
    parent: Agent | None
    spawned_by: str | None
    turns: list[StoredSpan] = field(default_factory=list)


def agent_context_of(span: StoredSpan) -> AgentContext | None:
    """Where it names an agent."""
    attributes = span.attributes
    if _SESSION not in attributes and _TRAJECTORY not in attributes:
        return None
    context = agent_context_of_attributes(attributes)
    return context if context is not None and context.agent_id else None


def is_agent(span: StoredSpan) -> bool:
    return span.attributes.get(OPERATION) == "invoke_agent"


def is_step(span: StoredSpan) -> bool:
    return span.name == names.AGENT_STEP_SPAN or names.STEP_INDEX in span.attributes


def is_tool(span: StoredSpan) -> bool:
    return span.attributes.get(OPERATION) == "execute_tool"


def text_of(span: StoredSpan, name: str) -> str | None:
    value: Any = span.attributes.get(name)
    return value if isinstance(value, str) else None


def agents_of_contexts(contexts: Iterable[AgentContext | None]) -> dict[str, Agent]:
    """The agents that contexts name, by their ids, a parent before its subagents; empty unless they are several."""
    parents: dict[str, str | None] = {}
    for context in contexts:
        if context is not None and context.agent_id:
            parents[context.agent_id] = parents.get(context.agent_id) or context.parent_agent_id
    made: dict[str, Agent] = {}
    for agent_id in parents if len(parents) > 1 else ():
        family = [agent_id]  # up to the first, which is made already, has no parent, or would close a circle
        while (above := parents[family[-1]]) in parents and above not in made and above not in family:
            family.append(above or "")
        for each in reversed(family):
            if each not in made:
                made[each] = Agent(None, each, made.get(parents[each] or ""), None)
    return made


class AgentTree:
    def __init__(self, spans: Sequence[StoredSpan]) -> None:
        self.by_id = {ids_of(span): span for span in spans}
        self._agent_of_turn: dict[tuple[str, str], Agent] = {}
        self._agents: dict[tuple[Any, ...], Agent] = {}
        self._asked_for: set[tuple[str, str]] = set()
        for span in spans:
            if is_agent(span):
                self._agent_of(span)
        self._of_context = {} if self._agents else agents_of_contexts(map(agent_context_of, spans))
        self._agents.update(((each,), each) for each in self._of_context.values())

    @property
    def agents(self) -> list[Agent]:
        """A parent before its subagents, else the oldest first."""
        return list(self._agents.values())

    def agent_around(self, span: StoredSpan) -> Agent | None:
        """The agent that did it: of the nearest ``invoke_agent`` above; of such a span itself, the one it is of. Where
        only contexts name agents, the one that it names, or the nearest above that names one.
        """
        if self._of_context:
            naming = span if agent_context_of(span) else self._above(span, lambda above: bool(agent_context_of(above)))
            return None if naming is None else self.agent_named_by(naming)
        turn = span if is_agent(span) else self._above(span, is_agent)
        return None if turn is None else self._agent_of(turn)

    def agent_named_by(self, span: StoredSpan) -> Agent | None:
        """The agent of the span's own context, where only contexts name agents."""
        context = agent_context_of(span) if self._of_context else None
        return None if context is None else self._of_context[context.agent_id or ""]

    def step_around(self, span: StoredSpan) -> StoredSpan | None:
        """The ``agent_step`` that it ran in, with no other agent between."""
        found = self._above(span, lambda above: is_step(above) or is_agent(above))
        return found if found is not None and is_step(found) else None

    def is_below(self, span: StoredSpan, ancestor: StoredSpan) -> bool:
        return self._above(span, lambda above: above is ancestor) is not None

    def _agent_of(self, turn: StoredSpan) -> Agent:
        known = self._agent_of_turn.get(ids_of(turn))
        if known is not None:
            return known
        self._asked_for.add(ids_of(turn))
        above = self._above(turn, is_agent)
        is_cycle = above is not None and ids_of(above) in self._asked_for and ids_of(above) not in self._agent_of_turn
        parent = None if above is None or is_cycle else self._agent_of(above)
        tool = self._above(turn, lambda span: is_tool(span) or is_agent(span))
        call_id = text_of(tool, CALL_ID) if tool is not None and is_tool(tool) else None
        spawned_by = text_of(turn, names.SPAWNED_BY) or call_id
        name, agent_id = text_of(turn, "gen_ai.agent.name"), text_of(turn, "gen_ai.agent.id")
        key = (parent, spawned_by, name, agent_id)
        agent = self._agents.get(key)
        if agent is None:
            agent = self._agents[key] = Agent(name, agent_id, parent, spawned_by)
        agent.turns.append(turn)
        self._agent_of_turn[ids_of(turn)] = agent
        return agent

    def _above(self, span: StoredSpan, is_wanted: Callable[[StoredSpan], bool]) -> StoredSpan | None:
        """The nearest ancestor of that kind; a damaged file's cycle of parents ends where it began."""
        seen = {span.span_id}
        current = self._parent(span)
        while current is not None and current.span_id not in seen:
            if is_wanted(current):
                return current
            seen.add(current.span_id)
            current = self._parent(current)
        return None

    def _parent(self, span: StoredSpan) -> StoredSpan | None:
        return None if span.parent_span_id is None else self.by_id.get((span.trace_id, span.parent_span_id))
