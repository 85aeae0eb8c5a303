"""Which agent of which session a model call or a tool belongs to, as Dynamo and the harnesses around it say it.

One model for the three spellings that Dynamo has had: ``workflow_id``/``program_id`` (2026-05), ``session_id``/
``trajectory_id`` (``dynamo.agent.trace.v1``), ``session_id``/``parent_session_id`` (``dynamo.request.trace.v1``).
The current one is a context variable: tasks and ``asyncio.to_thread`` inherit it, ``carrier`` and ``in_context`` take
it to other threads and processes. It needs no tracing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from otel_gym.conventions import AGENT_CONTEXT_PREFIX

# Names of 2026-05 → those that came after them.
LEGACY_NAMES = {
    "workflow_type_id": "session_type_id",
    "workflow_id": "session_id",
    "program_id": "trajectory_id",
    "parent_program_id": "parent_trajectory_id",
}

# By which Dynamo 1.3 and newer is told; it trims the values.
SESSION_HEADER = "x-dynamo-session-id"
PARENT_SESSION_HEADER = "x-dynamo-parent-session-id"
SESSION_FINAL_HEADER = "x-dynamo-session-final"


@dataclass(frozen=True, slots=True)
class AgentContext:
    """None: not said. Ids are kept as they came, untrimmed.

    With ``trajectory_id`` a session has several trajectories, each an agent's, and ``parent_trajectory_id`` names the
    agent above it. Without it (Dynamo 1.3 and newer) each agent is a session of its own, below ``parent_session_id``.
    ``trajectory_final``, ``session_final``: this is its last call. ``compaction``, ``kv_hints``, ``agent_headers``
    ({name: [values]}): objects as Dynamo writes them. ``input_trigger``: ``user_message``, ``tool_result``, ``other``.
    """

    session_id: str | None = None
    session_type_id: str | None = None
    trajectory_id: str | None = None
    parent_trajectory_id: str | None = None
    trajectory_final: bool | None = None
    parent_session_id: str | None = None
    session_final: bool | None = None
    input_trigger: str | None = None
    compaction: Mapping[str, Any] | None = None
    kv_hints: Mapping[str, Any] | None = None
    agent_headers: Mapping[str, Any] | None = None

    @property
    def agent_id(self) -> str | None:
        """The agent: its trajectory, or its session where that has no trajectories."""
        return self.trajectory_id or self.session_id

    @property
    def parent_agent_id(self) -> str | None:
        """The agent above this one; None for a session's first."""
        parent = self.parent_trajectory_id if self.trajectory_id else self.parent_session_id
        return parent if parent and parent != self.agent_id else None

    @property
    def session_above(self) -> str | None:
        """The parent session where each agent is a session: of a session's first trajectory the session itself."""
        above = self.parent_agent_id or (self.session_id if self.trajectory_id else None)
        return above if above and above != self.agent_id else None

    @property
    def root_session_id(self) -> str | None:
        """The first session, as far as this says it."""
        first = self.session_id if self.trajectory_id else self.parent_session_id or self.session_id
        return first if first and first.strip() else None

    @property
    def is_final(self) -> bool | None:
        return self.session_final if self.trajectory_final is None else self.trajectory_final

    def child(self, agent_id: str) -> AgentContext:
        """That of an agent below this one, in the same spelling."""
        if self.trajectory_id:
            return AgentContext(
                self.session_id, self.session_type_id, trajectory_id=agent_id, parent_trajectory_id=self.trajectory_id
            )
        return AgentContext(agent_id, self.session_type_id, parent_session_id=self.session_id)

    def final(self) -> AgentContext:
        """The same, of its agent's last call."""
        return replace(self, trajectory_final=True) if self.trajectory_id else replace(self, session_final=True)

    def headers(self) -> dict[str, str]:
        """As Dynamo 1.3 and newer is told, for which each agent is a session: a trajectory is one, below its parent
        trajectory, and the first of them below the session that they all are of.

        Nothing where no agent is named. ValueError for an id that no header can carry.
        """
        agent = (self.agent_id or "").strip()
        if not agent:
            return {}
        said = {SESSION_HEADER: agent}
        parent = (self.session_above or "").strip()
        if parent and parent != agent:
            said[PARENT_SESSION_HEADER] = parent
        if self.is_final:
            said[SESSION_FINAL_HEADER] = "true"
        for text in said.values():
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"the agent id {text[:80]!r} cannot stand in an HTTP header: use printable ASCII")
        return said

    def as_mapping(self) -> dict[str, Any]:
        """What is said, by the names of the fields."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def attributes(self) -> dict[str, Any]:
        """The same as span attributes ``gym.agent_context.*``; objects as JSON."""
        return {
            AGENT_CONTEXT_PREFIX + name: value if isinstance(value, str | bool) else json.dumps(value)
            for name, value in self.as_mapping().items()
        }


_TYPES: dict[str, type[Any]] = {
    **dict.fromkeys(("trajectory_final", "session_final"), bool),
    **dict.fromkeys(("compaction", "kv_hints", "agent_headers"), dict),
}
_NAMES = tuple(field.name for field in fields(AgentContext))


def agent_context_from(said: Mapping[str, Any]) -> AgentContext | None:
    """From an object in any spelling. A value of another type counts as not said, None where nothing is left."""
    named = {LEGACY_NAMES.get(name, name): value for name, value in said.items() if name in LEGACY_NAMES}
    named.update((name, said[name]) for name in _NAMES if said.get(name) is not None)
    found = {name: value for name, value in named.items() if isinstance(value, _TYPES.get(name, str))}
    return AgentContext(**found) if found else None


def agent_context_of_attributes(attributes: Mapping[str, Any]) -> AgentContext | None:
    """From the attributes of a span, as ``AgentContext.attributes`` wrote them."""
    said = {}
    for name in _NAMES:
        value = attributes.get(AGENT_CONTEXT_PREFIX + name)
        if isinstance(value, str) and _TYPES.get(name) is dict:
            value = _object_in(value)
        said[name] = value
    return agent_context_from(said)


def _object_in(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def agent_context_text(context: AgentContext) -> str:
    """JSON, for ``agent_context_of_text`` in another process."""
    return json.dumps(context.as_mapping())


def agent_context_of_text(text: str | None) -> AgentContext | None:
    said = None if text is None else _object_in(text)
    return agent_context_from(said) if isinstance(said, dict) else None


_current: ContextVar[AgentContext | None] = ContextVar("otel_gym_agent_context", default=None)


def current_agent_context() -> AgentContext | None:
    """That of the innermost ``with agent_context(…)`` around; None outside of any."""
    return _current.get()


def agent_attributes() -> Mapping[str, Any]:
    """What spans say of the current one."""
    current = _current.get()
    return {} if current is None else current.attributes()


def child_context(agent_id: str) -> AgentContext:
    """That of an agent below the current one; without one, of a session of its own."""
    current = _current.get()
    return AgentContext(agent_id) if current is None else current.child(agent_id)


@contextmanager
def agent_context(
    context: AgentContext | None = None,
    *,
    session_id: str | None = None,
    trajectory_id: str | None = None,
    session_type_id: str | None = None,
    parent_trajectory_id: str | None = None,
    parent_session_id: str | None = None,
) -> Iterator[AgentContext]:
    """Within ``with``, model calls and spans are this agent's: ``instrument_llm_request`` and the instrumented clients
    tell Dynamo so, and the spans of our API carry it as ``gym.agent_context.*``.

    Either ``context`` or its ids. Tasks, ``asyncio.to_thread``, ``in_context`` and ``carrier`` take it along.
    """
    if context is None:
        context = AgentContext(
            session_id,
            session_type_id,
            trajectory_id,
            parent_trajectory_id,
            parent_session_id=parent_session_id,
        )
    token = _current.set(context)
    try:
        yield context
    finally:
        with suppress(ValueError):  # a generator that is closed in another context
            _current.reset(token)
