"""A second, naive reading of the traffic of a case, to hold ours against.

Written apart from ``otel_gym.wire`` and without any of it: whole bodies, no state machines, no care for speed. It reads
what the two must agree on (texts, tool calls, usage, ids, times of events), not every field of a response.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

TERMINAL_TYPES = {
    "responses": {
        "response.completed": "complete",
        "response.incomplete": "incomplete",
        "response.failed": "error",
        "error": "error",
    },
    "chat": {"error": "error"},
    "messages": {"message_stop": "complete", "error": "error"},
}
ENVELOPES = ("response.completed", "response.incomplete", "response.failed")
TOOL_ITEM = re.compile(r"(function|custom_tool|mcp|.*)_call$")


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _brotli(body: bytes) -> bytes:
    import brotli

    decoded: bytes = brotli.decompress(body)
    return decoded


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def _deflate(body: bytes) -> bytes:
    try:
        return zlib.decompress(body)
    except zlib.error:
        return zlib.decompress(body, -zlib.MAX_WBITS)


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "x-gzip": gzip.decompress,
    "br": _brotli,
    "zstd": _zstd,
    "deflate": _deflate,
}


def decoded(body: bytes, encoding: str | None) -> bytes:
    """The body without its content encodings; as it came if one of them is unknown or broken."""
    plain = body
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",") if part.strip()]):
        if name == "identity":
            continue
        try:
            plain = DECODERS[name](plain)
        except Exception:
            return decoded_so_far(body, encoding) or body
    return plain


def decoded_so_far(body: bytes, encoding: str | None) -> bytes:
    """What a reader of a compressed stream can have read when only ``body`` has come."""
    read = body
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",") if part.strip()]):
        try:
            read = STREAM_READERS[name](read) if name != "identity" else read
        except Exception:
            return b""
    return read


def _brotli_so_far(body: bytes) -> bytes:
    import brotli

    read: bytes = brotli.Decompressor().process(body)
    return read


STREAM_READERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body),
    "x-gzip": lambda body: zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body),
    "deflate": lambda body: zlib.decompressobj().decompress(body),
    "br": _brotli_so_far,
    "zstd": _zstd,
}


# ── server-sent events ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Event:
    """One event. ``end``: offset just behind the byte that closed it; ``closed``: its blank line came."""

    name: str
    data: str
    end: int
    closed: bool

    @property
    def payload(self) -> Object:
        try:
            parsed = json.loads(self.data)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}

    @property
    def kind(self) -> str:
        stated = self.payload.get("type")
        return self.name or (stated if isinstance(stated, str) else "")


def events(body: bytes) -> list[Event]:
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    found: list[Event] = []
    name, data = "", list[str]()

    def close(end: int, closed: bool) -> None:
        nonlocal name, data
        if data:
            found.append(Event(name, "\n".join(data), end, closed))
        name, data = "", []

    position = start
    for ending in re.finditer(rb"\r\n|\r|\n", body[start:]):
        line = body[position : start + ending.start()]
        position = start + ending.end()
        if not line:
            close(start + ending.start() + 1, True)
        else:
            name, data = _field(line, name, data)
    if position < len(body):
        name, data = _field(body[position:], name, data)
    close(len(body), False)
    return found


def _field(line: bytes, name: str, data: list[str]) -> tuple[str, list[str]]:
    label, _, value = line.decode("utf-8", "replace").partition(":")
    value = value.removeprefix(" ")
    if label == "data":
        return name, [*data, value]
    return (value if label == "event" else name), data


def terminal(found: list[Event], dialect: str) -> str | None:
    """complete, incomplete or error: what the first closed event that ends the stream says; None if none does."""
    for event in found:
        if not event.closed:
            continue
        if dialect == "chat" and event.data.strip() == "[DONE]":
            return "complete"
        types = TERMINAL_TYPES[dialect]
        for label in (event.name.strip(), event.payload.get("type")):
            if isinstance(label, str) and label in types:
                return types[label]
        error = event.payload.get("error")
        if isinstance(error, dict) or (dialect == "chat" and error is not None):
            return "error"
    return None


# ── first content ──────────────────────────────────────────────────────────────────────────────────────────────────


def is_content(event: Event, dialect: str) -> bool:
    """R023: text, reasoning, refusal, head or delta of a tool call, an item or envelope delivered whole."""
    return CONTENT[dialect](event)


def _chat_content(event: Event) -> bool:
    for choice in objects(event.payload.get("choices")):
        for carrier in (choice.get("delta"), choice.get("message")):
            if not isinstance(carrier, dict):
                continue
            if any(carrier.get(name) for name in CHAT_CONTENT) or objects(carrier.get("tool_calls")):
                return True
        if isinstance(choice.get("text"), str) and choice["text"]:
            return True
    return False


CHAT_CONTENT = (
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "function_call",
    "audio",
)


def _responses_content(event: Event) -> bool:
    payload = event.payload
    kind = str(payload.get("type") or event.name)
    if kind.endswith(".delta"):
        return bool(payload.get("delta"))
    if kind == "response.output_item.done":
        return isinstance(payload.get("item"), dict)
    if kind == "response.output_item.added":
        item = payload.get("item")
        return isinstance(item, dict) and bool(TOOL_ITEM.match(str(item.get("type"))))
    if kind.endswith(".done"):
        return any(payload.get(name) for name in ("text", "arguments", "input", "refusal"))
    envelope = payload.get("response")
    return isinstance(envelope, dict) and bool(envelope.get("output"))


def _messages_content(event: Event) -> bool:
    payload = event.payload
    kind = str(payload.get("type") or event.name)
    if kind == "message_start":
        message = payload.get("message")
        return isinstance(message, dict) and bool(message.get("content"))
    if kind == "content_block_start":
        block = payload.get("content_block")
        if not isinstance(block, dict):
            return False
        if block.get("type") in ("text", "thinking"):
            return bool(block.get("text") or block.get("thinking"))
        return True
    if kind == "content_block_delta":
        delta = payload.get("delta")
        return isinstance(delta, dict) and any(delta.get(name) for name in ("text", "thinking", "partial_json"))
    return False


CONTENT: dict[str, Callable[[Event], bool]] = {
    "chat": _chat_content,
    "responses": _responses_content,
    "messages": _messages_content,
}


# ── what a stream says, reduced to what both readings must agree on ────────────────────────────────────────────────


@dataclass
class Slot:
    index: Any
    id: Any = None
    name: str = ""
    arguments: str = ""
    custom: bool = False


@dataclass
class Choice:
    role: Any = "assistant"
    texts: dict[str, str] = field(default_factory=lambda: {"content": "", "reasoning": "", "refusal": ""})
    slots: list[Slot] = field(default_factory=list)
    finish_reason: Any = None
    logprobs: list[Any] = field(default_factory=list)
    token_ids: list[Any] = field(default_factory=list)

    def reduced(self) -> Object:
        slots = self.slots
        indices = [slot.index for slot in slots]
        if all(type(index) is int for index in indices) and len(set(indices)) == len(indices):
            slots = sorted(slots, key=lambda slot: slot.index)
        return {
            "role": self.role,
            **self.texts,
            "tool_calls": [[slot.id, slot.name, slot.arguments, slot.custom] for slot in slots],
            "finish_reason": self.finish_reason,
            "logprobs": self.logprobs,
            "token_ids": self.token_ids,
        }


def chat_stream(found: list[Event]) -> Object | None:
    choices: dict[Any, Choice] = {}
    top: Object = {"id": None, "model": None, "usage": None}
    saw_chunk = False
    for event in found:
        payload = event.payload
        saw_chunk = saw_chunk or "choices" in payload or any(payload.get(name) for name in top)
        for name in top:
            top[name] = payload.get(name) or top[name]
        for chunk in objects(payload.get("choices")):
            index = chunk.get("index", 0)
            choice = choices.setdefault(index if type(index) is int else 0, Choice())
            _add_chat_delta(choice, chunk)
    if not saw_chunk:
        return None
    return {**top, "choices": [choices[index].reduced() for index in sorted(choices)]}


def _add_chat_delta(choice: Choice, chunk: Object) -> None:
    delta = chunk.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    choice.role = delta.get("role") or choice.role
    choice.texts["content"] += text_of(delta.get("content"))
    choice.texts["refusal"] += text_of(delta.get("refusal"))
    choice.texts["reasoning"] += text_of(delta.get("reasoning_content") or delta.get("reasoning"))
    for fragment in objects(delta.get("tool_calls")):
        _add_fragment(choice.slots, fragment)
    choice.finish_reason = chunk.get("finish_reason") or choice.finish_reason
    logprobs = chunk.get("logprobs")
    choice.logprobs += (logprobs.get("content") or []) if isinstance(logprobs, dict) else []
    choice.token_ids += chunk.get("token_ids") or []


def _add_fragment(slots: list[Slot], fragment: Object) -> None:
    slot = _slot_of(slots, fragment)
    slot.id = slot.id or fragment.get("id") or None
    custom = fragment.get("custom")
    if isinstance(custom, dict):
        slot.custom = True
        slot.name += text_of(custom.get("name"))
        slot.arguments += text_of(custom.get("input"))
        return
    called = fragment.get("function")
    called = called if isinstance(called, dict) else {}
    name = text_of(called.get("name"))
    slot.name += "" if name == slot.name else name
    slot.arguments += text_of(called.get("arguments"))


def _slot_of(slots: list[Slot], fragment: Object) -> Slot:
    index, call_id = fragment.get("index"), fragment.get("id")
    same_index = [slot for slot in slots if slot.index == index and type(slot.index) is type(index)]
    if call_id:
        known = [slot for slot in slots if slot.id == call_id]
        if known:
            return known[-1]
        waiting = [slot for slot in same_index if index is not None and slot.id is None]
        if waiting:
            return waiting[-1]
    elif same_index and index is not None:
        return same_index[-1]
    elif slots and not _opens(fragment, index):
        return slots[-1]
    slots.append(Slot(index))
    return slots[-1]


def _opens(fragment: Object, index: Any) -> bool:
    called = fragment.get("function") or fragment.get("custom")
    return index is not None and isinstance(called, dict) and bool(called.get("name"))


def reduce_chat(response: Object) -> Object:
    return {
        "id": response.get("id") or None,
        "model": response.get("model") or None,
        "usage": response.get("usage") or None,
        "choices": [_reduce_chat_choice(choice) for choice in objects(response.get("choices"))],
    }


def _reduce_chat_choice(choice: Object) -> Object:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    logprobs = choice.get("logprobs")
    return {
        "role": message.get("role", "assistant"),
        "content": text_of(message.get("content")),
        "reasoning": text_of(message.get("reasoning_content") or message.get("reasoning")),
        "refusal": text_of(message.get("refusal")),
        "tool_calls": [_reduce_chat_call(call) for call in objects(message.get("tool_calls"))],
        "finish_reason": choice.get("finish_reason"),
        "logprobs": (logprobs.get("content") or []) if isinstance(logprobs, dict) else [],
        "token_ids": choice.get("token_ids") or [],
    }


def _reduce_chat_call(call: Object) -> list[Any]:
    custom = call.get("custom")
    if isinstance(custom, dict):
        return [call.get("id"), text_of(custom.get("name")), text_of(custom.get("input")), True]
    called = call.get("function")
    called = called if isinstance(called, dict) else {}
    return [call.get("id"), text_of(called.get("name")), text_of(called.get("arguments")), False]


def messages_stream(found: list[Event]) -> Object | None:
    message: Object = {}
    blocks: dict[Any, Object] = {}
    usage: Object = {}
    started = False
    for event in found:
        payload = event.payload
        kind = payload.get("type") or event.name
        delta = payload.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if kind == "message_start":
            started = True
            opening = payload.get("message")
            message = dict(opening) if isinstance(opening, dict) else {}
            _merge_known(usage, message.pop("usage", None))
        elif kind == "content_block_start":
            block = payload.get("content_block")
            blocks[payload.get("index", len(blocks))] = dict(block) if isinstance(block, dict) else {}
        elif kind == "content_block_delta":
            _add_block_delta(blocks.setdefault(payload.get("index", 0), {}), delta)
        elif kind == "message_delta":
            started = True
            _merge_known(usage, payload.get("usage"))
            _merge_known(message, delta)
    if not started and not blocks:
        return None
    order = sorted(blocks, key=lambda index: (type(index) is not int, index if type(index) is int else 0))
    return {
        "id": message.get("id"),
        "role": message.get("role"),
        "model": message.get("model"),
        "stop_reason": message.get("stop_reason"),
        "stop_sequence": message.get("stop_sequence"),
        "usage": usage,
        "content": [_reduce_block(_finished(blocks[index])) for index in order],
    }


def _merge_known(into: Object, more: Any) -> None:
    if isinstance(more, dict):
        into.update({name: value for name, value in more.items() if value is not None})


def _add_block_delta(block: Object, delta: Object) -> None:
    for name in ("text", "thinking", "signature"):
        if isinstance(delta.get(name), str):
            block[name] = text_of(block.get(name)) + delta[name]
    if isinstance(delta.get("partial_json"), str):
        block["partial"] = block.get("partial", "") + delta["partial_json"]
    if delta.get("citation") is not None:
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def _finished(block: Object) -> Object:
    partial = block.pop("partial", "")
    if not partial:
        return block
    try:
        block["input"] = json.loads(partial)
    except (ValueError, RecursionError):
        block["input"] = {"_raw": partial}
    return block


def _reduce_block(block: Object) -> list[Any]:
    return [
        block.get("id"),
        block.get("name"),
        block.get("input") or {},
        text_of(block.get("text")),
        text_of(block.get("thinking")),
        text_of(block.get("signature")),
        block.get("data"),
        block.get("citations") or [],
    ]


def reduce_messages(response: Object) -> Object:
    names = ("id", "role", "model", "stop_reason", "stop_sequence")
    return {
        **{name: response.get(name) for name in names},
        "usage": {name: value for name, value in (response.get("usage") or {}).items() if value is not None},
        "content": [_reduce_block(block) for block in objects(response.get("content"))],
    }


def responses_stream(found: list[Event]) -> Object | None:
    """The envelope as it came; without a terminal one, its output rebuilt from item and delta events."""
    payloads = [event.payload for event in found]
    for payload in reversed(payloads):
        if payload.get("type") in ENVELOPES and isinstance(payload.get("response"), dict):
            return reduce_responses(payload["response"])
    envelopes = [payload["response"] for payload in payloads if isinstance(payload.get("response"), dict)]
    items = _rebuilt_items(payloads)
    if not envelopes and not items:
        return None
    envelope = reduce_responses(envelopes[-1] if envelopes else {"object": "response"})
    return {**envelope, "output": [_reduce_item(item) for item in items] or envelope["output"]}


def _rebuilt_items(payloads: list[Object]) -> list[Object]:
    items: dict[int, Object] = {}
    for payload in payloads:
        kind = str(payload.get("type"))
        index = payload.get("output_index")
        index = index if type(index) is int else 0
        item = payload.get("item")
        if kind in ("response.output_item.added", "response.output_item.done") and isinstance(item, dict):
            items[index] = dict(item)
        elif kind.endswith(".delta") and kind.startswith("response.") and isinstance(payload.get("delta"), str):
            field_name = next((name for part, name in DELTA_FIELDS if part in kind), None)
            if field_name is not None:
                pieces = items.setdefault(index, {"id": payload.get("item_id")}).setdefault("pieces", {})
                pieces[field_name] = pieces.get(field_name, "") + payload["delta"]
    return [items[index] for index in sorted(items)]


DELTA_FIELDS = (
    ("function_call_arguments", "arguments"),
    ("custom_tool_call_input", "arguments"),
    ("output_text", "text"),
    ("refusal", "text"),
    ("reasoning_summary", "reasoning"),
    ("reasoning_text", "reasoning"),
)


def _reduce_item(item: Object) -> list[Any]:
    pieces = item.get("pieces", {})
    return [
        item.get("id"),
        item.get("call_id"),
        item.get("name"),
        pieces.get("arguments") or text_of(item.get("arguments") or item.get("input")),
        pieces.get("text") or (text_of(item.get("content")) if item.get("type") != "reasoning" else ""),
        pieces.get("reasoning")
        or text_of(item.get("summary"))
        or (text_of(item.get("content")) if item.get("type") == "reasoning" else ""),
    ]


def reduce_responses(response: Object) -> Object:
    rest = {name: value for name, value in response.items() if name != "output"}
    return {**rest, "output": [_reduce_item(item) for item in objects(response.get("output"))]}


STREAMS: dict[str, Callable[[list[Event]], Object | None]] = {
    "chat": chat_stream,
    "messages": messages_stream,
    "responses": responses_stream,
}
REDUCTIONS: dict[str, Callable[[Object], Object]] = {
    "chat": reduce_chat,
    "messages": reduce_messages,
    "responses": reduce_responses,
}


# ── what a response says, as NeMo Gym reads it, with the decided exceptions ────────────────────────────────────────


def count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def prompt_size(usage: Object) -> int | None:
    """D4: prompt_tokens wins and nothing is added to it; else input_tokens plus the top-level cache counts."""
    if count(usage.get("prompt_tokens")) is not None:
        return count(usage["prompt_tokens"])
    parts = [count(usage.get(name)) for name in ("input_tokens", *CACHE_FIELDS)]
    size = sum(part for part in parts if part is not None)
    return size if parts[0] is not None or size > 0 else None


CACHE_FIELDS = ("cache_read_input_tokens", "cache_creation_input_tokens")


def usage_fields(usage: Any) -> Object:
    usage = usage if isinstance(usage, dict) else {}

    def detail(groups: tuple[str, ...], names: tuple[str, ...]) -> int | None:
        tables = [usage.get(group) for group in groups]
        counts = (count(table.get(name)) for table in tables if isinstance(table, dict) for name in names)
        return next((found for found in counts if found is not None), None)

    tokens_in = prompt_size(usage)
    tokens_out = first(count(usage.get("output_tokens")), count(usage.get("completion_tokens")))
    summed = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    cached = first(
        detail(("prompt_tokens_details", "input_tokens_details"), ("cached_tokens", "cached_input_tokens")),
        count(usage.get("cache_read_input_tokens")),
        count(usage.get("cached_input_tokens")),
    )
    return {
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "tokens_total": first(count(usage.get("total_tokens")), summed),
        "tokens_reasoning": first(
            detail(("output_tokens_details", "completion_tokens_details"), ("reasoning_tokens",)),
            count(usage.get("reasoning_output_tokens")),
        ),
        "cached_tokens": cached,
        "cache_hit": None if cached is None else cached > 0,
        "cache_creation_tokens": count(usage.get("cache_creation_input_tokens")),
    }


def arguments(value: Any) -> Any:
    """N6."""
    if value in (None, "", "null"):
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        try:
            parsed = json.loads(value, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            parsed = None
        return parsed if isinstance(parsed, dict) else {"_raw": value}
    return {"_raw": json.dumps(value, ensure_ascii=False)}


def called_tools(response: Object) -> list[Object]:
    return [
        {"call_id": call_id, "name": name, "arguments": arguments(given)} for call_id, name, given in _calls(response)
    ]


def _calls(response: Object) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(response.get("output"), list):
        for item in objects(response["output"]):
            if item.get("type") == "function_call":
                yield item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments")
    elif isinstance(response.get("choices"), list):
        for choice in objects(response["choices"]):
            message = choice.get("message")
            for call in objects(message.get("tool_calls")) if isinstance(message, dict) else []:
                called = call.get("function")
                called = called if isinstance(called, dict) else {}
                yield call.get("id"), called.get("name"), called.get("arguments")
    else:
        for block in objects(response.get("content")):
            if block.get("type") == "tool_use":
                yield block.get("id"), block.get("name"), block.get("input")


def reasoning(response: Object) -> str | None:
    """With N9."""
    found: list[str] = []
    if isinstance(response.get("output"), list):
        for item in objects(response["output"]):
            if item.get("type") == "reasoning":
                found += _part_texts(item.get("summary")) or _part_texts(item.get("content"))
    elif isinstance(response.get("choices"), list):
        for choice in objects(response["choices"]):
            message = choice.get("message")
            message = message if isinstance(message, dict) else {}
            text = message.get("reasoning_content") or message.get("reasoning")
            found += [text] if isinstance(text, str) and text else []
    else:
        for block in objects(response.get("content")):
            if block.get("type") in ("thinking", "redacted_thinking") and isinstance(block.get("thinking"), str):
                found.append(block["thinking"])
    return "\n".join(found) or None


def _part_texts(parts: Any) -> list[str]:
    texts = [part.get("text") for part in objects(parts)]
    return [text for text in texts if isinstance(text, str) and text]


def answer_fields(request: Any, response: Any) -> Object:
    """Every field of a record that is read off its response; the first choice's finish_reason (D3n)."""
    request = request if isinstance(request, dict) else {}
    response = response if isinstance(response, dict) else {}
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    details = response.get("incomplete_details")
    details = details if isinstance(details, dict) else {}
    reasons = (response.get("stop_reason"), choice.get("finish_reason"), details.get("reason"))
    model = response.get("model") or request.get("model")
    return {
        **usage_fields(response.get("usage")),
        "response_id": text_or_none(response.get("id")),
        "response_status": text_or_none(response.get("status")),
        "model": text_or_none(model),
        "finish_reason": next((reason for reason in reasons if isinstance(reason, str)), None),
        "tool_calls": called_tools(response),
        "reasoning_content": reasoning(response),
    }


# ── small ones ─────────────────────────────────────────────────────────────────────────────────────────────────────


def objects(items: Any) -> list[Object]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def text_of(value: Any) -> str:
    """A text, or the texts of a list of parts put together."""
    if isinstance(value, str):
        return value
    return "".join(text_of(part.get("text") or part.get("refusal")) for part in objects(value))


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
