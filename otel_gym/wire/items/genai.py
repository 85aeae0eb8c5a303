"""Messages and parts of the GenAI conventions → items: of spans whose calls nobody captured."""

from __future__ import annotations

from typing import Any

from otel_gym.wire.items.shapes import (
    Item,
    function_call_item,
    function_output_item,
    message_item,
    objects_of,
    reasoning_item,
    text_part,
)


def items_of_messages(messages: Any) -> list[Item]:
    """The items of a list of messages; a part that has no item type of its own keeps its type and fields."""
    return [
        _item(str(message.get("role") or "assistant"), part)
        for message in objects_of(messages)
        for part in objects_of(message.get("parts"))
    ]


def _item(role: str, part: Item) -> Item:
    kind, content = part.get("type"), part.get("content")
    if kind == "text" and isinstance(content, str):
        return message_item(role, [text_part(role, content)])
    if kind == "reasoning" and isinstance(content, str):
        return reasoning_item(content)
    if kind == "tool_call":
        return function_call_item(part.get("id"), part.get("name"), part.get("arguments"))
    if kind == "tool_call_response":
        return function_output_item(part.get("id"), part.get("response"))
    return part
