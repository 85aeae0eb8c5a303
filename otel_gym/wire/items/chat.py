"""Chat Completions → items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.wire.items.shapes import (
    Item,
    function_call_item,
    function_output_item,
    message_item,
    objects_of,
    reasoning_item,
)


def output_items(response: Mapping[str, Any]) -> list[Item]:
    """Of the first choice: the other ones are alternatives to it, not what came after."""
    choice = next(objects_of(response.get("choices")), {})
    message = choice.get("message")
    return list(_items_of_assistant(message)) if isinstance(message, dict) else []


def input_items(request: Mapping[str, Any]) -> list[Item]:
    return [item for message in objects_of(request.get("messages")) for item in _items_of(message)]


def _items_of(message: Item) -> Iterator[Item]:
    role = message.get("role")
    if role == "assistant":
        yield from _items_of_assistant(message)
    elif role in ("tool", "function"):
        yield function_output_item(message.get("tool_call_id"), message.get("content"))
    else:
        yield message_item(role if isinstance(role, str) else "user", _parts(message.get("content")))


def _items_of_assistant(message: Item) -> Iterator[Item]:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and isinstance(reasoning, str):
        yield reasoning_item(reasoning)
    parts = _parts_said(message)
    if parts:
        yield message_item("assistant", parts)
    calls = list(objects_of(message.get("tool_calls")))
    yield from map(_call, calls)
    former_call = message.get("function_call")
    if not calls and isinstance(former_call, dict):
        yield function_call_item(None, former_call.get("name"), former_call.get("arguments"))


def _parts_said(message: Item) -> list[Item]:
    content, refusal = message.get("content"), message.get("refusal")
    parts: list[Item] = []
    if isinstance(content, str):
        parts = [{"type": "output_text", "text": content}] if content else []
    else:
        parts = [_part(part, "output_text") for part in objects_of(content)]
    if refusal and isinstance(refusal, str):
        parts.append({"type": "refusal", "refusal": refusal})
    return parts


def _call(call: Item) -> Item:
    custom = call.get("custom")
    if isinstance(custom, dict):
        return {
            "type": "custom_tool_call",
            "call_id": call.get("id"),
            "name": custom.get("name"),
            "input": custom.get("input"),
        }
    function = call.get("function")
    called = function if isinstance(function, dict) else {}
    return function_call_item(call.get("id"), called.get("name"), called.get("arguments"))


def _parts(content: Any) -> Any:
    return content if isinstance(content, str) else [_part(part, "input_text") for part in objects_of(content)]


def _part(part: Item, text_type: str) -> Item:
    kind = part.get("type")
    if kind == "text":
        return {**part, "type": text_type}
    image = part.get("image_url")
    if kind == "image_url" and isinstance(image, dict):
        detail = {"detail": image["detail"]} if "detail" in image else {}
        return {"type": "input_image", "image_url": image.get("url"), **detail}
    return part
