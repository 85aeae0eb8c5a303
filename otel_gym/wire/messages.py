"""Anthropic Messages: events of a stream → the ``message`` object of the plain call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from otel_gym.wire.assembler import (
    Fragments,
    StreamAssembler,
    append_text,
    fold_delta,
    is_index,
    merge_latest,
    settle,
    text_of,
)
from otel_gym.wire.exchange import JsonObject

# Blocks whose start holds nothing yet: these keys fill up by deltas. Any other block is a call's
# head or comes whole, and so is content when it starts (R023).
_FILLED_BY_DELTAS = {"text": "text", "thinking": "thinking", "compaction": "content"}
# Strings of a delta that come whole; every other string is text.
_WHOLE_TEXT = frozenset({"content", "encrypted_content", "signature", "type"})
# Deltas whose text is content (R023), beside text and tool input: a new kind of delta may be anything.
_CONTENT_DELTAS = {"thinking_delta": "thinking", "compaction_delta": "content"}
# A block that no start announced gets its type from its first delta.
_TYPE_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "compaction"}


class MessagesAssembler(StreamAssembler):
    """Blocks by their index, usage merged by field, and what ``message_delta`` says on top.

    A second ``message_start`` replaces the envelope and keeps blocks and usage, as NeMo Gym does.
    A stream without ``message_start`` keeps what its blocks and its ``message_delta`` say (D3s).
    """

    terminal_events = frozenset({"message_stop"})

    def __init__(self) -> None:
        super().__init__()
        self._envelope: JsonObject | None = None
        self._blocks: dict[int, JsonObject] = {}
        self._input_json: dict[int, Fragments] = {}
        self._usage: JsonObject | None = None
        self._next_index = 0
        self._streaming_index = 0

    def take(self, payload: JsonObject) -> bool:
        kind = payload.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        return handler is not None and handler(self, payload)

    def take_message_start(self, event: JsonObject) -> bool:
        message = event.get("message")
        self._envelope = dict(message) if isinstance(message, dict) else {}
        if "usage" in self._envelope:
            self._merge_usage(self._envelope.pop("usage"))
        blocks = self._envelope.pop("content", None)
        has_content = False
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                has_content = self._open_block(self._next_index, block) or has_content
        return has_content

    def take_block_start(self, event: JsonObject) -> bool:
        block = event.get("content_block")
        index = event.get("index")
        place = index if is_index(index) else self._next_index
        return self._open_block(place, block if isinstance(block, dict) else {})

    def _open_block(self, index: int, block: JsonObject) -> bool:
        self._blocks[index] = block
        self._input_json.pop(index, None)
        self._streaming_index = index
        self._next_index = max(self._next_index, index + 1)
        kind = block.get("type")
        if kind == "fallback" and self._envelope is not None and isinstance(block.get("to"), dict):
            # The model that took over is the one that the plain answer names.
            self._envelope["model"] = text_of(block["to"], "model") or self._envelope.get("model")
        filled = _FILLED_BY_DELTAS.get(kind) if isinstance(kind, str) else None
        return bool(block.get(filled)) if filled else bool(kind)

    def take_block_delta(self, event: JsonObject) -> bool:
        delta = event.get("delta")
        if not isinstance(delta, dict):
            return False
        raw_index = event.get("index")
        index = raw_index if is_index(raw_index) else self._streaming_index
        block = self._blocks.get(index)
        if block is None:
            self._open_block(index, {})
            block = self._blocks[index]
        return self._take_delta(index, block, delta)

    def _take_delta(self, index: int, block: JsonObject, delta: JsonObject) -> bool:
        kind = text_of(delta, "type")
        if not block.get("type") and kind in _TYPE_OF_DELTA:
            block["type"] = _TYPE_OF_DELTA[kind]
        if kind == "text_delta":
            append_text(block, "text", delta.get("text"))
            return text_of(delta, "text") is not None
        if kind == "input_json_delta":
            fragment = text_of(delta, "partial_json")
            if fragment is not None:
                self._input_json.setdefault(index, Fragments()).add(fragment)
            return fragment is not None
        if kind == "citations_delta":
            if not isinstance(block.get("citations"), list):
                block["citations"] = []
            block["citations"].append(delta.get("citation"))
            return False
        said = {key: value for key, value in delta.items() if key != "type"}
        fold_delta(block, said, _WHOLE_TEXT)
        return text_of(delta, _CONTENT_DELTAS.get(kind or "", "")) is not None

    def take_message_delta(self, event: JsonObject) -> bool:
        if "usage" in event:
            self._merge_usage(event["usage"])
        said = {key: value for key, value in event.items() if key not in ("type", "delta", "usage", "error")}
        delta = event.get("delta")
        if isinstance(delta, dict):
            said = {**said, **delta}
        if self._envelope is None:
            self._envelope = {}
        if "stop_reason" in said:
            said["stop_reason"] = (
                said["stop_reason"] or None
            )  # an empty one says no more than null (gateways, between two deltas)
        # Replaced key by key, since a later list or object is the whole one; null wipes nothing.
        for key, value in said.items():
            if value is not None or key not in self._envelope:
                self._envelope[key] = value
        return False

    def _merge_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            if self._usage is None:
                self._usage = {}
            merge_latest(self._usage, usage)

    def result(self) -> JsonObject | None:
        if self._envelope is None and not self._blocks:
            return None
        message = {"type": "message", **(self._envelope or {})}
        message["type"] = message["type"] or "message"
        message["content"] = [self._finish_block(index) for index in sorted(self._blocks)]
        if self._usage is not None:
            message["usage"] = self._usage
        return message

    def _finish_block(self, index: int) -> JsonObject:
        block: JsonObject = settle(self._blocks[index])
        if index not in self._input_json:
            return block
        # Deltas win over an input that the start prefilled, as in the client (N8d).
        text = self._input_json[index].text()
        try:
            block["input"] = json.loads(text)
        except (ValueError, RecursionError):
            block["input"] = {"_raw": text}
        return block


_HANDLERS: dict[str, Callable[[MessagesAssembler, JsonObject], bool]] = {
    "message_start": MessagesAssembler.take_message_start,
    "content_block_start": MessagesAssembler.take_block_start,
    "content_block_delta": MessagesAssembler.take_block_delta,
    "message_delta": MessagesAssembler.take_message_delta,
}
