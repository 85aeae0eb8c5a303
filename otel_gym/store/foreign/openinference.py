"""OpenInference (Arize Phoenix): ``openinference.span.kind``, ``llm.*``, ``tool.*``, ``input.value``.

``output.value`` of a model call mostly holds the whole answer as its client saw it, which tells more than the
attributes made from it: the answer's id, and the usage as the provider said it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym import conventions as names
from otel_gym.store.foreign.answers import read_answer
from otel_gym.store.foreign.dialect import (
    AGENT_ID,
    AGENT_NAME,
    CACHE_READ,
    CACHE_WRITE,
    CHAT,
    CONVERSATION_ID,
    EXECUTE_TOOL,
    FINISH_REASONS,
    FIRST_CHUNK_S,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    INVOKE_AGENT,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    PROVIDER,
    REASONING_TOKENS,
    REQUEST_MODEL,
    RESPONSE_ID,
    RESPONSE_MODEL,
    STREAM,
    TOOL_ARGUMENTS,
    TOOL_CALL_ID,
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
from otel_gym.wire.parts.shapes import known, tool_call_part, tool_response_part

KIND = "openinference.span.kind"
_OPERATIONS = {
    "LLM": CHAT,
    "AGENT": INVOKE_AGENT,
    "TOOL": EXECUTE_TOOL,
    "EMBEDDING": "embeddings",
    "RETRIEVER": "retrieval",
}
# By the names of the spans of its instrumentations of OpenAI and Anthropic.
_DIALECTS = {
    "ChatCompletion": "chat",
    "AsyncChatCompletion": "chat",
    "Response": "responses",
    "messages.create": "messages",
    "messages.stream": "messages",
}
_FIRST_TOKEN_EVENT = "First Token Stream Event"
_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}


def read(span: StoredSpan, attributes: Attributes) -> None:
    operation = _OPERATIONS.get(text_of(attributes, KIND) or "")
    if operation is None:
        return
    attributes.setdefault(OPERATION, operation)
    if operation == CHAT:
        _read_call(span, attributes)
    elif operation == EXECUTE_TOOL:
        put(attributes, gen_ai__tool__call__arguments=attributes.get("input.value"))
        put(attributes, gen_ai__tool__call__result=attributes.get("output.value"))
    elif operation == INVOKE_AGENT:
        put(attributes, gen_ai__agent__name=span.name)


def _read_call(span: StoredSpan, attributes: Attributes) -> None:
    answer, request = _json_object(attributes, "output.value"), _json_object(attributes, "input.value")
    if isinstance(request.get("model"), str):
        attributes.setdefault(REQUEST_MODEL, request["model"])
    dialect = _DIALECTS.get(span.name)
    if dialect is not None:
        attributes.setdefault(names.DIALECT, dialect)
    read_answer(attributes, answer, request)
    for name, value in _json_object(attributes, "llm.invocation_parameters").items():
        ours = _PARAMETERS.get(name)
        if ours is not None and type(value) in (int, float):
            attributes.setdefault(ours, value)
    if _streams(attributes, request):
        attributes.setdefault(STREAM, True)
    first = next((event.time_unix_nano for event in span.events if event.name == _FIRST_TOKEN_EVENT), None)
    if first is not None:
        attributes.setdefault(FIRST_CHUNK_S, (first - span.start_ns) / 10**9)
    put_json(attributes, INPUT_MESSAGES, map(_message, objects_below(attributes, "llm.input_messages")))
    put_json(attributes, OUTPUT_MESSAGES, map(_message, objects_below(attributes, "llm.output_messages")))
    tools = (parsed(each.get("tool", {}).get("json_schema")) for each in objects_below(attributes, "llm.tools"))
    put_json(attributes, TOOL_DEFINITIONS, filter(None, tools))


def _streams(attributes: Attributes, request: Mapping[str, Any]) -> bool:
    return True in (request.get("stream"), _json_object(attributes, "llm.invocation_parameters").get("stream"))


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    fields = entry.get("message")
    message = fields if isinstance(fields, dict) else {}
    role = message.get("role")
    role = role if isinstance(role, str) else "unknown"
    if message.get("tool_call_id") is not None:
        return {"role": "tool", "parts": [tool_response_part(message["tool_call_id"], message.get("content"))]}
    parts = [part for content in _objects(message.get("contents")) for part in _part(content)]
    text = message.get("content")
    if isinstance(text, str) and text:
        parts.insert(0, {"type": "text", "content": text})
    said = {part.get("id") for part in parts if part["type"] == "tool_call"}
    calls = [_call(call) for call in _objects(message.get("tool_calls"))]
    return {"role": role, "parts": parts + [call for call in calls if call.get("id") not in said]}


def _part(content: dict[str, Any]) -> list[dict[str, Any]]:
    if "tool_call" in content:
        return [_call(content)]
    said = content.get("message_content")
    part = said if isinstance(said, dict) else {}
    text = part.get("text")
    if not isinstance(text, str):
        return []
    return [known(type="reasoning" if part.get("type") == "reasoning" else "text", content=text)]


def _call(entry: dict[str, Any]) -> dict[str, Any]:
    call = entry.get("tool_call")
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = parsed(function.get("arguments"))
    return tool_call_part(
        call.get("id"), function.get("name"), function.get("arguments") if arguments is None else arguments
    )


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _json_object(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parsed(attributes.get(name))
    return value if isinstance(value, dict) else {}


DIALECT = ForeignDialect(
    name="OpenInference",
    made_by="`openinference-instrumentation-openai` 0.1.66 and `-anthropic` 3.1.0 (Arize Phoenix)",
    is_made=lambda span: KIND in span.attributes,
    renamed={
        PROVIDER: ("llm.provider", "llm.system"),
        REQUEST_MODEL: ("llm.request.model_name", "llm.model_name"),
        RESPONSE_MODEL: ("llm.response.model_name",),
        INPUT_TOKENS: ("llm.token_count.prompt",),
        OUTPUT_TOKENS: ("llm.token_count.completion",),
        REASONING_TOKENS: ("llm.token_count.completion_details.reasoning",),
        CACHE_READ: ("llm.token_count.prompt_details.cache_read",),
        CACHE_WRITE: ("llm.token_count.prompt_details.cache_write",),
        FINISH_REASONS: ("llm.finish_reason",),
        CONVERSATION_ID: ("session.id",),
        AGENT_NAME: ("agent.name", "graph.node.name"),
        AGENT_ID: ("agent.id",),
        TOOL_NAME: ("tool.name", "tool_call.function.name"),
        TOOL_CALL_ID: ("tool_call.id", "tool.id"),
        TOOL_ARGUMENTS: ("tool_call.function.arguments", "tool.parameters"),
        "gen_ai.tool.description": ("tool.description",),
    },
    read=read,
    derived=(
        (OPERATION, f"`{KIND}`: LLM → `chat`, AGENT → `invoke_agent`, TOOL → `execute_tool`, others none of a view"),
        (RESPONSE_ID, "`id` of `output.value`, where that is the answer as JSON"),
        ("gen_ai.usage.*", "`usage` of `output.value`, where it is there, rather than `llm.token_count.*`"),
        (f"{INPUT_MESSAGES}, {OUTPUT_MESSAGES}", "`input.value` and `output.value` as JSON, else `llm.*_messages.N.*`"),
        (names.DIALECT, "by the form of `output.value`, or the span's name"),
        (STREAM, "`stream` of `input.value` or `llm.invocation_parameters`"),
        (FIRST_CHUNK_S, f"the event `{_FIRST_TOKEN_EVENT}`"),
        (TOOL_RESULT, "`output.value` of a TOOL; `input.value` gives its arguments, where nothing else does"),
    ),
    lacks=(
        "usage of a stream that was not asked to include it; HTTP status; the provider's request id",
        "reasoning of streamed Chat Completions; the time of first content",
        "ids, usage details and messages where content is hidden (`OPENINFERENCE_HIDE_*`)",
    ),
)
