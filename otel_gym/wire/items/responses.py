"""OpenAI Responses: items as they are. A message that leaves out its type, as inputs may, gets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.wire.items.shapes import Item, message_item, objects_of


def output_items(response: Mapping[str, Any]) -> list[Item]:
    return [_typed(item) for item in objects_of(response.get("output"))]


def input_items(request: Mapping[str, Any]) -> list[Item]:
    instructions, given = request.get("instructions"), request.get("input")
    items = [message_item("system", instructions)] if isinstance(instructions, str) and instructions else []
    if isinstance(given, str):
        return [*items, message_item("user", given)]
    return items + [_typed(item) for item in objects_of(given)]


def _typed(item: Item) -> Item:
    return item if "type" in item else {"type": "message", **item}
