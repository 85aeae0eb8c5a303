"""Which session and which agent of it the spans of a rollout belong to, as Dynamo's records name them.

What a span says itself counts, else what the spans above it say. Where none does, the rollout is the session, and each
agent of it a trajectory below that of the agent above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from otel_gym import conventions as names
from otel_gym.agent_identity import AgentContext, agent_context_of_attributes
from otel_gym.dynamo_settings import AGENT_TRACE

SESSION_TYPE = "rollout"
OPERATION = "gen_ai.operation.name"
CALL_ID = "gen_ai.tool.call.id"


# In a process that may serve sessions without end.
MOST_ROOTS = 65_536


@dataclass(frozen=True, slots=True)
class Place:
    """``context`` always has session, type and agent. ``is_told``: a span said it. ``tool_call_id``: the tool around,
    with no agent between."""

    context: AgentContext
    is_told: bool = False
    has_agent: bool = False
    tool_call_id: str | None = None


def root_place(run_id: str | None, rollout_id: str) -> Place:
    """Of what stands in no agent. Rollouts of two runs are two sessions."""
    session = f"{run_id}/{rollout_id}" if run_id else rollout_id
    return Place(AgentContext(session_id=session, session_type_id=SESSION_TYPE, trajectory_id=session))


def place_of(attributes: Mapping[str, Any], above: Place) -> Place:
    """The place of a span, and of what stands below it, from its own attributes and the place that it stands in."""
    told = agent_context_of_attributes(attributes)
    operation = attributes.get(OPERATION)
    if told is not None and (told.session_id or "").strip():
        place = Place(told, is_told=True, has_agent=True)
    elif operation == "invoke_agent":
        place = Place(_agent_context(attributes, above), has_agent=True)
    else:
        place = above
    if operation == "execute_tool":
        return replace(place, tool_call_id=_text(attributes.get(CALL_ID)))
    return replace(place, tool_call_id=above.tool_call_id) if operation != "invoke_agent" else place


def _agent_context(attributes: Mapping[str, Any], above: Place) -> AgentContext:
    """An agent that a tool call spawned is another one than that of the next call, whatever its name."""
    agent_id = _text(attributes.get("gen_ai.agent.id"))
    name = agent_id or _text(attributes.get("gen_ai.agent.name")) or "agent"
    spawned_by = _text(attributes.get(names.SPAWNED_BY)) or above.tool_call_id
    if spawned_by and not agent_id:
        name = f"{name}:{spawned_by}"
    context = above.context
    if not above.has_agent:
        return replace(context, trajectory_id=f"{context.session_id}:{name}")
    parent = context.agent_id
    return AgentContext(
        session_id=context.session_id,
        session_type_id=context.session_type_id or SESSION_TYPE,
        trajectory_id=f"{parent}/{name}",
        parent_trajectory_id=parent,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def context_of_record(context: AgentContext, schema: str, roots: Mapping[str, str]) -> dict[str, Any]:
    """As records of ``schema`` spell it. ``roots``: of sessions that stand below another, the first one above."""
    spelled = _with_trajectories(context, roots) if schema == AGENT_TRACE else _with_sessions(context)
    return {name: value for name, value in spelled.items() if value is not None and value != ""}


def learn_root(context: AgentContext, roots: dict[str, str], most: int | None = None) -> None:
    """``most``: of so many sessions it is remembered, the last ones."""
    session, parent = context.session_id, context.parent_session_id
    if session and parent and parent != session:
        roots[session] = roots.get(parent, parent)
        if most is not None and len(roots) > most:
            del roots[next(iter(roots))]


def _with_trajectories(context: AgentContext, roots: Mapping[str, str]) -> dict[str, Any]:
    session = context.session_id or ""
    has_trajectory = bool((context.trajectory_id or "").strip())
    return {
        "session_type_id": _text(context.session_type_id) or SESSION_TYPE,
        "session_id": roots.get(session, session),
        "trajectory_id": context.trajectory_id if has_trajectory else session,
        "parent_trajectory_id": context.parent_trajectory_id if has_trajectory else context.parent_agent_id,
        "trajectory_final": context.is_final,
    }


def _with_sessions(context: AgentContext) -> dict[str, Any]:
    """Each agent is a session of its own, so its id must tell it from those of all other sessions."""
    session = context.session_id or ""
    agent = _own_session(session, context.agent_id or session)
    parent = context.session_above
    return {
        "session_id": agent,
        "parent_session_id": parent if parent is None or not context.trajectory_id else _own_session(session, parent),
        "session_final": context.is_final,
        "compaction": context.compaction,
        "kv_hints": context.kv_hints,
        "input_trigger": context.input_trigger,
        "agent_headers": context.agent_headers,
    }


def _own_session(session: str, agent: str) -> str:
    is_told_apart = agent == session or (agent.startswith(session) and not agent[len(session)].isalnum())
    return agent if is_told_apart else f"{session}:{agent}"
