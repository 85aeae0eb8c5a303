"""What was said in a model call, as items of the Responses API.

One reader a dialect turns an answer into output items, in the order in which the model made them, and a request into
input items. A Responses payload comes back as it is. What has no item type of its own (a hosted tool of Anthropic's)
keeps its type and fields. Nothing is invented: a field that the wire lacks is absent. No JSON value makes a reader
raise. Items share values with what was read: do not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_gym.wire.items import chat, messages, responses
from otel_gym.wire.items.shapes import Item

__all__ = ["Item", "input_items", "output_items"]

OUTPUT_READERS: dict[str, Callable[[Mapping[str, Any]], list[Item]]] = {
    "responses": responses.output_items,
    "chat": chat.output_items,
    "messages": messages.output_items,
}
INPUT_READERS: dict[str, Callable[[Mapping[str, Any]], list[Item]]] = {
    "responses": responses.input_items,
    "chat": chat.input_items,
    "messages": messages.input_items,
}


def output_items(dialect: str, response: Any) -> list[Item]:
    """What the model made: reasoning, messages, tool calls. Of several choices the first."""
    return OUTPUT_READERS[dialect](response) if isinstance(response, Mapping) else []


def input_items(dialect: str, request: Any) -> list[Item]:
    """What the model was sent; system instructions first, as messages of role ``system``."""
    return INPUT_READERS[dialect](request) if isinstance(request, Mapping) else []
