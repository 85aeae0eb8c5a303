"""Which agent of which session a model call or a tool belongs to, as Dynamo and the harnesses around it say it.

One model for the three spellings that Dynamo has had: ``workflow_id``/``program_id`` (2026-05), ``session_id``/
``trajectory_id`` (``dynamo.agent.trace.v1``), ``session_id``/``parent_session_id`` (``dynamo.request.trace.v1``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from otel_gym.conventions import AGENT_CONTEXT_PREFIX

# Names of 2026-05 → those that came after them.
LEGACY_NAMES = {
    "workflow_type_id": "session_type_id",
    "workflow_id": "session_id",
    "program_id": "trajectory_id",
    "parent_program_id": "parent_trajectory_id",
}


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
    def is_final(self) -> bool | None:
        return self.session_final if self.trajectory_final is None else self.trajectory_final

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
