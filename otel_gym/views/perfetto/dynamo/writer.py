"""Writes records of Dynamo's as Chrome's JSON trace events, one by one: memory does not grow with the trace's length.

Slices stand in the file in the order of the records: a viewer sorts them. Their times are exact to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym.records.dynamo_times import moment_ns, request_times, stages, tool_times
from otel_gym.views.perfetto.chrome_json import StartsTooEarlyError
from otel_gym.views.perfetto.dynamo.agents import INSTANTS, STAGES, Agent, Agents, Shown
from otel_gym.views.perfetto.dynamo.arguments import UNKNOWN_TOOL, call_args, tool_args, tool_error
from otel_gym.views.perfetto.dynamo.shown import Record, Request
from otel_gym.views.perfetto.dynamo.tool_pairs import Told, ToolPairs
from otel_gym.views.perfetto.json_text import json_text
from otel_gym.views.perfetto.shapes import AGENT, MODEL, TOOL
from otel_gym.views.perfetto.stages import STAGE, WantedStages, name_of_open_tool

_BATCH = 2048
# What comes up to an hour before the first record still has a place.
_MARGIN_NS = 3600 * 10**9
# Of these no more are kept for arrows that may begin or end at them.
_MOST_WAITING = 64
_MOST_NAMES = 10_000
_THOUSANDTHS = ["", *(f".{number:03d}" for number in range(1, 1000))]
_WAIT, _PREFILL, _DECODE = (
    f'{{"ph":"X","name":"{name}","cat":"{STAGE}","ts":' for name in ("prefill wait", "prefill", "decode")
)
_FIRST_TOKEN = f'{{"ph":"i","s":"t","name":"first token","cat":"{STAGE}","ts":'


class DynamoTraceWriter:
    """``write`` takes the bytes between the brackets of a file, in order. ``base_ns``: where the times begin.

    Without it they begin before the first record; ``end`` raises StartsTooEarlyError where one was earlier still.
    """

    def __init__(self, write: Callable[[bytes], Any], wanted: WantedStages, base_ns: int | None = None) -> None:
        self._write = write
        self._wanted = wanted
        self._base_ns = base_ns
        self._earliest_ns = base_ns or 0
        self._lines: list[str] = []
        self._is_first = True
        self._agents = Agents(self._lines.append)
        self._pairs = ToolPairs()
        self._seen: set[int] = set()
        self._call_heads: dict[str | None, str] = {}
        self._tool_heads: dict[str | None, str] = {}
        self._flows = 0
        # Requests and tools that were written, of which there was another one, without any time.
        self.shown = self.duplicates = self.untimed = 0

    def add(self, record: Record) -> None:
        if record.event_type == "request_end":
            if record.request is not None:
                self._request(record, record.request, self._agents.of(record.agent_context))
        elif record.tool is not None:
            agent = self._agents.of(record.agent_context)
            self._tool(Told(agent, record.tool, record.event_type, record.event_time_unix_ms))
        if len(self._lines) >= _BATCH:
            self._flush()

    def end(self) -> None:
        """StartsTooEarlyError."""
        for told, start in self._pairs.rest():
            if told is start:
                self._open_tool(told)
            else:
                self._ended_tool(told, start)
        self._write_agents()
        self._flush()
        if self._base_ns is not None and self._earliest_ns < self._base_ns:
            raise StartsTooEarlyError(self._earliest_ns)

    def _request(self, record: Record, request: Request, agent: Agent) -> None:
        times = request_times(request.request_received_ms, record.event_time_unix_ms, request.total_time_ms)
        if times is None:
            self.untimed += 1
            return
        start_ns, end_ns = times
        told = (request.output_tokens, request.total_time_ms, request.ttft_ms, record.event_time_unix_ms)
        if self._is_again((agent.number, request.request_id, start_ns, request.model, told)):
            return
        start = self._us(start_ns)
        lane = agent.call_lanes.lane_of(start_ns, end_ns)
        place = agent.places.get((MODEL, lane)) or self._agents.place(agent, MODEL, lane)
        head = self._call_heads.get(request.model) or _head(self._call_heads, "chat", request.model, MODEL)
        self._lines.append(f'{head}{start},"dur":{_us(end_ns - start_ns)},{place},"args":{call_args(request)}}}')
        self.shown += 1
        self._arrows_to_call(agent, request, Shown(start_ns, end_ns, start, place))
        if request.input_tokens is not None:
            self._context(agent, request, start)
        if self._wanted.stages:
            self._stages(agent, request, times, lane, place)
        agent.lasts(start_ns, end_ns)

    def _stages(self, agent: Agent, request: Request, times: tuple[int, int], lane: int, place: str) -> None:
        start_ns, end_ns = times
        ttft_ms, took_ns = request.ttft_ms, end_ns - start_ns
        wait_end, prefill_end, first = stages(took_ns, request.prefill_wait_time_ms, request.prefill_time_ms, ttft_ms)
        begin = 1  # at the call's own begin, an arrow there would be taken for the stage's
        if self._wanted.apart:
            place, begin = agent.places.get((STAGES, lane)) or self._agents.place(agent, STAGES, lane), 0
        after_ns = start_ns - (self._base_ns or 0)
        told, tail = [], f',{place},"args":{{}}}}'
        if wait_end > begin:
            told.append(f'{_WAIT}{_us(after_ns + begin)},"dur":{_us(wait_end - begin)}{tail}')
            begin = wait_end
        if prefill_end > begin:
            told.append(f'{_PREFILL}{_us(after_ns + begin)},"dur":{_us(prefill_end - begin)}{tail}')
        if first is not None and ttft_ms is not None:
            begin, first_ns = first or min(begin, 1), round(ttft_ms * 1e6)
            at = _us(after_ns + begin)
            if took_ns > begin:
                told.append(f'{_DECODE}{at},"dur":{_us(took_ns - begin)}{tail}')
            if self._wanted.markers:
                if first_ns != begin:
                    at = _us(max(after_ns + first_ns, 0))
                if not 0 <= first_ns <= took_ns:  # it would seem to be another call's
                    tail = f',{self._agents.place(agent, MODEL, INSTANTS)},"args":{{}}}}'
                told.append(f"{_FIRST_TOKEN}{at}{tail}")
        if told:
            self._lines.append(",\n".join(told))

    def _tool(self, told: Told) -> None:
        agent, tool, event_type, event_ms = told
        told_by = (tool.started_at_unix_ms, tool.ended_at_unix_ms, tool.duration_ms, tool.tool_class, tool.status)
        if self._is_again((agent.number, tool.tool_call_id, event_type, event_ms, told_by)):
            return
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
        name = tool.tool_class or UNKNOWN_TOOL
        if times is None:
            args = tool_args(tool, error, is_time_known=False)
            self._tool_instant(agent, f"execute_tool {name}", moment_ns(event_ms), args)
            return
        start_ns, end_ns = times
        begin = self._us(start_ns)
        lane = agent.tool_lanes.lane_of(start_ns, end_ns)
        place = agent.places.get((TOOL, lane)) or self._agents.place(agent, TOOL, lane)
        head = self._tool_heads.get(name) or _head(self._tool_heads, "execute_tool", name, TOOL)
        colour = "" if error is None else ',"cname":"terrible"'
        took = _us(end_ns - start_ns)
        self._lines.append(f'{head}{begin},"dur":{took},{place}{colour},"args":{tool_args(tool, error)}}}')
        self._arrows_to_tool(agent, tool.tool_call_id, Shown(start_ns, end_ns, begin, place))
        agent.lasts(start_ns, end_ns)
        self.shown += 1

    def _open_tool(self, start: Told) -> None:
        """Of which no end is known."""
        tool = start.tool
        at_ns = moment_ns(tool.started_at_unix_ms) or moment_ns(start.event_ms)
        self._tool_instant(start.agent, name_of_open_tool(tool.tool_class or UNKNOWN_TOOL), at_ns, tool_args(tool))

    def _tool_instant(self, agent: Agent, name: str, at_ns: int | None, args: str) -> None:
        if at_ns is None:
            self.untimed += 1
            return
        self._lines.append(
            f'{{"ph":"i","s":"t","name":{json_text(name)},"cat":"{TOOL}","ts":{self._us(at_ns)},'
            f'{self._agents.place(agent, TOOL, INSTANTS)},"args":{args}}}'
        )
        self.shown += 1

    def _context(self, agent: Agent, request: Request, start: str) -> None:
        agent.counts_tokens = True
        cached = "" if request.cached_tokens is None else f',"cached tokens":{request.cached_tokens}'
        self._lines.append(f'{agent.counter}{start},"args":{{"context tokens":{request.input_tokens}{cached}}}}}')

    def _arrows_to_call(self, agent: Agent, request: Request, call: Shown) -> None:
        """From tools that had ended, to the next call."""
        if agent.ended:
            waiting, agent.ended = agent.ended, []
            for tool in waiting:
                if tool.end_ns <= call.start_ns:
                    self._arrow(tool, call)
                else:
                    agent.ended.append(tool)
        metadata = request.finish_reason_metadata
        agent.last_call = call if metadata is None else None
        if metadata is None:
            return
        for asked in metadata.tool_calls:
            if asked.id is not None:
                agent.asked[asked.id] = call
        while len(agent.asked) > _MOST_WAITING:
            del agent.asked[next(iter(agent.asked))]

    def _arrows_to_tool(self, agent: Agent, call_id: str | None, tool: Shown) -> None:
        """From the call that asked for it, or the last one before it where that says nothing of tools."""
        asking = agent.asked.pop(call_id, None) if call_id is not None else None
        if asking is None and agent.last_call is not None and agent.last_call.end_ns <= tool.start_ns:
            asking = agent.last_call
        if asking is not None:
            self._arrow(asking, tool)
        agent.ended.append(tool)
        del agent.ended[:-_MOST_WAITING]

    def _arrow(self, source: Shown, target: Shown) -> None:
        if source.start_ns > target.start_ns:
            return
        self._flows += 1
        for phase, end in (("s", source), ("f", target)):
            self._lines.append(
                f'{{"ph":"{phase}","bp":"e","name":"flow","cat":"flow","id":{self._flows},"ts":{end.start},{end.place}}}'
            )

    def _write_agents(self) -> None:
        """Each from its first to its last time, as are sessions."""
        turns: dict[Agent, Shown] = {}
        for agent in self._agents.all():
            if agent.first_ns is not None:
                place = self._agents.place(agent, AGENT)
                turns[agent] = self._whole(f"invoke_agent {agent.name}", agent.first_ns, agent.last_ns, place)
                agent.session.lasts(agent.first_ns, agent.last_ns)
        for agent, turn in turns.items():
            parent = self._agents.parent_of(agent)
            if parent in turns:
                self._arrow(turns[parent], turn)
            if agent.counts_tokens:
                end = self._us(max(agent.session.last_ns, turn.start_ns + 1))
                self._lines.append(f'{agent.counter}{end},"args":{{"context tokens":0,"cached tokens":0}}}}')
        for session in self._agents.sessions():
            if session.first_ns is not None:
                place = self._agents.place_of_session(session)
                self._whole("rollout", session.first_ns, session.last_ns, place)

    def _whole(self, name: str, start_ns: int, end_ns: int, place: str) -> Shown:
        start = self._us(start_ns)
        self._lines.append(
            f'{{"ph":"X","name":{json_text(name)},"cat":"{AGENT}","ts":{start},"dur":{_us(end_ns - start_ns)},{place},'
            '"args":{}}'
        )
        return Shown(start_ns, end_ns, start, place)

    def _is_again(self, what: tuple[Any, ...]) -> bool:
        seen = hash(what)
        if seen in self._seen:
            self.duplicates += 1
            return True
        self._seen.add(seen)
        return False

    def _us(self, time_ns: int) -> str:
        if self._base_ns is None:
            self._base_ns = self._earliest_ns = max(time_ns - _MARGIN_NS, 0)
        after_ns = time_ns - self._base_ns
        if after_ns < 0:
            self._earliest_ns = min(self._earliest_ns, time_ns)
            return "0"
        return _us(after_ns)

    def _flush(self) -> None:
        if self._lines:
            self._write((("" if self._is_first else ",\n") + ",\n".join(self._lines)).encode("utf-8", "replace"))
            self._is_first = False
            self._lines.clear()


def _us(time_ns: int) -> str:
    """Exact, as far as a double is: see chrome_json."""
    return f"{time_ns // 1000}{_THOUSANDTHS[time_ns % 1000]}"


def _head(known: dict[str | None, str], operation: str, named: str | None, kind: str) -> str:
    """What the events of a model or a tool begin with."""
    if len(known) >= _MOST_NAMES:
        known.clear()
    name = json_text(f"{operation} {named}" if named else operation)
    head = known[named] = f'{{"ph":"X","name":{name},"cat":"{kind}","ts":'
    return head


def _times(told: Told, paired: Told | None) -> tuple[int, int] | None:
    started_ms = None
    if paired is not None:
        started_ms = paired.tool.started_at_unix_ms or paired.event_ms
    tool = told.tool
    return tool_times(tool.started_at_unix_ms, tool.ended_at_unix_ms, tool.duration_ms, told.event_ms, started_ms)
