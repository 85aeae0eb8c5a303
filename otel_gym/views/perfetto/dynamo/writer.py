"""Writes records of Dynamo's as Chrome's JSON trace events, one by one: memory does not grow with the trace's length.

Slices stand in the file in the order of the records: a viewer sorts them. Their times are exact to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym.records.dynamo import FinishMetadata
from otel_gym.records.dynamo_times import moment_ns, request_times, stages, tool_times
from otel_gym.views.perfetto.chrome_json import StartsTooEarlyError
from otel_gym.views.perfetto.dynamo.agents import INSTANTS, STAGES, Agent, Agents, Shown
from otel_gym.views.perfetto.dynamo.arguments import UNKNOWN_TOOL, ToolArgs, call_args, tool_args, tool_error
from otel_gym.views.perfetto.dynamo.events import (
    About,
    AgentSlice,
    ArrowEnd,
    ArrowStart,
    CallSlice,
    ContextCounter,
    FailedToolSlice,
    FirstToken,
    StageSlice,
    Tokens,
    ToolInstant,
    ToolSlice,
    encoded,
)
from otel_gym.views.perfetto.dynamo.lanes import OnlineLanes
from otel_gym.views.perfetto.dynamo.shown import Record, Request
from otel_gym.views.perfetto.dynamo.tool_pairs import Told, ToolPairs
from otel_gym.views.perfetto.shapes import AGENT, MODEL, TOOL
from otel_gym.views.perfetto.stages import WantedStages, name_of_open_tool

_BATCH = 1024
# What comes up to an hour before the first record still has a place.
_MARGIN_NS = 3600 * 10**9
# Of an agent's tools no more are kept for arrows that may begin at them.
_TOOLS_KEPT = 16


class DynamoTraceWriter:
    """``write`` takes the bytes between the brackets of a file, in order. ``base_ns``: where the times begin.

    Without it they begin before the first record; ``end`` raises StartsTooEarlyError where one was earlier still.
    """

    def __init__(self, write: Callable[[bytes], Any], wanted: WantedStages, base_ns: int | None = None) -> None:
        self._write = write
        self._wanted = wanted
        self._base_ns = base_ns
        self._earliest_ns = base_ns or 0
        self._events: list[Any] = []
        self._take = self._events.append
        self._is_first = True
        self._agents = Agents(self._take)
        self._pairs = ToolPairs()
        self._seen: set[int] = set()
        self._flows = 0
        # Requests and tools that were written, that were there already, that have no time.
        self.shown = self.duplicates = self.untimed = 0

    def add(self, record: Record) -> None:
        if self._is_again(record.digest_of_line):
            return
        if record.event_type == "request_end":
            if record.request is not None:
                self._request(record, record.request, self._agents.of(record.agent_context))
        elif record.tool is not None:
            agent = self._agents.of(record.agent_context)
            self._tool(Told(agent, record.tool, record.event_type, record.event_time_unix_ms))
        if len(self._events) >= _BATCH:
            self._flush()

    def end(self) -> None:
        """StartsTooEarlyError."""
        for told, start in self._pairs.rest():
            if told is start:
                self._open_tool(told)
            else:
                self._ended_tool(told, start)
        self._write_agents()
        if self._is_first and not self._events:  # what holds no event at all is no trace to Perfetto
            self._take(About("process_name", 1, 0, {"name": "nothing"}))
        self._flush()
        if self._base_ns is not None and self._earliest_ns < self._base_ns:
            raise StartsTooEarlyError(self._earliest_ns)

    def _request(self, record: Record, request: Request, agent: Agent) -> None:
        times = request_times(request.request_received_ms, record.event_time_unix_ms, request.total_time_ms)
        if times is None:
            self.untimed += 1
            return
        start_ns, end_ns = times
        ts, pid = self._us(start_ns), agent.session.number
        lane = agent.call_lanes.lane_of(start_ns, end_ns)
        tids = agent.call_tids
        tid = tids[lane] if lane < len(tids) else self._agents.new_tid(agent, tids, MODEL, lane)
        name = f"chat {request.model}" if request.model else "chat"
        took = (end_ns - start_ns) / 1000
        self._take(CallSlice(name, ts, took, pid, tid, call_args(request)))
        if request.input_tokens is not None:
            agent.counts_tokens = True
            tokens = Tokens(request.input_tokens, request.cached_tokens)
            self._take(ContextCounter(f"{agent.name}:", ts, pid, tokens))
        if self._wanted.stages:
            self._stages(agent, request, times, lane, tid)
        self._arrows_to_call(agent, Shown(ts, ts + took, tid, _asked(request.finish_reason_metadata)))
        agent.lasts(start_ns, end_ns)
        self.shown += 1

    def _stages(self, agent: Agent, request: Request, times: tuple[int, int], lane: int, tid: int) -> None:
        start_ns, end_ns = times
        ttft_ms, took_ns, pid = request.ttft_ms, end_ns - start_ns, agent.session.number
        wait_end, prefill_end, first = stages(took_ns, request.prefill_wait_time_ms, request.prefill_time_ms, ttft_ms)
        begin = 1  # at the call's own begin, an arrow there would be taken for the stage's
        if self._wanted.apart:
            tid, begin = self._agents.tid(agent, STAGES, lane), 0
        after_ns, take = start_ns - (self._base_ns or 0), self._take
        if wait_end > begin:
            take(StageSlice("prefill wait", (after_ns + begin) / 1000, (wait_end - begin) / 1000, pid, tid))
            begin = wait_end
        if prefill_end > begin:
            take(StageSlice("prefill", (after_ns + begin) / 1000, (prefill_end - begin) / 1000, pid, tid))
        if first is None or ttft_ms is None:
            return
        begin = first or min(begin, 1)
        if took_ns > begin:
            take(StageSlice("decode", (after_ns + begin) / 1000, (took_ns - begin) / 1000, pid, tid))
        if not self._wanted.markers:
            return
        first_ns = round(ttft_ms * 1e6)
        if not 0 <= first_ns <= took_ns:  # it would seem to be another call's
            tid = self._agents.tid(agent, MODEL, INSTANTS)
        take(FirstToken(max(after_ns + first_ns, 0) / 1000, pid, tid))

    def _tool(self, told: Told) -> None:
        agent, tool, event_type, _ = told
        key, start = (agent.number, tool.tool_call_id), None
        if event_type == "tool_start":
            if tool.tool_call_id is None:
                self._open_tool(told)
            else:
                self._pairs.start(key, told)
            return
        if tool.tool_call_id is not None:
            start = self._pairs.start_of(key, told)
            if start is None:
                if _times(told, None) is None and self._pairs.hold(key, told):
                    return
                self._pairs.ended(key, told)
        self._ended_tool(told, start)

    def _ended_tool(self, told: Told, start: Told | None) -> None:
        agent, tool, event_type, event_ms = told
        times, error = _times(told, start), tool_error(tool, event_type)
        name = f"execute_tool {tool.tool_class or UNKNOWN_TOOL}"
        if times is None:
            self._tool_instant(agent, name, moment_ns(event_ms), tool_args(tool, error, is_time_known=False))
            return
        start_ns, end_ns = times
        if agent.tool_lanes is None or agent.tool_tids is None:
            agent.tool_lanes, agent.tool_tids = OnlineLanes(), []
        lane, tids = agent.tool_lanes.lane_of(start_ns, end_ns), agent.tool_tids
        tid = tids[lane] if lane < len(tids) else self._agents.new_tid(agent, tids, TOOL, lane)
        ts, kind = self._us(start_ns), ToolSlice if error is None else FailedToolSlice
        took = (end_ns - start_ns) / 1000
        self._take(kind(name, ts, took, agent.session.number, tid, tool_args(tool, error)))
        self._arrows_to_tool(agent, tool.tool_call_id, Shown(ts, ts + took, tid))
        agent.lasts(start_ns, end_ns)
        self.shown += 1

    def _open_tool(self, start: Told) -> None:
        """Of which no end is known."""
        tool = start.tool
        at_ns = moment_ns(tool.started_at_unix_ms) or moment_ns(start.event_ms)
        self._tool_instant(start.agent, name_of_open_tool(tool.tool_class or UNKNOWN_TOOL), at_ns, tool_args(tool))

    def _tool_instant(self, agent: Agent, name: str, at_ns: int | None, args: ToolArgs) -> None:
        if at_ns is None:
            self.untimed += 1
            return
        tid = self._agents.tid(agent, TOOL, INSTANTS)
        self._take(ToolInstant(name, self._us(at_ns), agent.session.number, tid, args))
        self.shown += 1

    def _arrows_to_call(self, agent: Agent, call: Shown) -> None:
        """From tools that had ended, to the next call."""
        if agent.ended:
            waiting, agent.ended = agent.ended, None
            for tool in waiting:
                if tool.end <= call.start:
                    self._arrow(agent, tool, agent, call)
                else:
                    agent.ended = [*(agent.ended or ()), tool]
        last = agent.calls[-1:]
        agent.calls = (*last, call) if last and last[0].end > call.start else (call,)

    def _arrows_to_tool(self, agent: Agent, call_id: str | None, tool: Shown) -> None:
        """From the call that asked for it, or the last one before it that does not say what it asked for."""
        for call in reversed(agent.calls):
            if call.may_ask(call_id, tool.start):
                self._arrow(agent, call, agent, tool)
                break
        agent.ended = [*(agent.ended or ())[1 - _TOOLS_KEPT :], tool]

    def _arrow(self, agent: Agent, source: Shown, other: Agent, target: Shown) -> None:
        self._flows += 1
        self._take(ArrowStart(self._flows, source.start, agent.session.number, source.tid))
        self._take(ArrowEnd(self._flows, target.start, other.session.number, target.tid))

    def _write_agents(self) -> None:
        """Each from its first to its last time, as are sessions."""
        for agent in self._agents.all():
            if agent.first_ns < 0:
                continue
            agent.session.lasts(agent.first_ns, agent.last_ns)
            turn = self._turn_of(agent)
            took = (agent.last_ns - agent.first_ns) / 1000
            self._take(AgentSlice(f"invoke_agent {agent.name}", turn.start, took, agent.session.number, turn.tid))
            parent = self._agents.parent_of(agent)
            if parent is not None and 0 <= parent.first_ns <= agent.first_ns:
                self._arrow(parent, self._turn_of(parent), agent, turn)
            if len(self._events) >= _BATCH:
                self._flush()
        for agent in self._agents.all():
            if agent.counts_tokens:  # else it would stand at its last value to the end of the trace
                end = self._us(max(agent.session.last_ns, agent.first_ns + 1))
                self._take(ContextCounter(f"{agent.name}:", end, agent.session.number, Tokens(0, 0)))
            if len(self._events) >= _BATCH:
                self._flush()
        for session in self._agents.sessions():
            if session.first_ns >= 0:
                tid, took = self._agents.thread(session, AGENT), (session.last_ns - session.first_ns) / 1000
                self._take(AgentSlice("rollout", self._us(session.first_ns), took, session.number, tid))
            if len(self._events) >= _BATCH:
                self._flush()

    def _turn_of(self, agent: Agent) -> Shown:
        tid = self._agents.turn_tid(agent)
        return Shown(self._us(agent.first_ns), self._us(agent.last_ns), tid)

    def _is_again(self, seen: int) -> bool:
        if seen in self._seen:
            self.duplicates += 1
            return True
        self._seen.add(seen)
        return False

    def _us(self, time_ns: int) -> float:
        if self._base_ns is None:
            self._base_ns = self._earliest_ns = max(time_ns - _MARGIN_NS, 0)
        after_ns = time_ns - self._base_ns
        if after_ns < 0:
            self._earliest_ns = min(self._earliest_ns, time_ns)
            return 0.0
        return after_ns / 1000

    def _flush(self) -> None:
        if self._events:
            self._write(encoded(self._events) if self._is_first else b",\n" + encoded(self._events))
            self._is_first = False
            self._events.clear()


def _asked(metadata: FinishMetadata | None) -> str | tuple[str | None, ...] | None:
    if metadata is None:
        return None
    calls = metadata.tool_calls
    return calls[0].id or () if len(calls) == 1 else tuple([call.id for call in calls])


def _times(told: Told, paired: Told | None) -> tuple[int, int] | None:
    started_ms = None
    if paired is not None:
        started_ms = paired.tool.started_at_unix_ms or paired.event_ms
    tool = told.tool
    return tool_times(tool.started_at_unix_ms, tool.ended_at_unix_ms, tool.duration_ms, told.event_ms, started_ms)
