"""Records that come one by one → what is told of each request and tool together, and which tell nothing new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from otel_gym.agent_identity import AgentContext
from otel_gym.ingest.dynamo.agents import AgentKey, agent_key
from otel_gym.ingest.dynamo.reading import Row, Trace, row_of, trace_of
from otel_gym.records.dynamo import TOOL_EVENTS

# What is remembered: the records as they came, and about what stands around each.
MOST_BYTES = 64 * 1024 * 1024
_RECORD_BYTES = 300

# Of a tool's run its agent and call, of a request its id.
Key = tuple[str | None, ...]


@dataclass(slots=True)
class _Told:
    lines: list[bytes] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    has_ended: bool = False
    size: int = 0


class LiveTrace:
    """``take`` a record, ``changed`` gives the requests and tools of which something new was told since.

    A record that says again what another said tells nothing new: it was sent twice. One of the same call and kind that
    says anything else does, since harnesses use ids again. What nothing was told of for longest is forgotten first:
    what is said of it again is taken, and gives the same span. ``tools``: their number.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._told: OrderedDict[Key, _Told] = OrderedDict()
        self._of_agent: dict[AgentKey, Key] = {}
        self._changed: dict[Key, None] = {}
        self._size = 0
        self.tools = 0

    def take(self, line: bytes, row: Row) -> bool:
        """False: it tells nothing new. ``line`` is what ``row`` was read from."""
        key = _key_of(row)
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = _Told()
            self.tools += row.record.event_type in TOOL_EVENTS
        elif row.digest in told.digests:
            return False
        told.lines.append(line)
        told.digests.add(row.digest)
        told.has_ended = told.has_ended or row.record.event_type != "request_payload"
        told.size += len(line) + _RECORD_BYTES
        self._size += len(line) + _RECORD_BYTES
        self._told.move_to_end(key)
        self._changed[key] = None
        agent = agent_key(row.context)
        if agent is not None:
            self._of_agent.setdefault(agent, key)
        return True

    def changed(self) -> list[Key]:
        """Without bodies of requests whose own record has not come yet."""
        changed = [key for key in self._changed if self._told[key].has_ended]
        for key in changed:
            del self._changed[key]
        return changed

    def again(self, keys: Iterable[Key]) -> None:
        """These count as changed still."""
        self._changed |= dict.fromkeys(keys)

    def rest(self) -> list[Key]:
        """Bodies of requests whose own record has not come."""
        rest, self._changed = list(self._changed), {}
        return rest

    def trace_of(self, keys: Iterable[Key]) -> Trace:
        """All that is known of these, and something of each agent above theirs, so that it is found where it stands."""
        rows = [row for key in keys for row in self._rows(key)]
        with_agents = dict.fromkeys(keys)
        waiting = [row.context for row in rows]
        while waiting:
            for key in self._above(waiting.pop()):
                if key not in with_agents and key in self._told:
                    with_agents[key] = None
                    more = list(self._rows(key))
                    rows += more
                    waiting += [row.context for row in more]
        return trace_of(rows)

    def forget(self) -> None:
        """What there is no room for, of what was told of. Not to be called while keys are in use."""
        while self._size > self._most_bytes:
            key, told = self._told.popitem(last=False)
            self._changed.pop(key, None)
            self._size -= told.size
            if not self._told:
                self._of_agent.clear()
        if len(self._of_agent) > 2 * len(self._told):
            self._of_agent = {agent: key for agent, key in self._of_agent.items() if key in self._told}

    def _rows(self, key: Key) -> Iterator[Row]:
        return map(row_of, self._told[key].lines)

    def _above(self, context: AgentContext | None) -> Iterator[Key]:
        key = agent_key(context)
        if context is None or key is None:
            return
        above = [AgentKey(key.session_id, context.parent_trajectory_id or None)]
        if context.parent_session_id:
            above.append(AgentKey(context.parent_session_id, None))
        yield from (self._of_agent[each] for each in above if each in self._of_agent)


def _key_of(row: Row) -> Key:
    record = row.record
    if record.event_type in TOOL_EVENTS:
        session, trajectory = agent_key(row.context) or (None, None)
        return ("tool", session, trajectory, None if record.tool is None else record.tool.tool_call_id)
    said = record.request if record.event_type == "request_end" else record.payload
    request_id = None if said is None else said.request_id
    return ("request", request_id or row.digest)
