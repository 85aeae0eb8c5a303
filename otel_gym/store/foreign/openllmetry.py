"""OpenLLMetry (Traceloop): ``gen_ai.prompt.N.*`` and ``llm.*`` in earlier versions, messages as JSON in later ones."""

from __future__ import annotations

from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.store.foreign.dialect import (
    AGENT_NAME,
    CONVERSATION_ID,
    EXECUTE_TOOL,
    FINISH_REASONS,
    INPUT_MESSAGES,
    INVOKE_AGENT,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    STREAM,
    TOOL_ARGUMENTS,
    TOOL_DEFINITIONS,
    TOOL_NAME,
    TOOL_RESULT,
    Attributes,
    ForeignDialect,
    put,
    put_json,
    text_of,
)
from otel_gym.store.foreign.indexed import objects_below
from otel_gym.store.json_text import parsed
from otel_gym.store.span import StoredSpan

_MARKS = ("traceloop.span.kind", "llm.request.type", "llm.is_streaming", "gen_ai.is_streaming")
_ITEM_ID = "fc_"
_KINDS = {"workflow": INVOKE_AGENT, "agent": INVOKE_AGENT, "tool": EXECUTE_TOOL}
_DIALECTS = {"openai.chat": "chat", "openai.response": "responses", "anthropic.chat": "messages"}
# The conventions' word that later versions write → the provider's own, where only one is meant.
_REASONS = {
    "chat": {"tool_call": "tool_calls"},
    "messages": {"tool_call": "tool_use", "length": "max_tokens"},
    "responses": {"length": "max_output_tokens"},
}


def _is_made(span: StoredSpan) -> bool:
    return span.name in _DIALECTS or any(mark in span.attributes for mark in _MARKS)


def _read(span: StoredSpan, attributes: Attributes) -> None:
    kind = _KINDS.get(text_of(attributes, "traceloop.span.kind") or "")
    if kind is not None:
        _read_entity(attributes, kind)
    dialect = _DIALECTS.get(span.name)
    if dialect is not None:
        attributes.setdefault(names.DIALECT, dialect)
        _read_reasons(attributes, dialect)
    if dialect == "messages" and _is_stream(span, attributes):
        attributes.pop(OUTPUT_TOKENS, None)
        attributes.pop("gen_ai.usage.completion_tokens", None)
    functions = objects_below(attributes, "llm.request.functions")
    put_json(attributes, TOOL_DEFINITIONS, map(_definition, functions))
    for name in (INPUT_MESSAGES, OUTPUT_MESSAGES):
        _read_parts(attributes, name)


def _is_stream(span: StoredSpan, attributes: Attributes) -> bool:
    """Helpers for streams set no flag; what is told before the model of the answer was told by a stream."""
    if any(attributes.get(name) is True for name in (STREAM, "gen_ai.is_streaming", "llm.is_streaming")):
        return True
    told = list(span.attributes)
    usage, model = "gen_ai.usage.output_tokens", "gen_ai.response.model"
    return usage in told and model in told and told.index(usage) < told.index(model)


def _read_entity(attributes: Attributes, operation: str) -> None:
    attributes.setdefault(OPERATION, operation)
    name = text_of(attributes, "traceloop.entity.name")
    if operation == INVOKE_AGENT:
        put(attributes, gen_ai__agent__name=name)
        return
    put(attributes, gen_ai__tool__name=name, gen_ai__tool__call__result=attributes.get("traceloop.entity.output"))
    sent = parsed(attributes.get("traceloop.entity.input"))
    if isinstance(sent, dict) and isinstance(sent.get("kwargs"), dict) and not sent.get("args"):
        sent = sent["kwargs"]
    if sent is not None:
        attributes.setdefault(TOOL_ARGUMENTS, safe_json(sent))


def _read_reasons(attributes: Attributes, dialect: str) -> None:
    reasons = attributes.get(FINISH_REASONS)
    if isinstance(reasons, list):
        own = _REASONS[dialect]
        attributes[FINISH_REASONS] = [own.get(str(reason), reason) for reason in reasons]


def _definition(function: dict[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters") or function.get("input_schema")
    schema = parsed(parameters) if isinstance(parameters, str) else parameters
    known = {"type": "function", "name": function.get("name"), "description": function.get("description")}
    known["parameters"] = schema
    return {name: value for name, value in known.items() if value is not None}


def _read_parts(attributes: Attributes, name: str) -> None:
    messages = parsed(attributes.get(name))
    if not isinstance(messages, list):
        return
    for message in messages:
        parts = message.get("parts") if isinstance(message, dict) else None
        if isinstance(parts, list):
            message["parts"] = [_right_part(part) for part in parts if part != {"content": "", "type": "text"}]
    attributes[name] = safe_json(messages)


def _right_part(part: Any) -> Any:
    """Of Responses, reasoning stands there as the JSON text of its summaries, and a call has the id of its item, which
    no result names."""
    if not isinstance(part, dict):
        return part
    if part.get("type") == "tool_call" and str(part.get("id")).startswith(_ITEM_ID):
        return {name: value for name, value in part.items() if name != "id"}
    summaries = parsed(part.get("content")) if part.get("type") == "reasoning" else None
    if not (isinstance(summaries, list) and all(isinstance(each, dict) and "text" in each for each in summaries)):
        return part
    return {**part, "content": "\n".join(str(each["text"]) for each in summaries)}


DIALECT = ForeignDialect(
    name="OpenLLMetry",
    made_by="`opentelemetry-instrumentation-openai` and `-anthropic` of Traceloop, 0.40.14 and 0.62.4; `traceloop-sdk`",
    is_made=_is_made,
    renamed={
        CONVERSATION_ID: ("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id"),
    },
    read=_read,
    derived=(
        (OPERATION, "`traceloop.span.kind`: workflow and agent → `invoke_agent`, tool → `execute_tool`"),
        (AGENT_NAME, "`traceloop.entity.name` of an agent or workflow"),
        (TOOL_NAME, "`traceloop.entity.name` of a tool"),
        (TOOL_ARGUMENTS, "`traceloop.entity.input`; its `kwargs` alone, where nothing else was passed"),
        (TOOL_RESULT, "`traceloop.entity.output`"),
        (TOOL_DEFINITIONS, "`llm.request.functions.N.*`"),
        (names.DIALECT, "by the span's name: `openai.chat`, `openai.response`, `anthropic.chat`"),
        (FINISH_REASONS, "the provider's word, where the conventions' word stands for one alone"),
    ),
    lacks=(
        "output tokens of a stream of Anthropic's: the instrumentation adds those of the stream's first event to the "
        "last count, so the sum is wrong and is read as unknown",
        "usage of a stream that was not asked to include it; that a stream broke off (the status is OK)",
        "finish reasons of Responses: what stands there is made up from the kind of output; and the ids of its tool "
        "calls: what stands there are those of the items",
        "reasoning of Chat Completions before 0.62; times of first chunk and first content",
    ),
)
