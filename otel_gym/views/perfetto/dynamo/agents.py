"""Whose a record is: sessions as processes, their agents as threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from otel_gym.views.perfetto.chrome_json import FIRST_TID
from otel_gym.views.perfetto.dynamo.lanes import OnlineLanes
from otel_gym.views.perfetto.dynamo.shown import Context
from otel_gym.views.perfetto.json_text import json_text
from otel_gym.views.perfetto.shapes import AGENT, MODEL, TOOL

# What has no context has no session: it stands together.
_NO_SESSION = "dynamo-requests"
_NO_CONTEXT = Context()
STAGES = "stages"
_KINDS = (AGENT, MODEL, STAGES, TOOL)
# Of what has no length.
INSTANTS = -1
# Session, trajectory; in traces of Dynamo 1.3 and newer the session alone.
_Key = tuple[str, str]


class Session:
    __slots__ = ("first_ns", "last_ns", "name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.first_ns: int | None = None
        self.last_ns = 0

    def lasts(self, start_ns: int, end_ns: int) -> None:
        self.first_ns = start_ns if self.first_ns is None else min(self.first_ns, start_ns)
        self.last_ns = max(self.last_ns, end_ns)


class Shown(NamedTuple):
    """A slice that arrows may begin at. ``is_silent``: a call that does not say which tools it asked for."""

    start_ns: int
    end_ns: int
    start: str
    place: str
    is_silent: bool = False


class Agent:
    """``asked``: its calls by the tools that they asked for; ``ended``: tools that no call came after so far."""

    __slots__ = (
        "asked",
        "call_lanes",
        "counter",
        "counts_tokens",
        "ended",
        "first_ns",
        "last_call",
        "last_ns",
        "name",
        "number",
        "parent",
        "places",
        "session",
        "tool_lanes",
    )

    def __init__(self, number: int, session: Session, name: str) -> None:
        self.number = number
        self.session = session
        self.name = name
        self.parent: _Key | None = None
        self.first_ns: int | None = None
        self.last_ns = 0
        self.counts_tokens = False
        self.counter = f'{{"ph":"C","name":{json_text(name + ":")},"pid":{session.number},"ts":'
        self.call_lanes = OnlineLanes()
        self.tool_lanes = OnlineLanes()
        self.places: dict[tuple[str, int], str] = {}
        self.last_call: Shown | None = None
        self.asked: dict[str, Shown] = {}
        self.ended: list[Shown] = []

    def lasts(self, start_ns: int, end_ns: int) -> None:
        if self.first_ns is None or start_ns < self.first_ns:
            self.first_ns = start_ns
        if end_ns > self.last_ns:
            self.last_ns = end_ns


class Agents:
    """Makes agents and their threads as records name them. ``line`` takes the events that name threads."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._by_said: dict[tuple[str | None, ...], Agent] = {}
        self._agents: dict[_Key, Agent] = {}
        self._sessions: dict[str, Session] = {}
        self._tids = FIRST_TID

    def all(self) -> Iterable[Agent]:
        return self._agents.values()

    def sessions(self) -> Iterable[Session]:
        return self._sessions.values()

    def parent_of(self, agent: Agent) -> Agent | None:
        return None if agent.parent is None else self._agents.get(agent.parent)

    def of(self, context: Context | None) -> Agent:
        context = context or _NO_CONTEXT
        said = (context.session_id, context.trajectory_id, context.workflow_id, context.program_id)
        agent = self._by_said.get(said)
        if agent is None:
            agent = self._by_said[said] = self._new(context)
        if agent.parent is None:
            parent = _parent_key(context)
            if parent is not None and self._agents.get(parent) is not agent:
                agent.parent = parent
        return agent

    def _new(self, context: Context) -> Agent:
        key = _key(context)
        known = self._agents.get(key)
        if known is not None:
            return known
        session, trajectory = key
        above = self._agents.get((context.parent_session_id or "", "")) if not trajectory else None
        root = above.session if above else self._session((not trajectory and context.parent_session_id) or session)
        agent = self._agents[key] = Agent(len(self._agents) + 1, root, trajectory or session or _NO_SESSION)
        return agent

    def _session(self, name: str) -> Session:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(len(self._sessions) + 1, name or _NO_SESSION)
            named = json_text(f"rollout {session.name}")
            self._line(f'{{"ph":"M","name":"process_name","pid":{session.number},"tid":0,"args":{{"name":{named}}}}}')
        return session

    def place(self, agent: Agent, kind: str, lane: int = 0) -> str:
        """Process and thread, as members of an event."""
        known = agent.places.get((kind, lane))
        if known is not None:
            return known
        rank = agent.number * len(_KINDS) + _KINDS.index(kind)
        place = agent.places[kind, lane] = self._thread(agent.session, f"{agent.name}: {kind}", rank)
        return place

    def place_of_session(self, session: Session) -> str:
        return self._thread(session, AGENT, 0)

    def _thread(self, session: Session, name: str, rank: int) -> str:
        self._tids += 1
        place = f'"pid":{session.number},"tid":{self._tids}'
        self._line(f'{{"ph":"M","name":"thread_name",{place},"args":{{"name":{json_text(name)}}}}}')
        self._line(f'{{"ph":"M","name":"thread_sort_index",{place},"args":{{"sort_index":{rank}}}}}')
        return place


def _key(context: Context) -> _Key:
    session = context.session_id if context.session_id is not None else context.workflow_id
    trajectory = context.trajectory_id if context.trajectory_id is not None else context.program_id
    return session or "", trajectory or ""


def _parent_key(context: Context) -> _Key | None:
    session, trajectory = _key(context)
    if trajectory:
        parent = context.parent_trajectory_id or context.parent_program_id
        return (session, parent) if parent else None
    return (context.parent_session_id, "") if context.parent_session_id else None
