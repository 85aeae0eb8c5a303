"""The GenAI conventions' own older spellings, whoever made the span; and the types that values may have come in.

A reader cannot go by ``schemaUrl``: libraries stamp what they like. It goes by the names that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.store.foreign.dialect import (
    CACHE_READ,
    CACHE_WRITE,
    CHAT,
    ERROR_TYPE,
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
    STREAM,
    SYSTEM_INSTRUCTIONS,
    TOOL_DEFINITIONS,
    Attributes,
    count_of,
    put_json,
    rename,
    text_of,
)
from otel_gym.store.foreign.errors import error_category, exception_type
from otel_gym.store.foreign.indexed import objects_below
from otel_gym.store.json_text import parsed
from otel_gym.store.span import STATUS_ERROR, SpanEvent, StoredSpan
from otel_gym.wire.items.genai import items_of_messages
from otel_gym.wire.items.shapes import objects_of
from otel_gym.wire.parts import content_of

# Our name → the earlier ones, newest first.
RENAMED: dict[str, tuple[str, ...]] = {
    PROVIDER: ("gen_ai.system",),
    OPERATION: ("llm.request.type",),
    STREAM: ("gen_ai.is_streaming", "llm.is_streaming"),
    INPUT_TOKENS: ("gen_ai.usage.prompt_tokens",),
    OUTPUT_TOKENS: ("gen_ai.usage.completion_tokens",),
    CACHE_READ: ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.input_tokens.cached"),
    CACHE_WRITE: (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
    ),
    REASONING_TOKENS: ("gen_ai.usage.reasoning_tokens", "llm.usage.reasoning_tokens"),
    FINISH_REASONS: (
        "gen_ai.response.finish_reason",
        "gen_ai.response.stop_reason",
        "llm.response.finish_reason",
        "llm.response.stop_reason",
    ),
    "gen_ai.request.seed": ("gen_ai.openai.request.seed",),
    "gen_ai.output.type": ("gen_ai.openai.request.response_format",),
    "gen_ai.request.top_k": ("llm.top_k",),
    "gen_ai.request.frequency_penalty": ("llm.frequency_penalty",),
    "gen_ai.request.presence_penalty": ("llm.presence_penalty",),
    "gen_ai.request.stop_sequences": ("llm.chat.stop_sequences",),
    "openai.request.service_tier": ("gen_ai.openai.request.service_tier",),
    "openai.response.service_tier": ("gen_ai.openai.response.service_tier",),
    "openai.response.system_fingerprint": (
        "gen_ai.openai.response.system_fingerprint",
        "gen_ai.openai.system_fingerprint",
    ),
}
COUNTS = (INPUT_TOKENS, OUTPUT_TOKENS, CACHE_READ, CACHE_WRITE, REASONING_TOKENS, "gen_ai.request.top_k")
PROVIDERS = {
    "az.ai.openai": "azure.ai.openai",
    "az.ai.inference": "azure.ai.inference",
    "azure": "azure.ai.openai",
    "aws": "aws.bedrock",
    "aws_bedrock": "aws.bedrock",
    "bedrock": "aws.bedrock",
    "google": "gcp.gen_ai",
    "gemini": "gcp.gemini",
    "mistralai": "mistral_ai",
    "vertexai": "gcp.vertex_ai",
    "vertex_ai": "gcp.vertex_ai",
}
OPERATIONS = {"completion": "text_completion", "embedding": "embeddings"}
# What `openai.api.type` says → our dialect.
API_TYPES = {"chat_completions": "chat", "responses": "responses"}
DERIVED: tuple[tuple[str, str], ...] = (
    (OPERATION, "`chat`, where a span names none and tells of a model, and of a prompt or what came out"),
    (PROVIDER, "in lower case, by the name of the conventions"),
    ("gen_ai.usage.*", "counts that came as texts or doubles; `input_tokens` with the cache, where they came without"),
    (
        FINISH_REASONS,
        "a list, where one text came, or a list as JSON; else those of `gen_ai.output.messages`; none of an answer of "
        "Responses that is complete, whose provider says none",
    ),
    (
        INPUT_MESSAGES,
        "`gen_ai.prompt` (JSON, or one attribute a field) and `gen_ai.completion`; events `gen_ai.*.message`, "
        "`gen_ai.choice`, `gen_ai.content.prompt`, `gen_ai.content.completion`, "
        "`gen_ai.client.inference.operation.details`; messages with `content` instead of `parts`",
    ),
    (names.DIALECT, "by `openai.api.type`"),
    (ERROR_TYPE, "the class of the exception that the span recorded, where it failed and says no more"),
    (names.ERROR_CATEGORY, "by `http.response.status_code`, `error.type`, or the exception's event"),
)
_MODEL_OPERATIONS = (CHAT, "text_completion", "generate_content")
# Responses says why an answer is incomplete, and no more; no provider says `error`.
_MADE_UP = ("", "error", "completed", "stop", "tool_call", "tool_calls")
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_CONTENT = (INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS)
_MESSAGE_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def read(span: StoredSpan, attributes: Attributes) -> None:
    """Brings the conventions' attributes, as far as they are there, into the form that our own spans have."""
    rename_old(attributes)
    _read_names(attributes)
    _read_details(span.events, attributes)
    _read_prompt(attributes)
    _read_events(span.events, attributes)
    for name in (INPUT_MESSAGES, OUTPUT_MESSAGES):
        _read_messages(attributes, name)
    _read_definitions(attributes)
    _read_operation(attributes)
    _read_reasons(attributes)
    _read_counts(attributes)
    if attributes.get(OPERATION) in _MODEL_OPERATIONS:
        category = error_category(span, attributes)
        if category is not None:
            attributes.setdefault(names.ERROR_CATEGORY, category)
    exception = exception_type(span)
    if exception is not None and span.status == STATUS_ERROR:
        attributes.setdefault(ERROR_TYPE, exception)


def rename_old(attributes: Attributes) -> None:
    rename(attributes, RENAMED)


def user_messages(span: StoredSpan, attributes: Attributes) -> Iterator[SpanEvent]:
    """What a turn of an agent began with, as events that a trajectory is made of."""
    if attributes.get(OPERATION) == INVOKE_AGENT:
        for item in items_of_messages(parsed(attributes.get(INPUT_MESSAGES))):
            if item.get("role") == "user":
                yield SpanEvent(names.USER_MESSAGE_EVENT, span.start_ns, {names.ITEM: safe_json(item)})


def _read_names(attributes: Attributes) -> None:
    provider = text_of(attributes, PROVIDER)
    if provider is not None:
        provider = provider.lower()
        attributes[PROVIDER] = PROVIDERS.get(provider, provider)
    operation = text_of(attributes, OPERATION)
    if operation is not None:
        attributes[OPERATION] = OPERATIONS.get(operation, operation)
    dialect = API_TYPES.get(text_of(attributes, "openai.api.type") or "")
    if dialect is not None:
        attributes.setdefault(names.DIALECT, dialect)
    stream = attributes.get(STREAM)
    if isinstance(stream, str):
        attributes[STREAM] = stream.lower() == "true"
    first_chunk = attributes.get(FIRST_CHUNK_S)
    if type(first_chunk) is int:
        attributes[FIRST_CHUNK_S] = float(first_chunk)


def _read_details(events: Iterable[SpanEvent], attributes: Attributes) -> None:
    for event in events:
        if event.name == _DETAILS_EVENT:
            for name in _CONTENT:
                value = event.attributes.get(name)
                if value is not None:
                    attributes.setdefault(name, value)


def _read_prompt(attributes: Attributes) -> None:
    """Prompt and completion as one JSON text each, or as one attribute a field."""
    said: tuple[tuple[str, str, str], ...] = (
        (INPUT_MESSAGES, "gen_ai.prompt", "user"),
        (OUTPUT_MESSAGES, "gen_ai.completion", "assistant"),
    )
    for name, old, role in said:
        if name in attributes:
            continue
        text = attributes.get(old)
        if text is not None:
            put_json(attributes, name, _messages_of_text(text, role))
        else:
            put_json(attributes, name, map(_message_of_fields, objects_below(attributes, old)))


def _messages_of_text(text: Any, role: str) -> list[Any]:
    value = parsed(text) if isinstance(text, str) else text
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return [genai_message({"role": role, **entry}) for entry in value]
    return [genai_message({"role": role, "content": text})] if isinstance(text, str) else []


def _message_of_fields(fields: dict[str, Any]) -> dict[str, Any]:
    functions = [{"id": call.get("id"), "function": call} for call in objects_of(fields.get("tool_calls"))]
    content = parsed(fields.get("content"))
    if not (isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)):
        content = fields.get("content")
    reason = fields.get("finish_reason")
    return genai_message({**fields, "content": content, "tool_calls": functions, "finish_reason": reason})


def _read_events(events: Iterable[SpanEvent], attributes: Attributes) -> None:
    """Messages that came as events of the span, of the conventions before 1.37."""
    sent: list[Any] = []
    answered: list[Any] = []
    for event in events:
        said = event.attributes
        role = _MESSAGE_EVENTS.get(event.name)
        if role is not None:
            sent.append(genai_message({"role": role, **_event_fields(said)}))
        elif event.name == "gen_ai.choice":
            fields = _event_fields(said)
            inner = parsed(fields.get("message")) if isinstance(fields.get("message"), str) else fields.get("message")
            message = inner if isinstance(inner, dict) else fields
            answered.append(
                genai_message({"role": "assistant", "finish_reason": fields.get("finish_reason"), **message})
            )
        elif event.name == "gen_ai.content.prompt":
            sent += _messages_of_text(said.get("gen_ai.prompt"), "user")
        elif event.name == "gen_ai.content.completion":
            answered += _messages_of_text(said.get("gen_ai.completion"), "assistant")
    put_json(attributes, INPUT_MESSAGES, sent)
    put_json(attributes, OUTPUT_MESSAGES, answered)


def _event_fields(said: dict[str, Any]) -> dict[str, Any]:
    body = said.get("event_body", said.get("body"))
    fields = parsed(body) if isinstance(body, str) else body
    known = {**said, **fields} if isinstance(fields, dict) else dict(said)
    calls = known.get("tool_calls")
    if isinstance(calls, str):
        known["tool_calls"] = parsed(calls)
    if "id" in known and "tool_call_id" not in known:
        known["tool_call_id"] = known["id"]
    return known


def genai_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message in the conventions' form, of one as Chat Completions has it, or of Anthropic's blocks."""
    if isinstance(message.get("parts"), list):
        return message
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    of_anthropic = any(isinstance(block, dict) and block.get("type") in _BLOCKS for block in blocks)
    read = content_of("messages" if of_anthropic else "chat", {"messages": [message]}, None)
    [made] = read.input_messages
    reason = message.get("finish_reason")
    return {**made, "finish_reason": reason} if isinstance(reason, str) else made


_BLOCKS = ("tool_use", "tool_result", "thinking")


def _read_messages(attributes: Attributes, name: str) -> None:
    """As JSON text, each message with parts."""
    value = attributes.get(name)
    messages = parsed(value) if isinstance(value, str) else value
    if not isinstance(messages, list):
        return
    if isinstance(value, str) and all(isinstance(entry, dict) and "parts" in entry for entry in messages):
        return  # as it should be, and mostly is
    del attributes[name]
    put_json(attributes, name, [genai_message(entry) for entry in messages if isinstance(entry, dict)])


def _read_definitions(attributes: Attributes) -> None:
    """As the conventions have them, of tools in the form of a request."""
    text = attributes.get(TOOL_DEFINITIONS)
    tools = list(objects_of(parsed(text) if isinstance(text, str) else text))
    if tools and any(field in tool for tool in tools for field in ("function", "input_schema")):
        dialect = "messages" if any("input_schema" in tool for tool in tools) else "chat"
        del attributes[TOOL_DEFINITIONS]
        put_json(attributes, TOOL_DEFINITIONS, content_of(dialect, {"tools": tools}, None).tool_definitions)


def _read_operation(attributes: Attributes) -> None:
    """Spans of the first conventions have none; embeddings have nothing that came out."""
    tells = OUTPUT_TOKENS in attributes or INPUT_MESSAGES in attributes or OUTPUT_MESSAGES in attributes
    if OPERATION not in attributes and REQUEST_MODEL in attributes and tells:
        attributes[OPERATION] = CHAT


def _read_reasons(attributes: Attributes) -> None:
    reasons = attributes.pop(FINISH_REASONS, None)
    if isinstance(reasons, str):
        listed = parsed(reasons)
        reasons = listed if isinstance(listed, list) else [reasons]
    if reasons is None:
        messages = objects_of(parsed(attributes.get(OUTPUT_MESSAGES)))
        reasons = [message.get("finish_reason") for message in messages]
    if not isinstance(reasons, list):
        return
    made_up = _MADE_UP if attributes.get(names.DIALECT) == "responses" else ("", "error")
    said = [reason for reason in reasons if isinstance(reason, str) and reason not in made_up]
    if said:
        attributes[FINISH_REASONS] = said


def _read_counts(attributes: Attributes) -> None:
    for name in COUNTS:
        if name in attributes:
            count = count_of(attributes[name])
            if count is None:
                del attributes[name]
            else:
                attributes[name] = count
    parts = (attributes.get(CACHE_READ) or 0) + (attributes.get(CACHE_WRITE) or 0)
    prompt = attributes.get(INPUT_TOKENS)
    if prompt is not None and prompt < parts:  # the whole is never less than its parts: they were left out of it
        attributes[INPUT_TOKENS] = prompt + parts
