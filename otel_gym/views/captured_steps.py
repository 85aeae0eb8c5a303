"""Steps of an agent of which only the model calls were captured: its requests tell the rest.

Each request repeats what was said before and adds what is new: user messages, and what tools gave back. A request that
does not begin with what came before tells that the context was made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from otel_gym import conventions as names
from otel_gym.records.model_input import plain_item
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage
from otel_gym.store.span import StoredSpan
from otel_gym.views.generations import Call, step_of
from otel_gym.views.model_calls import record_of
from otel_gym.wire.items import Item, input_items
from otel_gym.wire.items.shapes import CALL_TYPES, OUTPUT_TYPES

# By these headers Claude Code and Codex tell their agents apart.
_AGENT_HEADERS = tuple(
    names.REQUEST_HEADER + name for name in ("x-claude-code-agent-id", "thread-id", "x-session-id", "session-id")
)
_RESULT_TYPES = tuple(OUTPUT_TYPES.values())
_INSTRUCTION_ROLES = ("system", "developer")


def agent_key(call: Call) -> str | None:
    """What the request says of who sent it."""
    for header in _AGENT_HEADERS:
        values = call.span.attributes.get(header)
        if isinstance(values, list) and values:
            return str(values[0])
    return None


def request_items(span: StoredSpan) -> list[Item]:
    """What a captured call was sent; empty where its body is not at hand."""
    record = record_of(span, 0)
    return input_items(record.dialect or "chat", record.request)


def steps_of_calls(calls: Sequence[Call]) -> list[Entry]:
    """Of one agent's calls, in order. A call that failed and was made again as it was is one attempt of a step."""
    entries: list[Entry] = []
    told: list[Item] = []
    said: list[Item] = []
    for place, call in enumerate(calls):
        sent = request_items(call.span)
        if sent:
            entries += _news(sent, told, said, entries)
            told = sent
        step = step_of(call)
        if step.error is not None and _is_repeated(calls, place, sent):
            continue
        entries.append(step)
        said = step.items
    return entries


def add_results(entries: Iterable[Entry], results: Iterable[Item]) -> None:
    """Gives each result that is not there yet to the last step that made its call."""
    steps = [entry for entry in entries if isinstance(entry, AgentStep)]
    for item in results:
        call_id = item.get("call_id")
        step = next((step for step in reversed(steps) if _has_call(step, call_id)), None)
        if step is not None and all(result.call_id != call_id for result in step.results):
            step.results.append(ToolResult(call_id, item.get("output")))


def is_result(item: Item) -> bool:
    return item.get("type") in _RESULT_TYPES


def _has_call(step: AgentStep, call_id: object) -> bool:
    return any(item.get("type") in CALL_TYPES and item.get("call_id") == call_id for item in step.items)


def _news(sent: list[Item], told: list[Item], said: list[Item], entries: list[Entry]) -> list[Entry]:
    """What this request says that the one before did not; results go to their steps."""
    if not told:
        return _messages(sent)
    if sent[: len(told)] != told:
        kept = [item for item in sent if item.get("role") not in _INSTRUCTION_ROLES]
        add_results(entries, filter(is_result, sent))
        return [ContextBoundary(kept)]
    new = sent[len(told) :]
    add_results(entries, filter(is_result, new))
    return _messages(new)


def _messages(items: Iterable[Item]) -> list[Entry]:
    return [UserMessage(plain_item(item)) for item in items if item.get("role") == "user"]


def _is_repeated(calls: Sequence[Call], place: int, sent: list[Item]) -> bool:
    following = calls[place + 1] if place + 1 < len(calls) else None
    return following is not None and bool(sent) and request_items(following.span) == sent
