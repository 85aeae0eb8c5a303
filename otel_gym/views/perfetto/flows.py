"""Arrows: from a model call to the tools that it asked for and on to the next call, to a subagent, to a retry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec

from otel_gym import conventions as names
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.agent_tree import CALL_ID, is_agent, text_of
from otel_gym.views.perfetto.shapes import MODEL, TOOL, Slice
from otel_gym.views.perfetto.stages import FINISH_METADATA

_RETRY_COUNT = names.REQUEST_HEADER + "x-stainless-retry-count"
_ANSWERS = (names.OUTPUT_ITEMS, names.RESPONSE_BODY, "gen_ai.output.messages", FINISH_METADATA)


class FlowIds:
    """Numbers that no two arrows of a file share."""

    def __init__(self, part: int = 0) -> None:
        self._next = count((part << 32) + 1)

    def connect(self, source: Slice, target: Slice) -> None:
        """An arrow never leads back in time, as clocks of two machines may have it."""
        if source is target or source.start_ns > target.start_ns:
            return
        flow = next(self._next)
        source.flows_out.append(flow)
        target.flows_in.append(flow)


class Call(msgspec.Struct, eq=False):
    span: StoredSpan
    slice: Slice


class Group:
    """What one agent did, as slices. ``spawned_by`` is the id of the tool call that started it."""

    def __init__(self, name: str, spawned_by: str | None, parent: Group | None = None) -> None:
        self.name = name
        self.spawned_by = spawned_by
        self.parent = parent
        self.turns: list[Slice] = []
        self.calls: list[Call] = []
        self.tools: list[Call] = []

    def take(self, span: StoredSpan, made: Slice, kind: str) -> None:
        """Asked in the order of time."""
        if kind == MODEL:
            self.calls.append(Call(span, made))
        elif kind == TOOL:
            self.tools.append(Call(span, made))
        elif is_agent(span):
            self.turns.append(made)


def add_flows(groups: Sequence[Group], flow_ids: FlowIds) -> None:
    for group in groups:
        for source, target in (*_of_tools(group), *_of_retries(group.calls), *_to_subagent(group)):
            flow_ids.connect(source, target)


def _of_tools(group: Group) -> Iterator[tuple[Slice, Slice]]:
    """Both groups are in the order of their starts, so that one pass finds what came before and after."""
    at = 0
    for tool in group.tools:
        while at < len(group.calls) and group.calls[at].slice.start_ns <= tool.slice.start_ns:
            at += 1
        asking = _asking(group.calls[max(at - _LOOKED_BACK, 0) : at], tool.span)
        if asking is not None:
            yield asking.slice, tool.slice
        following = bisect_left(group.calls, tool.slice.end_ns, key=_start)
        if following < len(group.calls):
            yield tool.slice, group.calls[following].slice


_LOOKED_BACK = 64


def _start(call: Call) -> int:
    return call.slice.start_ns


def _asking(before: Sequence[Call], tool: StoredSpan) -> Call | None:
    """The latest call whose answer names the tool call; else the last one that ended and of which no answer is kept."""
    call_id = text_of(tool, CALL_ID)
    silent: Call | None = None
    for call in reversed(before):
        answers = [answer for name in _ANSWERS if (answer := text_of(call.span, name)) is not None]
        if call_id is not None and any(f'"{call_id}"' in answer for answer in answers):
            return call
        if silent is None and call.slice.end_ns <= tool.start_ns and (call_id is None or not answers):
            silent = call
    return silent


def _of_retries(calls: Sequence[Call]) -> Iterator[tuple[Slice, Slice]]:
    """A call asks again what the last one of the calls that failed before it did."""
    attempts: list[Call] = []
    for call in calls:
        before = [attempt for attempt in attempts if attempt.slice.end_ns <= call.slice.start_ns]
        attempt = next((attempt for attempt in reversed(before) if _asks_again(attempt, call)), None)
        if attempt is not None:
            attempts.remove(attempt)
            yield attempt.slice, call.slice
        if failed(call.span):
            attempts = [*attempts[1 - _LOOKED_BACK :], call]


def failed(span: StoredSpan) -> bool:
    return span.status == STATUS_ERROR or names.ERROR_CATEGORY in span.attributes


def _asks_again(attempt: Call, following: Call) -> bool:
    counted = following.span.attributes.get(_RETRY_COUNT)
    if isinstance(counted, list) and counted and counted[0] not in ("0", None):
        return True
    asked = text_of(attempt.span, names.REQUEST_BODY)
    return asked is not None and asked == text_of(following.span, names.REQUEST_BODY)


def _to_subagent(group: Group) -> Iterator[tuple[Slice, Slice]]:
    """From the tool call that started it, else from the turn of its parent that it began in."""
    if group.parent is None or not group.turns:
        return
    first = group.turns[0]
    tools = (tool.slice for tool in group.parent.tools if text_of(tool.span, CALL_ID) == group.spawned_by is not None)
    turns = (turn for turn in reversed(group.parent.turns) if turn.start_ns <= first.start_ns)
    source = next(tools, None) or next(turns, None)
    if source is not None:
        yield source, first
