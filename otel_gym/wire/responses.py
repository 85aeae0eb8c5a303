"""OpenAI Responses: events of a stream → the ``response`` object of the plain call.

The terminal envelope carries that object whole, and then nothing else counts; only where it lists no output (some
gateways send it empty) are the finished items that came before it its output. Where the stream broke before it, the
output is rebuilt from item, part and delta events (R022).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym.wire.assembler import StreamAssembler, append_text, is_index, settle, text_of
from otel_gym.wire.exchange import JsonObject

# Items whose head holds nothing yet; the head of any other item is a tool call's (R023).
_FILLED_BY_DELTAS = {"message": "content", "reasoning": "summary"}


class ResponsesAssembler(StreamAssembler):
    """The first terminal event ends the stream, the last terminal envelope is the answer (parity)."""

    terminal_events = frozenset({"response.completed", "response.incomplete", "response.failed"})

    def __init__(self) -> None:
        super().__init__()
        self._final: JsonObject | None = None
        self._envelope: JsonObject | None = None
        self._output = _Output()

    def take(self, payload: JsonObject) -> bool:
        kind = payload.get("type")
        envelope = payload.get("response")
        if isinstance(envelope, dict):
            return self._take_envelope(kind, envelope)
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        return handler is not None and handler(self._output, payload)

    def _take_envelope(self, kind: object, envelope: JsonObject) -> bool:
        if isinstance(kind, str) and kind in self.terminal_events:
            self._final = envelope
            if kind == "response.failed" and isinstance(envelope.get("error"), dict) and self.error is None:
                self.error = envelope["error"]
        else:
            self._envelope = envelope
        return bool(envelope.get("output"))

    def result(self) -> JsonObject | None:
        if self._final is not None:
            finished = [] if self._final.get("output") else self._output.finished()
            return {**self._final, "output": finished} if finished else self._final
        listed = self._envelope.get("output") if self._envelope is not None else None
        output = self._output.result(listed if isinstance(listed, list) else [])
        if self._envelope is None:
            return {"object": "response", "output": output} if output else None
        return {**self._envelope, "output": output} if output else self._envelope


class _Item:
    """An output item while it streams. ``parts`` holds its content and summary parts by their index."""

    __slots__ = ("done", "fields", "parts", "position")

    def __init__(self, position: int, fields: JsonObject) -> None:
        self.position = position
        self.done = False
        self.parts: dict[str, dict[int, JsonObject]] = {}
        self.fields = fields

    def replace(self, fields: JsonObject, *, done: bool) -> None:
        self.fields = fields
        self.parts = {}
        self.done = done

    def part(self, holder: str, index: object, fresh: JsonObject) -> JsonObject:
        """The part at ``index`` (without one: the last that came), made from ``fresh`` where it is new."""
        parts = self._parts(holder)
        place = index if is_index(index) else next(reversed(parts), 0)
        return parts.setdefault(place, fresh)

    def set_part(self, holder: str, index: object, part: JsonObject) -> None:
        parts = self._parts(holder)
        parts[index if is_index(index) else len(parts)] = part

    def _parts(self, holder: str) -> dict[int, JsonObject]:
        if holder not in self.parts:
            known = self.fields.get(holder)
            listed = known if isinstance(known, list) else []
            self.parts[holder] = {place: part for place, part in enumerate(listed) if isinstance(part, dict)}
        return self.parts[holder]

    def result(self) -> JsonObject:
        for holder, parts in self.parts.items():
            self.fields[holder] = [settle(parts[index]) for index in sorted(parts)]
        fields: JsonObject = settle(self.fields)
        return fields


class _Output:
    """Output items, found by item id or, where that is unknown, by output index; else the last one.

    Servers disagree here: some give every item the index 0, some change an item's id between its
    head and its end (a new id on the index of an unfinished item of the same type is that item).
    """

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._by_index: dict[int, _Item] = {}

    def result(self, listed: list[Any]) -> list[Any]:
        """The items in order; one of ``listed``, the envelope's own, stays where no event told of it."""
        positions = {item.position for item in self._items}
        kept = [(place, item) for place, item in enumerate(listed) if place not in positions]
        told = [(item.position, item.result()) for item in self._items]
        return [item for _, item in sorted(kept + told, key=lambda entry: entry[0])]

    def finished(self) -> list[Any]:
        """The items that came whole, in order."""
        finished = [(item.position, item.result()) for item in self._items if item.done]
        return [item for _, item in sorted(finished, key=lambda entry: entry[0])]

    def take_item(self, event: JsonObject) -> bool:
        """An item's head (``added``) or the whole item (``done``)."""
        fields = event.get("item")
        if not isinstance(fields, dict):
            return False
        done = event.get("type") == "response.output_item.done"
        item = self._item_of(event, fields, done=done)
        if item is None:
            item = self._open(event, fields)
        item.replace(fields, done=done)
        item_id = text_of(fields, "id")
        if item_id is not None:
            self._by_id[item_id] = item
        return done or _head_is_content(fields)

    def _item_of(self, event: JsonObject, fields: JsonObject, *, done: bool) -> _Item | None:
        item_id = text_of(fields, "id")
        if item_id in self._by_id:
            return self._by_id[item_id]
        index = event.get("output_index")
        item = self._by_index.get(index) if is_index(index) else None
        if item is None or item.done or item.fields.get("type") != fields.get("type"):
            return None
        return item if done or "id" not in item.fields else None

    def _open(self, event: JsonObject, fields: JsonObject) -> _Item:
        index = event.get("output_index")
        place_of_last = self._items[-1].position if self._items else 0
        item = _Item(index if is_index(index) else place_of_last, fields)
        self._items.append(item)
        if is_index(index):
            self._by_index[index] = item
        item_id = text_of(event, "item_id")
        if item_id is not None:
            self._by_id[item_id] = item
        return item

    def item_for(self, event: JsonObject, kind: str) -> _Item:
        """The item that a part or delta event belongs to; one of that type where none was announced."""
        item_id = text_of(event, "item_id")
        item = self._by_id.get(item_id or "") or self._item_at(event.get("output_index"), item_id)
        if item is not None:
            return item
        fields: JsonObject = {"type": kind} if item_id is None else {"id": item_id, "type": kind}
        if kind == "message":
            fields["role"] = "assistant"
        return self._open(event, fields)

    def _item_at(self, index: object, item_id: str | None) -> _Item | None:
        if is_index(index):
            item = self._by_index.get(index)
            # An id that is new, on the index of a finished item, is a new item's.
            return None if item is not None and item.done and item_id is not None else item
        return self._items[-1] if self._items and item_id is None else None


def _head_is_content(fields: JsonObject) -> bool:
    kind = text_of(fields, "type")
    filled = _FILLED_BY_DELTAS.get(kind or "")
    return bool(fields.get(filled)) if filled else kind is not None


_Handler = Callable[[_Output, JsonObject], bool]


def _part_events(holder: str, index_key: str, item_kind: str) -> _Handler:
    """``…part.added`` and ``…part.done``: the part as it stands."""

    def take(output: _Output, event: JsonObject) -> bool:
        part = event.get("part")
        if not isinstance(part, dict):
            return False
        item = output.item_for(event, "reasoning" if part.get("type") == "reasoning_text" else item_kind)
        if not item.done:
            item.set_part(holder, event.get(index_key), part)
        return any(text_of(part, key) is not None for key in ("text", "refusal"))

    return take


def _part_delta(holder: str, index_key: str, item_kind: str, part_kind: str, key: str) -> _Handler:
    """A delta of a part's text; log probabilities that come beside it grow with it."""

    def take(output: _Output, event: JsonObject) -> bool:
        item = output.item_for(event, item_kind)
        if not item.done:
            part = item.part(holder, event.get(index_key), _fresh_part(part_kind, key))
            append_text(part, key, event.get("delta"))
            logprobs = event.get("logprobs")
            if isinstance(logprobs, list) and logprobs:
                _extend(part, "logprobs", logprobs)
        return text_of(event, "delta") is not None

    return take


def _part_done(holder: str, index_key: str, item_kind: str, part_kind: str, key: str) -> _Handler:
    """The whole text of a part."""

    def take(output: _Output, event: JsonObject) -> bool:
        item = output.item_for(event, item_kind)
        if isinstance(event.get(key), str) and not item.done:
            part = item.part(holder, event.get(index_key), _fresh_part(part_kind, key))
            part[key] = event[key]
            if isinstance(event.get("logprobs"), list) and event["logprobs"]:
                part["logprobs"] = event["logprobs"]
        return text_of(event, key) is not None

    return take


def _fresh_part(kind: str, key: str) -> JsonObject:
    part: JsonObject = {"type": kind, key: ""}
    if kind == "output_text":
        part["annotations"] = []
    return part


def _field_delta(item_kind: str, key: str) -> _Handler:
    """A delta of an item's own text: arguments, input, code."""

    def take(output: _Output, event: JsonObject) -> bool:
        item = output.item_for(event, item_kind)
        if not item.done:
            append_text(item.fields, key, event.get("delta"))
        return text_of(event, "delta") is not None

    return take


def _field_done(item_kind: str, key: str) -> _Handler:
    """The whole of an item's own text; some servers put the call's name beside it."""

    def take(output: _Output, event: JsonObject) -> bool:
        item = output.item_for(event, item_kind)
        if not item.done and isinstance(event.get(key), str):
            item.fields[key] = event[key]
            if text_of(event, "name") is not None and not item.fields.get("name"):
                item.fields["name"] = event["name"]
        return text_of(event, key) is not None

    return take


def _take_annotation(output: _Output, event: JsonObject) -> bool:
    item = output.item_for(event, "message")
    annotation = event.get("annotation")
    if annotation is not None and not item.done:
        part = item.part("content", event.get("content_index"), _fresh_part("output_text", "text"))
        _extend(part, "annotations", [annotation])
    return False


def _extend(holder: JsonObject, key: str, more: list[Any]) -> None:
    if isinstance(holder.get(key), list):
        holder[key].extend(more)
    else:
        holder[key] = list(more)


def _take_partial_image(output: _Output, event: JsonObject) -> bool:
    return True


_TEXT = ("content", "content_index", "message", "output_text", "text")
_REFUSAL = ("content", "content_index", "message", "refusal", "refusal")
_REASONING_TEXT = ("content", "content_index", "reasoning", "reasoning_text", "text")
_SUMMARY_TEXT = ("summary", "summary_index", "reasoning", "summary_text", "text")

_HANDLERS: dict[str, _Handler] = {
    "response.output_item.added": _Output.take_item,
    "response.output_item.done": _Output.take_item,
    "response.content_part.added": _part_events("content", "content_index", "message"),
    "response.content_part.done": _part_events("content", "content_index", "message"),
    "response.reasoning_summary_part.added": _part_events("summary", "summary_index", "reasoning"),
    "response.reasoning_summary_part.done": _part_events("summary", "summary_index", "reasoning"),
    "response.output_text.delta": _part_delta(*_TEXT),
    "response.output_text.done": _part_done(*_TEXT),
    "response.output_text.annotation.added": _take_annotation,
    "response.refusal.delta": _part_delta(*_REFUSAL),
    "response.refusal.done": _part_done(*_REFUSAL),
    "response.reasoning_text.delta": _part_delta(*_REASONING_TEXT),
    "response.reasoning_text.done": _part_done(*_REASONING_TEXT),
    "response.reasoning_summary_text.delta": _part_delta(*_SUMMARY_TEXT),
    "response.reasoning_summary_text.done": _part_done(*_SUMMARY_TEXT),
    "response.function_call_arguments.delta": _field_delta("function_call", "arguments"),
    "response.function_call_arguments.done": _field_done("function_call", "arguments"),
    "response.custom_tool_call_input.delta": _field_delta("custom_tool_call", "input"),
    "response.custom_tool_call_input.done": _field_done("custom_tool_call", "input"),
    "response.mcp_call_arguments.delta": _field_delta("mcp_call", "arguments"),
    "response.mcp_call_arguments.done": _field_done("mcp_call", "arguments"),
    "response.code_interpreter_call_code.delta": _field_delta("code_interpreter_call", "code"),
    "response.code_interpreter_call_code.done": _field_done("code_interpreter_call", "code"),
    "response.image_generation_call.partial_image": _take_partial_image,
}
