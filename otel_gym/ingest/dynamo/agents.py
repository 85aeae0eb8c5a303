"""Whose a record is: the agents of a trace, the session that each belongs to, and who stands above whom.

An agent is a trajectory of a session, or a session of its own below another one (Dynamo 1.3 and newer).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from otel_gym.agent_identity import AgentContext
from otel_gym.ingest.dynamo.reading import Row

K = TypeVar("K")


class AgentKey(NamedTuple):
    session_id: str
    trajectory_id: str | None


@dataclass(slots=True)
class Agent:
    """``context`` is that of its first record. ``rows`` are its records, oldest first."""

    key: AgentKey
    context: AgentContext
    rows: list[Row] = field(default_factory=list)
    parent: Agent | None = None


def agent_key(context: AgentContext | None) -> AgentKey | None:
    """None where no session is named."""
    if context is None or context.agent_id is None or not context.agent_id.strip():
        return None
    return AgentKey(context.session_id or "", context.trajectory_id or None)


@dataclass(slots=True)
class Sessions:
    """The agents below each root session, parents before children; and what no agent is named for."""

    roots: dict[str, list[Agent]]
    unnamed: list[Row]
    damage: list[str]


def sessions_of(rows: Iterable[Row]) -> Sessions:
    agents: dict[AgentKey, Agent] = {}
    above = _Above()
    unnamed: list[Row] = []
    for row in rows:
        key = agent_key(row.context)
        if key is None or row.context is None:
            unnamed.append(row)
            continue
        agents.setdefault(key, Agent(key, row.context)).rows.append(row)
        above.add(key, row.context)
    damage = _without_cycles(agents, above)
    roots: dict[str, list[Agent]] = {}
    root_of = _Roots(above.sessions)
    for agent in _parents_first(agents, above):
        roots.setdefault(root_of[agent.key.session_id], []).append(agent)
    return Sessions(roots, unnamed, damage)


class _Above:
    """Who is above whom, as it is said first: of sessions, and of trajectories within one."""

    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}
        self.trajectories: dict[AgentKey, AgentKey] = {}

    def add(self, key: AgentKey, context: AgentContext) -> None:
        session, parent = context.parent_session_id, context.parent_trajectory_id
        if session and session != key.session_id:
            self.sessions.setdefault(key.session_id, session)
        if key.trajectory_id is not None and parent and parent != key.trajectory_id:
            self.trajectories.setdefault(key, AgentKey(key.session_id, parent))


def _without_cycles(agents: Iterable[AgentKey], above: _Above) -> list[str]:
    sessions = dict.fromkeys(key.session_id for key in agents)
    trajectories = [[str(key.trajectory_id) for key in ring] for ring in _broken_rings(agents, above.trajectories)]
    return [
        f"{kind} name each other as parent ({', '.join(ring)}): {ring[0]} is taken as the first; nothing is lost"
        for kind, rings in (
            ("sessions", _broken_rings(sessions, above.sessions)),
            ("trajectories", trajectories),
        )
        for ring in rings
    ]


def _broken_rings(keys: Iterable[K], above: dict[K, K]) -> list[list[K]]:
    """Takes from each circle of parents the link of the one that comes first; returns the circles, it first."""
    rings: list[list[K]] = []
    done: set[K] = set()
    for first in keys:
        chain: dict[K, None] = {}
        key: K | None = first
        while key is not None and key not in done and key not in chain:
            chain[key] = None
            key = above.get(key)
        if key is not None and key in chain:
            passed = list(chain)
            ring = passed[passed.index(key) :]
            order = {key: place for place, key in enumerate(keys)}
            place = min(range(len(ring)), key=lambda at: order.get(ring[at], len(order)))
            rings.append(ring[place:] + ring[:place])
            del above[rings[-1][0]]
        done.update(chain)
    return rings


class _Roots(dict[str, str]):
    """The session at the end of each one's chain of parents; it may be one that has no record of its own."""

    def __init__(self, above: dict[str, str]) -> None:
        super().__init__()
        self._above = above

    def __missing__(self, session_id: str) -> str:
        chain = [session_id]
        while chain[-1] in self._above and chain[-1] not in self:
            chain.append(self._above[chain[-1]])
        root = self.get(chain[-1], chain[-1])
        self.update(dict.fromkeys(chain, root))
        return root


def _first_of(session: str, agents: dict[AgentKey, Agent], first_of_session: dict[str, Agent]) -> Agent | None:
    """The agent that children of a session stand below."""
    return agents.get(AgentKey(session, None)) or first_of_session.get(session)


def _parents_first(agents: dict[AgentKey, Agent], above: _Above) -> Iterator[Agent]:
    first_of_session: dict[str, Agent] = {}
    for agent in agents.values():
        first_of_session.setdefault(agent.key.session_id, agent)
    children: dict[AgentKey, list[Agent]] = {}
    tops: list[Agent] = []
    for key, agent in agents.items():
        agent.parent = agents.get(above.trajectories.get(key, key))
        if agent.parent is agent:
            session = above.sessions.get(key.session_id)
            agent.parent = None if session is None else _first_of(session, agents, first_of_session)
        (tops if agent.parent is None else children.setdefault(agent.parent.key, [])).append(agent)
    waiting = tops[::-1]
    while waiting:
        agent = waiting.pop()
        yield agent
        waiting += children.get(agent.key, [])[::-1]
