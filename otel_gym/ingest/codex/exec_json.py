"""What ``codex exec --json`` printed → spans. It names items and turns; of calls of the model it tells nothing.

So a generation is a guess by the order: what comes after a tool has ended, or after a fault, is of the next one. There
are no times (all spans stand at the thread's beginning, which its id tells), no response ids, no models; usage is the
thread's, summed up at each turn's end, and belongs to no single call.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym import conventions as names
from otel_gym.ingest.codex.rows import JsonObject, json_lines, object_of, text_of
from otel_gym.ingest.codex.turns import COMPLETED, FAILED
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.records.steps import span_time
from otel_gym.tracing.model_call import provider_of
from otel_gym.wire.items.shapes import Item, compact_json, function_call_item, message_item, reasoning_item

SOURCE = "stream_json"
SERVICE = "codex"
AGENT = "codex"

_FAILED_STATUSES = frozenset({"failed", "error"})
# Parts of a tool's item that are no arguments.
_RESULT_PARTS = ("id", "type", "tool", "status", "aggregated_output", "exit_code", "result", "error", "agents_states")
_SILENT_EVENTS = frozenset({"item.updated"})
_SILENT_ITEMS = frozenset({"todo_list"})


def read_printed(paths: Iterable[Path]) -> list[ImportedRollout]:
    """A rollout for each thread; several runs of one thread are its turns, in the order of the files."""
    threads: dict[str, _Printed] = {}
    for path in paths:
        damage: list[str] = []
        thread: _Printed | None = None
        for line, event in json_lines(path, damage):
            if event.get("type") == "thread.started":
                thread_id = str(event.get("thread_id"))
                thread = threads.setdefault(thread_id, _Printed(thread_id))
                thread.runs += 1
            elif thread is not None:
                thread.take(event, f"{path}, line {line + 1}")
        if thread is not None:
            thread.damage += damage
    return [thread.rollout() for thread in threads.values()]


@dataclass(slots=True)
class _Tool:
    """``arguments``: what its item said at first; ``arrival``: which result it was, 0 while there is none."""

    index: int
    call_id: str
    item: JsonObject
    arguments: JsonObject
    arrival: int = 0

    @property
    def is_over(self) -> bool:
        return self.arrival > 0


@dataclass(slots=True)
class _Step:
    index: int
    items: list[Item] = field(default_factory=list)
    tools: list[_Tool] = field(default_factory=list)
    is_over: bool = False


@dataclass(slots=True)
class _Turn:
    index: int
    steps: list[_Step] = field(default_factory=list)
    events: list[ImportedEvent] = field(default_factory=list)
    end: str | None = None
    error: str | None = None


class _Printed:
    """One thread, in the making. ``runs`` tells apart the items of several runs, whose numbers begin anew."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.runs = 0
        self.damage: list[str] = []
        self._turns: list[_Turn] = []
        self._usage: JsonObject | None = None
        self._tools: dict[str, _Tool] = {}
        self._count = 0
        self._arrivals = 0
        self._time_ns = _time_of_id(thread_id)

    def take(self, event: JsonObject, place: str) -> None:
        self._count += 1
        kind = str(event.get("type"))
        take = _EVENTS.get(kind)
        if take is not None:
            take(self, event)
        elif kind not in _SILENT_EVENTS:
            self.damage.append(f"{place}: events of type {kind} are unknown: it is left out")

    def _start_turn(self, event: JsonObject) -> None:
        self._turns.append(_Turn(self._count))

    def _turn(self) -> _Turn:
        if not self._turns or self._turns[-1].end is not None:
            self._turns.append(_Turn(self._count))
        return self._turns[-1]

    def _complete_turn(self, event: JsonObject) -> None:
        self._turn().end = COMPLETED
        usage = event.get("usage")
        self._usage = usage if isinstance(usage, dict) else self._usage

    def _fail_turn(self, event: JsonObject) -> None:
        turn = self._turn()
        turn.end, turn.error = FAILED, text_of(object_of(event, "error"), "message") or ""

    def _take_fault(self, event: JsonObject) -> None:
        turn = self._turn()
        message = text_of(event, "message") or ""
        turn.events.append(ImportedEvent("exception", self._time_ns, {"exception.message": message}))
        for step in turn.steps[-1:]:
            step.is_over = True

    def _start_item(self, event: JsonObject) -> None:
        item = object_of(event, "item")
        if _is_tool(item):
            self._tool_of(item)

    def _complete_item(self, event: JsonObject) -> None:
        item = object_of(event, "item")
        kind = text_of(item, "type")
        if kind == "error":
            self._take_fault(item)
        elif kind == "agent_message":
            self._step().items.append(message_item("assistant", str(item.get("text", ""))))
        elif kind == "reasoning":
            self._step().items.append(reasoning_item(text_of(item, "text")))
        elif kind not in _SILENT_ITEMS:
            tool = self._tool_of(item)
            self._arrivals += 1
            tool.item, tool.arrival = item, self._arrivals

    def _step(self) -> _Step:
        """The step that goes on: until one of its tools has ended and none is running, or a fault came."""
        steps = self._turn().steps
        ended = not steps or steps[-1].is_over or (steps[-1].tools and all(tool.is_over for tool in steps[-1].tools))
        if ended:
            steps.append(_Step(self._count))
        return steps[-1]

    def _tool_of(self, item: JsonObject) -> _Tool:
        number = str(item.get("id"))
        call_id = number if self.runs <= 1 else f"{number}.run{self.runs}"
        tool = self._tools.get(call_id)
        if tool is None:
            step = self._step()
            tool = self._tools[call_id] = _Tool(self._count, call_id, item, _arguments(item))
            step.tools.append(tool)
            step.items.append(function_call_item(call_id, _tool_name(item), tool.arguments))
        return tool

    # --- spans

    def rollout(self) -> ImportedRollout:
        rollout = ImportedRollout(SOURCE, self.thread_id, [], service=SERVICE, damage=self.damage)
        root_id = rollout.span_id("rollout")
        is_open = bool(self._turns) and self._turns[-1].end is None
        rollout.spans.append(self._span(root_id, names.ROLLOUT_SPAN, None, {}, is_open))
        step_index = 0
        for turn in self._turns:
            turn_id = rollout.span_id("turn", str(turn.index))
            rollout.spans.append(self._turn_span(turn, turn_id, root_id))
            for step in turn.steps:
                step_index += 1
                rollout.spans += self._step_spans(rollout, turn, step, turn_id, step_index)
        rollout.end_as_last_turn()
        return rollout

    def _turn_span(self, turn: _Turn, turn_id: int, root_id: int) -> ImportedSpan:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.conversation.id": self.thread_id,
            names.SOURCE_INDEX: turn.index,
            names.TURN_END: turn.end,
            "error.type": None if turn.error is None else "_OTHER",
        }
        if turn is self._turns[-1]:
            attributes[names.AGENT_DROPPED_RECORDS] = len(self.damage) or None
            attributes[names.AGENT_PROVIDER_USAGE] = compact_json(self._usage) if self._usage is not None else None
        span = self._span(turn_id, f"invoke_agent {AGENT}", root_id, attributes, turn.end is None)
        span.events, span.error = turn.events, turn.error
        return span

    def _step_spans(
        self, rollout: ImportedRollout, turn: _Turn, step: _Step, turn_id: int, index: int
    ) -> list[ImportedSpan]:
        step_id = rollout.span_id("step", str(step.index))
        chat: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_of("responses"),
            names.OUTPUT_ITEMS: compact_json(step.items),
            names.SOURCE_INDEX: step.index,
        }
        numbers = {names.STEP_INDEX: index, names.SOURCE_INDEX: step.index}
        is_open = turn.end is None and any(not tool.is_over for tool in step.tools)
        spans = [
            self._span(step_id, names.AGENT_STEP_SPAN, turn_id, numbers, is_open),
            self._span(rollout.span_id("chat", str(step.index)), "chat", step_id, chat),
        ]
        spans[1].is_client = True
        return spans + [self._tool_span(rollout, turn, tool, step_id) for tool in step.tools]

    def _tool_span(self, rollout: ImportedRollout, turn: _Turn, tool: _Tool, step_id: int) -> ImportedSpan:
        item = tool.item
        error = _error_of(item)
        extra = {name: item[name] for name in ("status", "exit_code") if item.get(name) is not None}
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": _tool_name(item),
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": tool.call_id,
            "gen_ai.tool.call.arguments": compact_json(tool.arguments),
            "gen_ai.tool.call.result": _result(item) if tool.is_over else None,
            names.SOURCE_INDEX: tool.index,
            names.TOOL_INDEX: tool.arrival or None,
            names.TOOL_EXTRA: compact_json({"kind": item.get("type"), **extra}),
            names.TOOL_ERROR: compact_json(error) if error else None,
            "error.type": "tool_error" if error else None,
        }
        span_id = rollout.span_id("tool", str(tool.index))
        is_open = not tool.is_over and turn.end is None
        span = self._span(span_id, f"execute_tool {_tool_name(item)}", step_id, attributes, is_open)
        span.error = None if error is None else str(error["message"])
        return span

    def _span(
        self, span_id: int, name: str, parent_id: int | None, attributes: dict[str, Any], is_open: bool = False
    ) -> ImportedSpan:
        end_ns = None if is_open else self._time_ns
        return ImportedSpan(span_id, name, self._time_ns, end_ns, parent_id, {**attributes, names.TIME_KNOWN: False})


_EVENTS: dict[str, Callable[[_Printed, JsonObject], Any]] = {
    "turn.started": _Printed._start_turn,
    "turn.completed": _Printed._complete_turn,
    "turn.failed": _Printed._fail_turn,
    "error": _Printed._take_fault,
    "item.started": _Printed._start_item,
    "item.completed": _Printed._complete_item,
}


def _is_tool(item: JsonObject) -> bool:
    return text_of(item, "type") not in {"agent_message", "reasoning", "error", *_SILENT_ITEMS}


def _tool_name(item: JsonObject) -> str:
    """Codex prints what a tool did, not what the model called it; of some it prints the name."""
    return text_of(item, "tool") or str(item.get("type"))


def _arguments(item: JsonObject) -> JsonObject:
    arguments = item.get("arguments")
    if isinstance(arguments, dict):
        return arguments
    return {name: value for name, value in item.items() if name not in _RESULT_PARTS}


def _result(item: JsonObject) -> str | None:
    for name in ("aggregated_output", "result", "agents_states"):
        value = item.get(name)
        if value is not None:
            return compact_json({"content": value} if isinstance(value, str) else value)
    status = text_of(item, "status")
    return compact_json({"content": status}) if status else None


def _error_of(item: JsonObject) -> JsonObject | None:
    exit_code, error = item.get("exit_code"), item.get("error")
    message = text_of(error, "message") if isinstance(error, dict) else error
    failed = text_of(item, "status") in _FAILED_STATUSES or message or exit_code not in (None, 0)
    if not failed:
        return None
    if exit_code is not None:
        return {"message": f"Exit code {exit_code}", "data": {"exit_code": exit_code}}
    return {"message": message or "failed"}


def _time_of_id(thread_id: str) -> int:
    """When a thread began: its id is a UUID that begins with the milliseconds; of another id no time is known."""
    try:
        parsed = uuid.UUID(thread_id)
    except ValueError:
        return 0
    return span_time((parsed.int >> 80) * 10**6) or 0 if parsed.version == 7 else 0
