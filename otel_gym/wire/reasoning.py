"""The reasoning text of a response, whatever the dialect, apart from its answer text.

Responses: the summaries of reasoning items, or their ``content`` where there is no summary. Chat: a text under
``reasoning_content``, else ``reasoning``. Messages: ``thinking``. Reasoning objects, ``reasoning_details`` and
``<think>`` inside the answer are not read, as NeMo Gym does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def reasoning_content(response: Any) -> str | None:
    """All reasoning texts joined by LF, None if there is none. Never raises."""
    if not isinstance(response, Mapping):
        return None
    for key, read in READERS:
        items = response.get(key)
        if isinstance(items, list):
            return "\n".join(read([item for item in items if isinstance(item, Mapping)])) or None
    return None


def _responses_reasoning(output: list[Mapping[str, Any]]) -> Iterator[str]:
    for item in output:
        if item.get("type") != "reasoning":
            continue
        yield from _texts(item.get("summary")) or _texts(item.get("content"))


def _chat_reasoning(choices: list[Mapping[str, Any]]) -> Iterator[str]:
    for choice in choices:
        message = choice.get("message")
        if not isinstance(message, Mapping):
            continue
        text = message.get("reasoning_content") or message.get("reasoning")
        if text and isinstance(text, str):
            yield text


def _messages_reasoning(content: list[Mapping[str, Any]]) -> Iterator[str]:
    for block in content:
        thinking = block.get("thinking")
        if block.get("type") in ("thinking", "redacted_thinking") and isinstance(thinking, str):
            yield thinking


def _texts(parts: Any) -> list[str]:
    if not isinstance(parts, list):
        return []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return [text for text in texts if text and isinstance(text, str)]


Reader = Callable[[list[Mapping[str, Any]]], Iterable[str]]

READERS: tuple[tuple[str, Reader], ...] = (
    ("output", _responses_reasoning),
    ("choices", _chat_reasoning),
    ("content", _messages_reasoning),
)
