"""Threads → the spans of a rollout: the root thread's turns, and within its calls the threads that they spawned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import finite_number
from otel_gym.ingest.codex.family import is_spawned_in, spawners_of
from otel_gym.ingest.codex.rows import JsonObject, Row, object_of, text_of
from otel_gym.ingest.codex.thread import Thread
from otel_gym.ingest.codex.tools import ended_ns, error_of, name_of, tool_attributes
from otel_gym.ingest.codex.turns import (
    BOUNDARY,
    CONTEXT,
    FAILED,
    FAULT,
    INTERRUPTED,
    USER,
    Call,
    Generation,
    Said,
    Turn,
)
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.tracing.model_call import provider_of, usage_attributes
from otel_gym.wire.items.shapes import compact_json

SOURCE = "transcript"
SERVICE = "codex"
AGENT = "codex"

_INCOMPLETE = re.compile(r"Incomplete response returned, reason: (\w+)")

_EVENT_NAMES = {
    USER: names.USER_MESSAGE_EVENT,
    CONTEXT: names.CONTEXT_MESSAGE_EVENT,
    BOUNDARY: names.CONTEXT_BOUNDARY_EVENT,
}


def rollout_of_threads(root_id: str, threads: list[Thread]) -> ImportedRollout:
    rollout = ImportedRollout(SOURCE, root_id, [], service=SERVICE)
    rollout.damage = [text for thread in threads for text in thread.damage]
    rollout.spans = list(_Spans(rollout, threads).all())
    rollout.end_as_last_turn()
    return rollout


class _Spans:
    """Makes the spans of one rollout, each behind its parent."""

    def __init__(self, rollout: ImportedRollout, threads: list[Thread]) -> None:
        self._rollout = rollout
        self._threads = threads
        self._by_id = {thread.thread_id: thread for thread in threads}
        self._children: dict[str, list[Thread]] = {}
        self._spawners: dict[str, Call] = {}
        self._placed: set[str] = set()
        for thread in threads:
            if thread.parent_id in self._by_id and thread.thread_id != rollout.session_id:
                self._children.setdefault(thread.parent_id, []).append(thread)
        for parent_id, children in self._children.items():
            self._spawners |= spawners_of(self._by_id[parent_id], children)

    def all(self) -> Iterator[ImportedSpan]:
        root = self._root()
        yield root
        nested = {child.thread_id for children in self._children.values() for child in children}
        for thread in sorted(self._threads, key=lambda thread: thread.thread_id in nested):
            yield from self._thread(thread, root.span_id, None)

    def _root(self) -> ImportedSpan:
        root = self._by_id.get(self._rollout.session_id)
        rows = [row for thread in self._threads for row in thread.file.rows]
        is_open = root is not None and any(turn.is_told and turn.end is None for turn in root.turns[-1:])
        times = [row.time_ns for row in rows] or [0]
        dropped = sum(thread.dropped for thread in self._threads if not thread.turns)
        attributes: dict[str, Any] = {names.AGENT_DROPPED_RECORDS: dropped or None}
        if root is not None:
            attributes[names.SOURCE_VERSION] = text_of(root.meta, "cli_version")
            if root.continues is not None:
                attributes[names.SOURCE_CONTINUES], attributes[names.SOURCE_CONTINUES_INDEX] = root.continues
        span_id = self._rollout.span_id("rollout")
        return ImportedSpan(
            span_id, names.ROLLOUT_SPAN, min(times), None if is_open else max(times), attributes=attributes
        )

    def _thread(self, thread: Thread, parent_id: int, spawner: Call | None) -> Iterator[ImportedSpan]:
        """Its turns; one that stands somewhere already, as the child of another most often, has no second place."""
        if thread.thread_id in self._placed:
            return
        self._placed.add(thread.thread_id)
        step_index = 0
        for turn in thread.turns:
            span = self._turn(thread, turn, parent_id, spawner)
            yield span
            for child in self._children.get(thread.thread_id, []):
                if child.thread_id not in self._spawners and is_spawned_in(child, turn, thread):
                    yield from self._thread(child, span.span_id, None)
            for generation in turn.generations:
                step_index += 1
                yield from self._step(thread, turn, generation, span.span_id, step_index)

    def _turn(self, thread: Thread, turn: Turn, parent_id: int, spawner: Call | None) -> ImportedSpan:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent_name(thread),
            "gen_ai.agent.version": text_of(thread.meta, "cli_version"),
            "gen_ai.conversation.id": self._rollout.session_id,
            names.SOURCE_INDEX: turn.first.index,
            names.SOURCE_VERSION: text_of(thread.meta, "cli_version"),
            names.TURN_END: turn.end,
        }
        if thread.thread_id != self._rollout.session_id:
            attributes["gen_ai.agent.id"] = thread.thread_id
            attributes[names.SPAWNED_BY] = spawner.call_id if spawner is not None else None
        if turn is thread.turns[-1]:
            attributes |= _totals(thread)
        error = (text_of(turn.error, "message") or "") if turn.error is not None else None
        if turn.end == FAILED:
            attributes["error.type"] = _error_type(turn.error)
        end_ns = turn.end_ns if turn.is_told else _last_of(turn)
        return ImportedSpan(
            self._id("turn", thread, turn.first),
            f"invoke_agent {agent_name(thread)}",
            turn.first.time_ns,
            end_ns if end_ns is None else max(end_ns, turn.first.time_ns),
            parent_id,
            attributes,
            [_event(said, turn) for said in turn.said],
            link_id=parent_id if spawner is not None else None,
            error=error,
        )

    def _step(
        self, thread: Thread, turn: Turn, generation: Generation, turn_id: int, index: int
    ) -> Iterator[ImportedSpan]:
        step_id = self._id("step", thread, generation.first)
        chat = self._chat(thread, turn, generation, step_id)
        tools = [self._tool(thread, turn, call, step_id) for call in generation.calls]
        attributes = {names.STEP_INDEX: index, names.SOURCE_INDEX: generation.first.index}
        ends = [span.end_ns for span in (chat, *tools)]
        known = [end for end in ends if end is not None]
        end_ns = max(known) if len(known) == len(ends) else None
        yield ImportedSpan(step_id, names.AGENT_STEP_SPAN, chat.start_ns, end_ns, turn_id, attributes)
        yield chat
        for call, span in zip(generation.calls, tools, strict=True):
            yield span
            for child in self._children.get(thread.thread_id, []):
                if self._spawners.get(child.thread_id) is call:
                    yield from self._thread(child, span.span_id, call)

    def _chat(self, thread: Thread, turn: Turn, generation: Generation, step_id: int) -> ImportedSpan:
        usage = generation.usage
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_of("responses"),
            "gen_ai.conversation.id": self._rollout.session_id,
            "gen_ai.request.model": generation.model,
            "gen_ai.request.reasoning.level": generation.effort,
            "gen_ai.response.id": generation.response_id,
            "gen_ai.response.finish_reasons": _finish_reasons(turn, generation),
            names.OUTPUT_ITEMS: compact_json(generation.items),
            names.PROVIDER_USAGE: compact_json(usage) if usage is not None else None,
            names.SOURCE_INDEX: generation.first.index,
            names.CALL_KIND: "compaction" if generation.is_compaction else None,
            **usage_attributes(usage),
        }
        broke_off = generation.is_over and not generation.is_whole
        if broke_off:
            attributes |= _why_it_broke_off(turn, generation)
        return ImportedSpan(
            self._id("chat", thread, generation.first),
            f"chat {generation.model}" if generation.model else "chat",
            generation.start_ns,
            generation.last_ns if generation.is_over else None,
            step_id,
            attributes,
            error="the answer broke off" if broke_off else None,
            is_client=True,
        )

    def _tool(self, thread: Thread, turn: Turn, call: Call, step_id: int) -> ImportedSpan:
        end_ns = ended_ns(call, turn)
        error = error_of(call, turn)
        return ImportedSpan(
            self._id("tool", thread, call.row),
            f"execute_tool {name_of(call.item)}",
            call.row.time_ns,
            end_ns,
            step_id,
            tool_attributes(call, turn),
            error=None if error is None else str(error["message"]),
        )

    def _id(self, kind: str, thread: Thread, row: Row) -> int:
        return self._rollout.span_id(kind, thread.thread_id, str(row.line))


def agent_name(thread: Thread) -> str:
    """The role that it was spawned with, if any: names that Codex gives to single agents are arbitrary."""
    source = object_of(thread.meta, "source")
    spawned = object_of(object_of(source, "subagent"), "thread_spawn")
    return text_of(thread.meta, "agent_role") or text_of(spawned, "agent_role") or text_of(source, "subagent") or AGENT


def _event(said: Said, turn: Turn) -> ImportedEvent:
    """What stands before the first turn is told at its start."""
    time_ns = max(said.row.time_ns, turn.first.time_ns)
    if said.kind == FAULT:
        return ImportedEvent("exception", time_ns, {"exception.message": said.item["message"]})
    attributes = {names.ITEM: compact_json(said.item), names.SOURCE_INDEX: said.row.index}
    return ImportedEvent(_EVENT_NAMES[said.kind], time_ns, attributes)


def _totals(thread: Thread) -> dict[str, Any]:
    """What Codex says of the turns of this thread; a fork's counts of the whole thread hold those of its base."""
    durations = [turn.duration_ms for turn in thread.turns if turn.duration_ms is not None]
    usages = [turn.usage for turn in thread.turns if turn.usage is not None]
    return {
        names.AGENT_DROPPED_RECORDS: thread.dropped or None,
        names.AGENT_DURATION_MS: sum(durations) if durations else None,
        names.AGENT_PROVIDER_USAGE: compact_json(_sum(usages)) if usages else None,
    }


def _sum(usages: Iterable[JsonObject]) -> JsonObject:
    total: JsonObject = {}
    for usage in usages:
        for name in usage:
            total[name] = (finite_number(total.get(name)) or 0) + (finite_number(usage.get(name)) or 0)
    return total


def _last_of(turn: Turn) -> int:
    """The end of a turn whose end is not told: that of the last that was done in it."""
    rows = [call.output_row or call.row for generation in turn.generations for call in generation.calls]
    times = [generation.last_ns for generation in turn.generations] + [row.time_ns for row in rows]
    return max(times, default=turn.first.time_ns)


def _error_type(error: JsonObject | None) -> str:
    """Codex's word for what went wrong: a text, or an object of which it is the key."""
    said = (error or {}).get("codex_error_info")
    if isinstance(said, dict) and len(said) == 1:
        said = next(iter(said))
    return said if isinstance(said, str) and said else "_OTHER"


def _finish_reasons(turn: Turn, generation: Generation) -> list[str] | None:
    """Why an answer is incomplete: only the fault of its turn tells."""
    if turn.error is None or not generation.is_whole or turn.generations[-1] is not generation:
        return None
    found = _INCOMPLETE.match(text_of(turn.error, "message") or "")
    return [found.group(1)] if found else None


def _why_it_broke_off(turn: Turn, generation: Generation) -> dict[str, Any]:
    """The turn's own reason, if it ended with this generation; of an attempt that was made again none is told."""
    is_last = turn.generations[-1] is generation
    if is_last and turn.end == INTERRUPTED:
        return {"error.type": "cancelled", names.ERROR_CATEGORY: "cancelled"}
    return {"error.type": _error_type(turn.error) if is_last else "_OTHER"}
