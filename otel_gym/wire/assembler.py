"""What the three dialects share when a stream becomes an object: terminal events, errors, deltas.

An assembler is fed the events of one stream and holds the object that the non-streaming call would
have returned. It takes what comes: any JSON type in any place, in any order. What it cannot place
it leaves out; it never raises for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeGuard

from otel_gym.wire.bodies import load_json_object
from otel_gym.wire.exchange import JsonObject
from otel_gym.wire.sse import ServerSentEvent

_FOLD_DEPTH = 16


class Fragments:
    """Text that is still coming, joined once at the end: adding a fragment costs its own length."""

    __slots__ = ("length", "parts")

    def __init__(self, *parts: str) -> None:
        self.parts = list(parts)
        self.length = sum(map(len, parts))

    def add(self, part: str) -> None:
        self.parts.append(part)
        self.length += len(part)

    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


def append_text(target: JsonObject, key: str, text: object) -> None:
    """Append to the text under ``key``; anything but a string is left out."""
    if not isinstance(text, str):
        return
    known = target.get(key)
    if isinstance(known, Fragments):
        known.add(text)
    elif isinstance(known, str) and known:
        target[key] = Fragments(known, text)
    else:
        target[key] = Fragments(text)


def fold_delta(target: JsonObject, delta: JsonObject, whole_text: frozenset[str], depth: int = _FOLD_DEPTH) -> None:
    """Fold a delta into what came before.

    Text is appended (under the keys of ``whole_text`` it replaces), lists are extended, objects
    folded, anything else replaced. A null never wipes a value.
    """
    for key, value in delta.items():
        known = target.get(key)
        if value is None:
            target.setdefault(key, None)
        elif isinstance(value, str) and key not in whole_text:
            append_text(target, key, value)
        elif isinstance(value, list) and isinstance(known, list):
            known.extend(value)
        elif isinstance(value, dict) and isinstance(known, dict) and depth:
            fold_delta(known, value, whole_text, depth - 1)
        else:
            target[key] = value


def merge_latest(target: JsonObject, update: JsonObject, depth: int = _FOLD_DEPTH) -> None:
    """Merge by field: the last value that is not null wins, also inside nested objects (R019, R020)."""
    for key, value in update.items():
        known = target.get(key)
        if value is None:
            target.setdefault(key, None)
        elif isinstance(value, dict) and isinstance(known, dict) and depth:
            merge_latest(known, value, depth - 1)
        else:
            target[key] = value


def known_for_null(update: JsonObject, known: JsonObject, depth: int = _FOLD_DEPTH) -> JsonObject:
    """The update as it was sent, but a null in it, also in nested objects, takes the known value (R020)."""
    filled: JsonObject = {}
    for key, value in update.items():
        before = known.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and depth:
            value = known_for_null(value, before, depth - 1)
        filled[key] = before if value is None else value
    return filled


def settle(value: Any, depth: int = _FOLD_DEPTH + 2) -> Any:
    """The value with every ``Fragments`` in it joined to text; objects are changed in place."""
    if isinstance(value, Fragments):
        return value.text()
    if isinstance(value, dict) and depth:
        for key, item in value.items():
            if isinstance(item, (Fragments, dict)):
                value[key] = settle(item, depth - 1)
    return value


def is_index(value: object) -> TypeGuard[int]:
    """Whether a value can be an index; true and false cannot."""
    return type(value) is int


class StreamAssembler:
    """Base of the dialects' assemblers.

    ``terminal`` is the first terminal event of the stream: the name on its ``event`` line or, where
    there is none, the type in its payload (parity N2). An event whose blank line never came ends
    nothing. ``error`` is the provider's error object, found by the payload too (R009).
    """

    terminal_events: ClassVar[frozenset[str]] = frozenset()
    done_marker: ClassVar[str | None] = None

    def __init__(self) -> None:
        self.terminal: str | None = None
        self.error: JsonObject | None = None

    def feed(self, event: ServerSentEvent) -> bool:
        """Take an event; return whether it holds content (R023)."""
        payload = load_json_object(event.data)
        terminal = self._terminal_of(event, payload)
        if terminal is not None and event.complete and self.terminal is None:
            self.terminal = terminal
        if terminal == "error" and self.error is None:
            self.error = stream_error(payload, event.data)
        return payload is not None and self.take(payload)

    def take(self, payload: JsonObject) -> bool:
        """Take an event's JSON object; return whether it holds content."""
        raise NotImplementedError

    def result(self) -> JsonObject | None:
        """The object so far; None where nothing of it came."""
        raise NotImplementedError

    def _terminal_of(self, event: ServerSentEvent, payload: JsonObject | None) -> str | None:
        name = event.name.strip() if event.name else None
        if name == "error" or name in self.terminal_events:
            return name
        if payload is None:
            return self._terminal_line_of(event.data)
        if is_error(payload):
            return "error"
        kind = payload.get("type")
        return kind if isinstance(kind, str) and kind in self.terminal_events else None

    def _terminal_line_of(self, text: str) -> str | None:
        """The done marker, or else an error, on a line of its own in an event that is no JSON as a whole (as Gym)."""
        if self.done_marker is None:
            return None
        lines = [line.strip() for line in text.split("\n")]
        if self.done_marker in lines:
            return self.done_marker
        payloads = map(load_json_object, lines) if len(lines) > 1 else ()
        return "error" if any(payload and is_error(payload) for payload in payloads) else None


def is_error(payload: JsonObject) -> bool:
    """Whether a payload reports an error, whatever its event is called (R009).

    An ``error`` is an object, also an empty one, or says something (Ollama, TGI send a text); false, 0
    and "" are none, and the OpenAI client raises for none of them. vLLM marks its error by ``object``.
    """
    return says_error(payload.get("error")) or payload.get("type") == "error" or payload.get("object") == "error"


def says_error(error: object) -> bool:
    return isinstance(error, dict) or bool(error)


def stream_error(payload: JsonObject | None, text: str) -> JsonObject:
    """The error object of an error event: its ``error``, else the event itself without its framing."""
    if payload is None:
        return {"message": text}
    error = payload.get("error")
    if not says_error(error):
        return {key: value for key, value in payload.items() if key not in _framing_of(payload)}
    return error_object(error)


def _framing_of(payload: JsonObject) -> set[str]:
    framing = {"sequence_number", "error", "object"}
    return framing | {"type"} if payload.get("type") == "error" else framing


def error_object(error: object) -> JsonObject:
    return error if isinstance(error, dict) else {"message": error}


def text_of(holder: Mapping[str, Any], key: str) -> str | None:
    """A string that is not empty, or None."""
    value = holder.get(key)
    return value if isinstance(value, str) and value else None
