"""agent-lightning: rewards as annotations, and the spans of AgentOps, which it traces with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.foreign.dialect import (
    AGENT_ID,
    AGENT_NAME,
    CHAT,
    EXECUTE_TOOL,
    INVOKE_AGENT,
    OPERATION,
    OUTPUT_MESSAGES,
    STREAM,
    TOOL_ARGUMENTS,
    TOOL_CALL_ID,
    TOOL_NAME,
    TOOL_RESULT,
    Attributes,
    ForeignDialect,
    text_of,
    with_attributes,
)
from otel_gym.store.foreign.indexed import objects_below
from otel_gym.store.json_text import parsed
from otel_gym.store.span import StoredSpan
from otel_gym.wire.parts.shapes import objects_of, tool_call_part

_KIND, _REQUEST = "agentops.span.kind", "gen_ai.request.type"
_REWARD = "agentlightning.reward"
_OPERATIONS = {"agent": INVOKE_AGENT, "tool": EXECUTE_TOOL}
# AgentOps' span for a tool that a model asked for: it is no run of the tool.
_ASKED = "tool_call."
REWARD_SPANS = ("agentlightning.annotation", "agentlightning.reward")
_SCOPES = ("agentlightning", "agentops")


def _is_made(span: StoredSpan) -> bool:
    scope = span.scope_name or ""
    return scope.startswith(_SCOPES) or any(mark in span.attributes for mark in (_KIND, _REQUEST, "prompt_token_ids"))


def _read(span: StoredSpan, attributes: Attributes) -> None:
    rewards = objects_below(attributes, _REWARD)
    reward = rewards[0].get("value") if rewards else None
    if isinstance(reward, int | float) and not isinstance(reward, bool):
        attributes.setdefault(names.REWARD, float(reward))
    operation = None if span.name.startswith(_ASKED) else _OPERATIONS.get(text_of(attributes, _KIND) or "")
    if operation is not None:
        attributes.setdefault(OPERATION, operation)
        name = AGENT_NAME if operation == INVOKE_AGENT else TOOL_NAME
        attributes.setdefault(name, text_of(attributes, "operation.name") or span.name)
    if attributes.get(OPERATION) == CHAT:
        attributes.setdefault(names.DIALECT, "chat")


def _gather(spans: Sequence[StoredSpan]) -> list[StoredSpan]:
    """The tool calls of an answer, which stand on spans below that of the call, become part of what it said."""
    asked: dict[SpanIds, list[StoredSpan]] = {}
    for span in spans:
        if span.name.startswith(_ASKED) and span.parent_span_id is not None:
            asked.setdefault((span.trace_id, span.parent_span_id), []).append(span)
    return [_with_calls(span, asked[ids_of(span)]) if ids_of(span) in asked else span for span in spans]


def _with_calls(span: StoredSpan, asked: Sequence[StoredSpan]) -> StoredSpan:
    first, *rest = objects_of(parsed(span.attributes.get(OUTPUT_MESSAGES))) or [{"role": "assistant"}]
    parts = objects_of(first.get("parts"))
    if any(part.get("type") == "tool_call" for part in parts):
        return span
    said = {**first, "parts": [*parts, *(_call_part(each.attributes) for each in asked)]}
    return with_attributes(span, gen_ai__output__messages=safe_json([said, *rest]))


def _call_part(attributes: Attributes) -> dict[str, Any]:
    arguments = parsed(attributes.get("tool.parameters"))
    return tool_call_part(attributes.get("tool.call.id"), attributes.get("tool.name"), arguments)


DIALECT = ForeignDialect(
    name="agent-lightning",
    made_by="`agentlightning` 0.3.0 with its AgentOps tracer (`agentops` 0.4.21)",
    is_made=_is_made,
    renamed={
        OPERATION: (_REQUEST,),
        STREAM: ("gen_ai.request.streaming",),
        AGENT_NAME: ("agent.name",),
        AGENT_ID: ("agent.id",),
        TOOL_NAME: ("tool.name",),
        TOOL_CALL_ID: ("tool.call.id",),
        TOOL_ARGUMENTS: ("tool.parameters", "agentops.tool.input"),
        TOOL_RESULT: ("tool.result", "agentops.tool.output"),
        "http.response.status_code": ("http.status_code",),
        names.PROMPT_TOKEN_IDS: ("prompt_token_ids",),
        names.COMPLETION_TOKEN_IDS: ("response_token_ids",),
    },
    read=_read,
    derived=(
        (names.ROLLOUT_ID, "`agentlightning.rollout_id` of the resource, where nothing else names a rollout"),
        (names.REWARD, f"`{_REWARD}.0.value`, the primary one of an annotation"),
        (OPERATION, f"`{_KIND}`: agent → `invoke_agent`, tool → `execute_tool`"),
        (
            OUTPUT_MESSAGES,
            f"with the spans `{_ASKED}NAME` below: what a model asked for, no runs of tools",
        ),
        (names.DIALECT, "`chat`"),
    ),
    lacks=(
        "cached and reasoning tokens; reasoning; HTTP status; the provider's request id",
        "the time of first content: what AgentOps measures leaves reasoning out",
        "a broken stream: its span does not end, or says OK",
    ),
    gather=_gather,
)
