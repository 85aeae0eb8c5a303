"""What was said in a model call, in the message format of the GenAI conventions.

One reader a dialect turns a request and its response into messages made of parts (``text``, ``tool_call``,
``blob`` …). What the conventions have no part for keeps its own type and fields, which they allow; an item whose
type is one of theirs but whose fields are not becomes ``raw_<type>``. Nothing is invented: a field that the wire
lacks is absent. No JSON value makes a reader raise, and none recurses into what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym.wire.parts import chat, messages, responses
from otel_gym.wire.parts.shapes import GenAiContent, JsonObject

__all__ = ["DIALECTS", "GenAiContent", "content_of"]

DIALECTS: dict[str, Callable[[JsonObject, JsonObject], GenAiContent]] = {
    "chat": chat.content,
    "messages": messages.content,
    "responses": responses.content,
}


def content_of(dialect: str, request: JsonObject | None, response: JsonObject | None) -> GenAiContent:
    """The content of one exchange. Parts share values with ``request`` and ``response``: do not change them."""
    return DIALECTS[dialect](_object(request), _object(response))


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
