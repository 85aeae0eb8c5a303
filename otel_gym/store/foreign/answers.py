"""A whole answer of a model, where a span holds one: read by the rules for what models put on the wire."""

from __future__ import annotations

from typing import Any

from otel_gym import conventions as names
from otel_gym.store.foreign.dialect import (
    CACHE_READ,
    CACHE_WRITE,
    FINISH_REASONS,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    REASONING_TOKENS,
    RESPONSE_ID,
    RESPONSE_MODEL,
    SYSTEM_INSTRUCTIONS,
    TOOL_DEFINITIONS,
    Attributes,
    put_json,
)
from otel_gym.wire.parts import content_of
from otel_gym.wire.usage import token_stats

# A list that only answers of this dialect have.
_DIALECT_BY_FIELD = {"choices": "chat", "output": "responses", "content": "messages"}


def read_answer(attributes: Attributes, answer: dict[str, Any], request: dict[str, Any]) -> None:
    """Puts what an answer and its request tell in place of what the span's other attributes make of them."""
    dialect = next((name for field, name in _DIALECT_BY_FIELD.items() if isinstance(answer.get(field), list)), None)
    if dialect is None:
        return
    attributes.setdefault(names.DIALECT, dialect)
    said = content_of(dialect, request, answer)
    put_json(attributes, INPUT_MESSAGES, said.input_messages)
    put_json(attributes, OUTPUT_MESSAGES, said.output_messages)
    put_json(attributes, SYSTEM_INSTRUCTIONS, said.system_instructions)
    put_json(attributes, TOOL_DEFINITIONS, said.tool_definitions)
    for name, field in ((RESPONSE_ID, "id"), (RESPONSE_MODEL, "model"), ("gen_ai.response.status", "status")):
        if isinstance(answer.get(field), str):
            attributes[name] = answer[field]
    reason = _finish_reason(answer)
    if reason is not None:
        attributes[FINISH_REASONS] = [reason]
    tokens = token_stats(answer.get("usage"))
    counts = {
        INPUT_TOKENS: tokens.tokens_in,
        OUTPUT_TOKENS: tokens.tokens_out,
        REASONING_TOKENS: tokens.tokens_reasoning,
        CACHE_READ: tokens.cached_tokens,
        CACHE_WRITE: tokens.cache_creation_tokens,
    }
    attributes.update({name: count for name, count in counts.items() if count is not None})


def _finish_reason(answer: dict[str, Any]) -> str | None:
    choices, details = answer.get("choices"), answer.get("incomplete_details")
    first = choices[0] if isinstance(choices, list) and choices else None
    said = (
        answer.get("stop_reason"),
        first.get("finish_reason") if isinstance(first, dict) else None,
        details.get("reason") if isinstance(details, dict) else None,
    )
    return next((reason for reason in said if isinstance(reason, str)), None)
