"""Steps of an agent of which only the model calls were captured: its requests tell the rest.

Each request repeats what was said before and adds what is new: user messages, and what tools gave back. A request that
does not begin with what came before tells that the context was made anew. Instructions are those of the first request:
some clients write the time into them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from otel_gym import conventions as names
from otel_gym.records.model_input import plain_item
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage
from otel_gym.records.trajectory import AgentTelemetry, Trajectory, trajectory_of
from otel_gym.store.json_text import parsed
from otel_gym.views.agent_tree import agent_context_of, agents_of_contexts, text_of
from otel_gym.views.generations import Call, content_gaps, step_of
from otel_gym.wire.items import Item, input_items
from otel_gym.wire.items.genai import items_of_messages
from otel_gym.wire.items.shapes import OUTPUT_TYPES

# By these headers Claude Code and Codex tell their agents apart.
_AGENT_HEADERS = tuple(
    names.REQUEST_HEADER + name for name in ("x-claude-code-agent-id", "thread-id", "x-session-id", "session-id")
)
_RESULT_TYPES = tuple(OUTPUT_TYPES.values())
_INSTRUCTION_ROLES = ("system", "developer")


def agent_key(call: Call) -> str | None:
    """What the request says of who sent it."""
    context = agent_context_of(call.captured or call.span)
    if context is not None:
        return context.agent_id
    for header in _AGENT_HEADERS:
        values = call.span.attributes.get(header)
        if isinstance(values, list) and values:
            return str(values[0])
    return None


def request_items(call: Call) -> list[Item]:
    """What a call was sent: by its captured body, else as its client told; empty where neither is at hand."""
    record = call.record
    if record is not None:
        return input_items(record.dialect or "chat", record.request)
    instructions = parsed(text_of(call.span, "gen_ai.system_instructions"))
    system = [{"role": "system", "parts": instructions}] if isinstance(instructions, list) else []
    return items_of_messages(system) + items_of_messages(parsed(text_of(call.span, "gen_ai.input.messages")))


def trajectories_of_calls(calls: Sequence[Call]) -> list[Trajectory]:
    """Of each agent that the requests tell apart, those below another within its trajectory."""
    by_agent: dict[str | None, list[Call]] = {}
    for call in calls:
        by_agent.setdefault(agent_key(call), []).append(call)
    agents = agents_of_contexts(agent_context_of(call.captured or call.span) for call in calls)
    made = {key: _trajectory(key, of_agent) for key, of_agent in by_agent.items()}
    top = []
    for key, trajectory in made.items():
        agent = agents.get(key or "")
        if agent is not None:
            trajectory.agent_id = key
        if agent is None or agent.parent is None:
            top.append(trajectory)
        else:
            made[agent.parent.agent_id].subagents.append(trajectory)
    return top


def _trajectory(key: str | None, of_agent: Sequence[Call]) -> Trajectory:
    entries = steps_of_calls(of_agent)
    steps = [entry for entry in entries if isinstance(entry, AgentStep)]
    lost = sum(not call.superseded and not request_items(call) for call in of_agent)
    telemetry = AgentTelemetry(source="capture", session_id=key)
    return trajectory_of(entries, telemetry, content_gaps(steps, requests=lost))


def steps_of_calls(calls: Sequence[Call]) -> list[Entry]:
    """Of one agent's calls, in order; of the attempts of one call the last."""
    entries: list[Entry] = []
    told: list[Item] = []
    for call in calls:
        if call.superseded:
            continue
        sent = request_items(call)
        if sent:
            entries += _news(call, sent, told, entries)
            told = sent
        entries.append(step_of(call))
    return entries


def said_between(calls: Sequence[Call]) -> list[tuple[Call, Entry]]:
    """What the requests of one agent's calls bring that nobody else tells: user messages, contexts made anew; each with
    the call that brought it."""
    found: list[tuple[Call, Entry]] = []
    told: list[Item] = []
    for call in calls:
        sent = request_items(call)
        if sent:
            found += [(call, entry) for entry in _news(call, sent, told, [])]
            told = sent
    return found


def add_results(steps: Sequence[AgentStep], sent: Sequence[Item]) -> None:
    """Gives what a request brought back of tools to the last of ``steps`` that asked for it and has no answer yet.

    Only what stands behind the last call or answer in the request: what stands before was brought by earlier ones, and
    a call id may come again in each step.
    """
    for item in itertools.takewhile(_may_follow_an_answer, reversed(sent)):
        if not is_result(item):
            continue
        call_id = item.get("call_id")
        step = next((step for step in reversed(steps) if _has_call(step, call_id)), None)
        if step is not None and all(result.call_id != call_id for result in step.results):
            step.results.append(ToolResult(call_id, item.get("output")))
            _in_order_of(sent, step)


def _may_follow_an_answer(item: Item) -> bool:
    return is_result(item) or item.get("role") in ("user", "system", "developer")


def _in_order_of(sent: Sequence[Item], step: AgentStep) -> None:
    """Results that only the request tells of, in the order in which it brings them."""
    places = {str(item.get("call_id")): place for place, item in enumerate(sent) if is_result(item)}
    told = [result for result in step.results if result.started_at is None]
    told.sort(key=lambda result: places.get(str(result.call_id), -1))
    step.results = [result for result in step.results if result.started_at is not None] + told


def is_result(item: Item) -> bool:
    return item.get("type") in _RESULT_TYPES


def _has_call(step: AgentStep, call_id: object) -> bool:
    return any(item.get("call_id") == call_id for item in step.calls())


def _news(call: Call, sent: list[Item], told: list[Item], entries: list[Entry]) -> list[Entry]:
    """What this request says that the one before did not; results go to their steps."""
    add_results([entry for entry in entries if isinstance(entry, AgentStep)], sent)
    if not told:
        return _messages(sent, ("user", *_INSTRUCTION_ROLES))
    if names_a_response(call):
        return _messages(sent)
    own, before = _without_instructions(sent), _without_instructions(told)
    if own[: len(before)] == before:
        return _messages(own[len(before) :])
    # Compacted, cut, or another conversation: the wire does not say which.
    if _instructions(sent) != _instructions(told):
        return [ContextBoundary(sent, kind="context_change", keeps_instructions=False)]
    return [ContextBoundary(own, kind="context_change")]


def names_a_response(call: Call) -> bool:
    """Whether the request goes on from an answer that the server keeps, and so sends what is new alone."""
    request = None if call.record is None else call.record.request
    return isinstance(request, dict) and isinstance(request.get("previous_response_id"), str)


def _without_instructions(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if item.get("role") not in _INSTRUCTION_ROLES]


def _instructions(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if item.get("role") in _INSTRUCTION_ROLES]


def _messages(items: Iterable[Item], roles: Sequence[str] = ("user",)) -> list[Entry]:
    return [UserMessage(plain_item(item)) for item in items if item.get("role") in roles]
