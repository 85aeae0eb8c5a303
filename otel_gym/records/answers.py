"""One answer of a model by what it holds: what it said, what it thought, what it called."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from otel_gym.records.said import said_item
from otel_gym.wire.items.shapes import CALL_TYPES, OUTPUT_TYPES, Item

RESULT_TYPES = frozenset(OUTPUT_TYPES.values())


class Answer(msgspec.Struct):
    """``messages``: their contents, each a text or parts; ``reasoning``: its texts. ``arguments`` of a call may be an
    object.
    """

    messages: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Item] = field(default_factory=list)
    others: list[Item] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """An item of the answer; outputs of tools are none."""
        kind = item.get("type", "message")
        if kind == "message":
            self.messages.append(item.get("content"))
        elif kind == "reasoning":
            self.add_reasoning(_reasoning(item))
        elif kind in CALL_TYPES:
            self.calls.append(item)
        elif kind not in OUTPUT_TYPES.values():
            self.others.append(said_item(item))

    def add_reasoning(self, text: str) -> None:
        if text:
            self.reasoning.append(text)


def _reasoning(item: Item) -> str:
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    return "\n".join([part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)])
