"""The tool calls that a response asks its client to run, whatever the dialect.

The dialect is read off the response: an ``output`` list is Responses (also an empty one), else a ``choices``
list is Chat Completions, else a ``content`` list is Anthropic Messages. Hosted tools and plain Responses
custom tools are left out, as NeMo Gym does; a custom tool in a Chat answer is listed without name and with ``{}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

RAW_ARGUMENTS = "_raw"


@dataclass(frozen=True, slots=True)
class RequestedToolCall:
    """One call. ``call_id`` and ``name`` are what the server wrote: text, unless it broke its own schema."""

    call_id: Any = None
    name: Any = None
    arguments: dict[str, Any] = field(default_factory=dict)


def tool_calls(response: Any) -> list[RequestedToolCall]:
    """The calls in the order of the response. Never raises; what is no call is passed over."""
    if not isinstance(response, Mapping):
        return []
    for key, read in READERS:
        items = response.get(key)
        if isinstance(items, list):
            return list(read(items))
    return []


def tool_arguments(value: Any) -> dict[str, Any]:
    """Arguments as an object, with nothing lost and nothing raised (R047).

    ``null`` and ``""`` (and the text ``null``) → ``{}``; an object as it is; text that holds an object → that
    object; anything else (broken JSON, a list, a scalar) → ``{"_raw": text}``, never a silent ``{}``.
    """
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        return {RAW_ARGUMENTS: json.dumps(value, ensure_ascii=False)}
    try:
        # NaN and Infinity are no JSON: null, as in every value that we derive.
        parsed = json.loads(value, parse_constant=lambda _name: None)
    except (ValueError, RecursionError):
        return {RAW_ARGUMENTS: value}
    if isinstance(parsed, dict):
        return parsed
    return {} if value.strip() == "null" else {RAW_ARGUMENTS: value}


def _responses_calls(output: list[Any]) -> Iterator[RequestedToolCall]:
    for item in _objects(output):
        if item.get("type") != "function_call":
            continue
        yield RequestedToolCall(
            call_id=item.get("call_id") or item.get("id"),
            name=item.get("name"),
            arguments=tool_arguments(item.get("arguments")),
        )


def _chat_calls(choices: list[Any]) -> Iterator[RequestedToolCall]:
    for choice in _objects(choices):
        message = choice.get("message")
        if not isinstance(message, Mapping):
            continue
        for call in _objects(message.get("tool_calls")):
            function = call.get("function")
            called = function if isinstance(function, Mapping) else {}
            yield RequestedToolCall(
                call_id=call.get("id"),
                name=called.get("name"),
                arguments=tool_arguments(called.get("arguments")),
            )


def _messages_calls(content: list[Any]) -> Iterator[RequestedToolCall]:
    for block in _objects(content):
        if block.get("type") != "tool_use":
            continue
        yield RequestedToolCall(
            call_id=block.get("id"),
            name=block.get("name"),
            arguments=tool_arguments(block.get("input")),
        )


def _objects(items: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(items, list):
        return
    yield from (item for item in items if isinstance(item, Mapping))


Reader = Callable[[list[Any]], Iterable[RequestedToolCall]]

READERS: tuple[tuple[str, Reader], ...] = (
    ("output", _responses_calls),
    ("choices", _chat_calls),
    ("content", _messages_calls),
)
