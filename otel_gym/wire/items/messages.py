"""Anthropic Messages → items. A block is an item of its own, so that the order of texts, thoughts and calls stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def output_items(response: Mapping[str, Any]) -> list[Item]:
    return list(_items_of_blocks("assistant", response.get("content")))


def input_items(request: Mapping[str, Any]) -> list[Item]:
    items = list(_items_of_blocks("system", request.get("system")))
    for message in objects_of(request.get("messages")):
        role = message.get("role")
        items += _items_of_blocks(role if isinstance(role, str) else "user", message.get("content"))
    return items


def item_of_block(role: str, block: Item) -> Item:
    """The item of one content block; one of a type that has none keeps its type and fields."""
    kind = block.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return read(role, block) if read else block


def _items_of_blocks(role: str, content: Any) -> Iterator[Item]:
    if isinstance(content, str):
        yield message_item(role, content)
        return
    for block in objects_of(content):
        yield item_of_block(role, block)


def _text(role: str, block: Item) -> Item:
    part = text_part(role, block.get("text") or "")
    citations = block.get("citations")
    return message_item(role, [{**part, "annotations": citations} if citations else part])


def _media(role: str, block: Item) -> Item:
    return message_item(role, [media_part(block)])


def media_part(block: Item) -> Item:
    """An image as the Responses API has it; any other block as it is."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return block
    if source.get("type") == "base64":
        return {"type": "input_image", "image_url": f"data:{source.get('media_type')};base64,{source.get('data')}"}
    if source.get("type") == "url":
        return {"type": "input_image", "image_url": source.get("url")}
    return block


def tool_result_output(content: Any) -> Any:
    """A text as it is, blocks as parts of a function call's output."""
    if not isinstance(content, list):
        return "" if content is None else content
    return [_output_part(block) for block in objects_of(content)]


def _output_part(block: Item) -> Item:
    if block.get("type") == "text":
        return {"type": "input_text", "text": block.get("text") or ""}
    return media_part(block)


_READERS: dict[str, Callable[[str, Item], Item]] = {
    "text": _text,
    "thinking": lambda role, block: reasoning_item(block.get("thinking"), block.get("signature")),
    "redacted_thinking": lambda role, block: reasoning_item(None, block.get("data")),
    "tool_use": lambda role, block: function_call_item(block.get("id"), block.get("name"), block.get("input")),
    "tool_result": lambda role, block: function_output_item(
        block.get("tool_use_id"), tool_result_output(block.get("content"))
    ),
    "image": _media,
    "document": _media,
}
