"""Chat Completions: chunks of a stream → the ``chat.completion`` object of the plain call."""

from __future__ import annotations

import math
from typing import Any

from otel_gym.wire.assembler import (
    Fragments,
    StreamAssembler,
    append_text,
    fold_delta,
    is_error,
    is_index,
    known_for_null,
    merge_latest,
    settle,
    text_of,
)
from otel_gym.wire.call_fragments import NAMES, CallFragments, take_name
from otel_gym.wire.exchange import JsonObject

DONE = "[DONE]"

_PART_NAMES = NAMES | {"signature"}
_THINKING = "thinking"
_PART_TEXT = ("text", "summary", _THINKING, "data", "signature")
# Lists of a choice that grow with each chunk (vLLM, SGLang, NeMo Gym); other lists come whole.
_GROWING_LISTS = frozenset({"generation_log_probs", "generation_token_ids", "routed_experts", "token_ids"})
# A payload without choices is a chunk if it has one of these; a ping or an error is none.
_CHUNK_MARKS = ("id", "model", "object", "prompt_filter_results", "usage")
# What counts wherever it is said, as for Gym (R012).
_ANYONES_FIELDS = ("id", "model", "usage")
# Keys of a chunk that the plain object does not have: padding against traffic analysis, and the error.
_CHUNK_ONLY = frozenset({"choices", "error", "obfuscation", "object"})
_REASONING_NAMES = ("reasoning_content", "reasoning")
# What makes a delta content (R023); roles, empty strings and signatures do not.
_CONTENT_KEYS = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "refusal",
    "reasoning_details",
    "function_call",
    "audio",
    "images",
    "reasoning_text",
    "thinking",
)


class ChatAssembler(StreamAssembler):
    """Every choice by its index, usage as last sent, everything else under its own name.

    An empty string or a zero never overwrites a known id, model or time (Azure's filter chunks,
    R011), nor what is no text a known id, a null never a value, nor a count of the usage (R020). A stream of
    nothing but an error, or of another dialect's events, yields no object.
    """

    done_marker = DONE

    def __init__(self) -> None:
        super().__init__()
        self._fields: JsonObject = {}
        self._choices: dict[int, _Choice] = {}
        self._seen = False

    def take(self, payload: JsonObject) -> bool:
        choices = payload.get("choices")
        has_content = False
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    has_content = self._take_choice(choice) or has_content
        if choices or _is_chunk(payload):
            self._seen = True
            self._take_fields(payload)
        else:
            self._take_fields({key: payload[key] for key in _ANYONES_FIELDS if key in payload})
        return has_content

    def _take_choice(self, chunk: JsonObject) -> bool:
        index = _choice_index(chunk.get("index"))
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        return choice.take(chunk)

    def _take_fields(self, chunk: JsonObject) -> None:
        fields = self._fields
        for key, value in chunk.items():
            known = fields.get(key)
            if isinstance(value, float) and not math.isfinite(value):
                value = None  # a record has null there, and a null wipes nothing
            if key in _CHUNK_ONLY or (known and not value):
                continue
            if key == "id" and isinstance(known, str) and not isinstance(value, str):
                continue
            if value is None:
                fields.setdefault(key, None)
            elif isinstance(value, dict) and isinstance(known, dict):
                if key == "usage":
                    fields[key] = known_for_null(value, known)
                else:
                    merge_latest(known, value)
            else:
                fields[key] = value

    def result(self) -> JsonObject | None:
        if not self._choices and not self._seen:
            return None
        choices = [self._choices[index].result() for index in sorted(self._choices)]
        whole = {**self._fields, "object": "chat.completion", "choices": choices}
        if whole.get("usage", "") is None:
            # Every chunk but the last says "usage": null; a plain answer never does.
            del whole["usage"]
        return whole


def _is_chunk(payload: JsonObject) -> bool:
    """Whether a payload without choices is a chunk; the events of the other dialects all have a ``type``."""
    is_of_another = isinstance(payload.get("type"), str)
    return not is_of_another and not is_error(payload) and any(map(payload.get, _CHUNK_MARKS))


def _choice_index(index: object) -> int:
    if isinstance(index, int):
        return int(index)
    is_number = isinstance(index, str) and len(index) < 10 and index.isascii() and index.isdigit()
    return int(str(index)) if is_number else 0


class _Reasoning:
    """Reasoning under two names. Every name that came holds all of it: a server that sends both sends the text
    twice, one that changes the name in mid-stream (a gateway with a fallback) continues it (R018)."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, Fragments] = {}

    def take(self, texts: dict[str, str]) -> None:
        """The texts of one delta by their names."""
        for name in texts:
            if name not in self._texts:
                before = [told.text() for told in self._texts.values()]
                self._texts[name] = Fragments(*before[:1])
        for name, known in self._texts.items():
            known.add(texts[name] if name in texts else next(iter(texts.values())))

    def result(self) -> JsonObject:
        return {name: told.text() for name, told in self._texts.items()}


class _Choice:
    __slots__ = (
        "_fields",
        "_finish_reason",
        "_index",
        "_message",
        "_reasoning",
        "_role",
        "_said_empty",
        "_tool_calls",
        "_whole",
    )

    def __init__(self, index: int) -> None:
        self._index = index
        self._finish_reason: Any = None
        self._fields: JsonObject = {}
        self._role: Any = None
        self._message: JsonObject = {"content": None}
        self._said_empty = False
        self._reasoning: _Reasoning | None = None
        self._tool_calls: CallFragments | None = None
        self._whole: JsonObject | None = None

    def take(self, chunk: JsonObject) -> bool:
        has_content = False
        for key, value in chunk.items():
            if key == "delta":
                has_content = isinstance(value, dict) and self._take_delta(value)
            elif key == "finish_reason":
                self._finish_reason = value or self._finish_reason
            elif key == "message":
                if isinstance(value, dict):
                    self._whole = value
                    has_content = has_content or _is_content(value)
            elif key != "index":
                self._take_field(key, value)
        return has_content

    def _take_field(self, key: str, value: Any) -> None:
        known = self._fields.get(key)
        if value is None:
            self._fields.setdefault(key, None)
        elif isinstance(value, list) and isinstance(known, list) and key in _GROWING_LISTS:
            known.extend(value)
        elif isinstance(value, dict) and isinstance(known, dict) and key == "logprobs":
            fold_delta(known, value, NAMES)
        elif isinstance(value, dict) and isinstance(known, dict):
            merge_latest(known, value)
        else:
            self._fields[key] = value

    def _take_delta(self, delta: JsonObject) -> bool:
        message = self._message
        self._take_reasoning(delta)
        for key, value in delta.items():
            if key == "content" and value:
                self._take_content(value)
            elif key == "content":
                self._said_empty = self._said_empty or value == ""
            elif key in _REASONING_NAMES and value and isinstance(value, str):
                continue
            elif key == "role":
                self._role = value or self._role
            elif key == "tool_calls" and isinstance(value, list):
                self._take_tool_calls(value)
            elif key == "reasoning_details" and isinstance(value, list):
                known = message.get(key)
                message[key] = _merge_parts(known if isinstance(known, list) else [], value)
            elif key == "function_call" and isinstance(value, dict):
                self._take_function_call(value)
            else:
                fold_delta(message, {key: value}, NAMES)
        return _is_content(delta)

    def _take_reasoning(self, delta: JsonObject) -> None:
        texts = {name: delta[name] for name in _REASONING_NAMES if text_of(delta, name) is not None}
        if texts:
            self._reasoning = self._reasoning or _Reasoning()
            self._reasoning.take(texts)

    def _take_content(self, value: Any) -> None:
        known = self._message["content"]
        if isinstance(known, list):
            parts = [{"type": "text", "text": value}] if isinstance(value, str) else value
            self._message["content"] = _merge_parts(known, parts) if isinstance(parts, list) else known
        elif isinstance(value, str):
            append_text(self._message, "content", value)
        elif isinstance(value, list):
            before = [{"type": "text", "text": known}] if known else []
            self._message["content"] = _merge_parts(before, value)
        elif known is None:
            self._message["content"] = value

    def _take_tool_calls(self, fragments: list[Any]) -> None:
        if self._tool_calls is None:
            self._tool_calls = CallFragments()
        for fragment in fragments:
            if isinstance(fragment, dict):
                self._tool_calls.take(fragment)

    def _take_function_call(self, fragment: JsonObject) -> None:
        known = self._message.get("function_call")
        if not isinstance(known, dict):
            known = self._message["function_call"] = {}
        take_name(known, fragment.get("name"))
        fold_delta(known, {key: value for key, value in fragment.items() if key != "name"}, NAMES)

    def result(self) -> JsonObject:
        if self._whole is not None:
            message = self._whole
        else:
            message = {"role": self._role or "assistant", **_settled(self._message)}
            if self._reasoning is not None:
                message |= self._reasoning.result()
            if self._tool_calls is not None:
                message["tool_calls"] = self._tool_calls.result()
            if self._said_empty and not _is_content(message):
                # Nothing was said but the empty text. Beside anything else a plain answer has null there.
                message["content"] = ""
        choice = {"index": self._index, "message": message, "finish_reason": self._finish_reason}
        return {**choice, **_settled(self._fields)}


def _settled(fields: JsonObject) -> JsonObject:
    settled: JsonObject = settle(fields)
    for key, value in settled.items():
        if isinstance(value, list) and key in ("content", "reasoning_details"):
            settled[key] = [_settled_part(part) for part in value]
    return settled


def _settled_part(part: Any) -> Any:
    settled = settle(part)
    if isinstance(settled, dict) and isinstance(settled.get(_THINKING), list):
        settled[_THINKING] = [settle(inner) for inner in settled[_THINKING]]
    return settled


def _is_content(delta: JsonObject) -> bool:
    for key in _CONTENT_KEYS:
        value = delta.get(key)
        if value and (key != "tool_calls" or _names_or_extends_a_call(value)):
            return True
    return False


def _names_or_extends_a_call(fragments: object) -> bool:
    if not isinstance(fragments, list):
        return False
    for fragment in fragments:
        if not isinstance(fragment, dict):
            continue
        bodies = (fragment.get("function"), fragment.get("custom"))
        if fragment.get("id") or any(isinstance(body, dict) and any(body.values()) for body in bodies):
            return True
    return False


def _merge_parts(known: list[Any], parts: list[Any], *, inner: bool = False) -> list[Any]:
    """Content parts or reasoning details: a part with the type and index of the last one continues it.

    Without an index only the first part of a delta can: the others were sent apart from it. A part of thinking holds
    ``inner`` parts (Mistral), which continue each other likewise.
    """
    for place, part in enumerate(parts):
        last = known[-1] if known else None
        if not isinstance(part, dict) or not isinstance(last, dict) or not _continues(last, part, place):
            known.append(part)
            continue
        thoughts, more = last.get(_THINKING), part.get(_THINKING)
        if isinstance(thoughts, list) and isinstance(more, list) and not inner:
            _merge_parts(thoughts, more, inner=True)
            part = {key: value for key, value in part.items() if key != _THINKING}
        fold_delta(last, part, _PART_NAMES)
    return known


def _continues(last: JsonObject, part: JsonObject, place: int) -> bool:
    if last.get("type") != part.get("type") or last.get("index") != part.get("index"):
        return False
    if (place and not is_index(part.get("index"))) or not any(map(part.get, _PART_TEXT)):
        return False
    last_id, part_id = last.get("id"), part.get("id")
    return part_id is None or last_id is None or part_id == last_id
