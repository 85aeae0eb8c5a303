"""Whose a record is: sessions as processes, their agents as threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from otel_gym.views.perfetto.chrome_json import FIRST_TID
from otel_gym.views.perfetto.dynamo.events import About
from otel_gym.views.perfetto.dynamo.lanes import OnlineLanes
from otel_gym.views.perfetto.dynamo.shown import Context
from otel_gym.views.perfetto.shapes import AGENT

# What has no context has no session: it stands together.
_NO_SESSION = "dynamo-requests"
_NO_CONTEXT = Context()
STAGES = "stages"
# Of what has no length.
INSTANTS = -1
# Session, trajectory; in traces of Dynamo 1.3 and newer the session alone.
_Key = tuple[str, str]


class Lasting:
    """What lasts from the first to the last time of what belongs to it."""

    __slots__ = ("first_ns", "last_ns")

    def __init__(self) -> None:
        self.first_ns = self.last_ns = -1

    def lasts(self, start_ns: int, end_ns: int) -> None:
        if start_ns < self.first_ns or self.first_ns < 0:
            self.first_ns = start_ns
        if end_ns > self.last_ns:
            self.last_ns = end_ns


class Session(Lasting):
    """``number`` is that of its process."""

    __slots__ = ("name", "number")

    def __init__(self, number: int, name: str) -> None:
        super().__init__()
        self.number = number
        self.name = name


class Shown(msgspec.Struct, gc=False):
    """A slice that arrows may begin at, in µs of the trace. ``asked``: the tools that a call asked for.

    None: it does not say. One stands alone: there is a call of each agent.
    """

    start: float
    end: float
    tid: int
    asked: str | tuple[str | None, ...] | None = None

    def may_ask(self, call_id: str | None, at: float) -> bool:
        if self.asked is None:
            return self.end <= at
        has_asked = call_id == self.asked if isinstance(self.asked, str) else call_id in self.asked
        return has_asked and self.start <= at


class Agent(Lasting):
    """``calls`` are its last ones, ``ended`` its tools that no call came after so far.

    It is one of many: what few have is None until they have it. ``call_tids``: its threads, by lane.
    """

    __slots__ = (
        "call_lanes",
        "call_tids",
        "calls",
        "counts_tokens",
        "ended",
        "name",
        "number",
        "parent",
        "session",
        "tids",
        "tool_lanes",
        "tool_tids",
        "turn_tid",
    )

    def __init__(self, number: int, session: Session, name: str) -> None:
        super().__init__()
        self.number = number
        self.session = session
        self.name = name
        self.parent: Agent | _Key | None = None
        self.counts_tokens = False
        self.call_lanes = OnlineLanes()
        self.tool_lanes: OnlineLanes | None = None
        self.call_tids: list[int] = []
        self.tool_tids: list[int] | None = None
        self.tids: dict[tuple[str, int], int] | None = None
        self.turn_tid = 0
        self.calls: tuple[Shown, ...] = ()
        self.ended: list[Shown] | None = None


class Agents:
    """Makes agents and their threads as records name them. ``take`` gets the events that name threads."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take
        self._agents: dict[_Key, Agent] = {}
        self._sessions: dict[str, Session] = {}
        self._tids = FIRST_TID

    def all(self) -> Iterable[Agent]:
        return self._agents.values()

    def sessions(self) -> Iterable[Session]:
        return self._sessions.values()

    def parent_of(self, agent: Agent) -> Agent | None:
        return self._agents.get(agent.parent) if isinstance(agent.parent, tuple) else agent.parent

    def of(self, context: Context | None) -> Agent:
        context = context or _NO_CONTEXT
        key = _key(context)
        agent = self._agents.get(key)
        if agent is None:
            agent = self._new(key, context)
            # One text for all agents of a session.
            self._agents[agent.session.name if key[1] else key[0], key[1]] = agent
        if agent.parent is None:
            parent = _parent_key(key, context)
            if parent is not None and parent != key:
                agent.parent = self._agents.get(parent, parent)
        return agent

    def _new(self, key: _Key, context: Context) -> Agent:
        session, trajectory = key
        if trajectory:
            return Agent(len(self._agents) + 1, self._session(session), trajectory)
        parent = context.parent_session_id
        above = self._agents.get((parent, "")) if parent else None
        root = above.session if above else self._session(parent or session)
        return Agent(len(self._agents) + 1, root, session or _NO_SESSION)

    def _session(self, name: str) -> Session:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(len(self._sessions) + 1, name)
            self._take(About("process_name", session.number, 0, {"name": f"rollout {name or _NO_SESSION}"}))
        return session

    def new_tid(self, agent: Agent, tids: list[int], kind: str, lane: int) -> int:
        """Of the lane behind all that have one in ``tids``."""
        assert lane == len(tids)
        tids.append(self._thread(agent, kind))
        return tids[lane]

    def tid(self, agent: Agent, kind: str, lane: int = 0) -> int:
        if agent.tids is None:
            agent.tids = {}
        tid = agent.tids.get((kind, lane))
        if tid is None:
            tid = agent.tids[kind, lane] = self._thread(agent, kind)
        return tid

    def turn_tid(self, agent: Agent) -> int:
        """Of the agent itself."""
        if not agent.turn_tid:
            agent.turn_tid = self._thread(agent, AGENT)
        return agent.turn_tid

    def _thread(self, agent: Agent, kind: str) -> int:
        return self.thread(agent.session, f"{agent.name}: {kind}")

    def thread(self, session: Session, name: str) -> int:
        self._tids += 1
        self._take(About("thread_name", session.number, self._tids, {"name": name}))
        return self._tids


def _key(context: Context) -> _Key:
    session, trajectory = context.session_id, context.trajectory_id
    if session is None:
        session = context.workflow_id
    if trajectory is None:
        trajectory = context.program_id
    return session or "", trajectory or ""


def _parent_key(key: _Key, context: Context) -> _Key | None:
    session, trajectory = key
    if trajectory:
        parent = context.parent_trajectory_id or context.parent_program_id
        return (session, parent) if parent else None
    return (context.parent_session_id, "") if context.parent_session_id else None
