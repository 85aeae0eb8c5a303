"""A second, naive reading of the traffic of a case, to hold ours against.

Written apart from ``otel_gym.wire`` and without any of it: whole bodies, no state machines, no care for speed. It reads
the whole of what a streamed response must hold; only the joints of reasoning details and of content parts are left
open (their texts are compared, put together).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
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


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def load(text: str | bytes) -> Any:
    """JSON as NeMo Gym reads it; what strict JSON cannot carry (NaN, Infinity, 1e400) is null."""

    def finite(number: str) -> float | None:
        return float(number) if math.isfinite(float(number)) else None

    return json.loads(text, parse_constant=lambda _: None, parse_float=finite)


def load_object(text: str | bytes) -> Object | None:
    try:
        parsed = load(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _brotli(body: bytes) -> bytes:
    import brotli

    read: bytes = brotli.Decompressor().process(body)
    return read


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(body)


def _gzip(body: bytes) -> bytes:
    read = b""
    while body.startswith(b"\x1f\x8b") or not read:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        read += member.decompress(body)
        body = member.unused_data
        if not member.eof or not body:
            break
    return read


def _deflate(body: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(body)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(body)


READERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def decoded_so_far(body: bytes, encoding: str | None) -> bytes:
    """What a reader can have read when only ``body`` has come: nothing where the first block is not whole yet, the
    bytes themselves where an encoding is unknown or was named but not applied."""
    read = body
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",") if part.strip()]):
        try:
            read = READERS[name](read) if name != "identity" and read else read
        except Exception:
            return body
    return read


def decoded(body: bytes, encoding: str | None) -> bytes:
    """A body that has come to its end, without its encodings as far as it goes; as it came if nothing comes out of
    what is not the whole of an empty body."""
    return decoded_so_far(body, encoding) or (b"" if _is_whole(body, encoding) else body)


def _is_whole(body: bytes, encoding: str | None) -> bool:
    import brotli
    import zstandard

    def zstd(data: bytes) -> bytes:
        frame = zstandard.ZstdDecompressor().decompressobj()
        read = frame.decompress(data)
        if not frame.eof:
            raise zstandard.ZstdError("cut")
        return read

    def deflate(data: bytes) -> bytes:
        try:
            return zlib.decompress(data)
        except zlib.error:
            return zlib.decompress(data, -zlib.MAX_WBITS)

    whole = {"gzip": gzip.decompress, "x-gzip": gzip.decompress, "deflate": deflate, "br": brotli.decompress}
    whole["zstd"] = zstd
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",") if part.strip()]):
        try:
            body = body if name == "identity" else whole[name](body)
        except Exception:
            return False
    return True


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
        return load_object(self.data) or {}

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
        if data or name:
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
        said = _ending(event, dialect) if event.closed else None
        if said is not None:
            return said
    return None


def _ending(event: Event, dialect: str) -> str | None:
    types = TERMINAL_TYPES[dialect]
    name = event.name.strip()
    if name in types:
        return types[name]
    lines = [line.strip() for line in event.data.split("\n")]
    if load_object(event.data) is None:
        if dialect == "chat" and "[DONE]" in lines:
            return "complete"
        broken = dialect == "chat" and len(lines) > 1 and any(says_error(load_object(line) or {}) for line in lines)
        return "error" if broken else None
    if says_error(event.payload):
        return "error"
    kind = event.payload.get("type")
    return types.get(kind) if isinstance(kind, str) else None


def says_error(payload: Object) -> bool:
    """R009: an error object, or anything else under ``error`` that says something; vLLM: ``object`` is error."""
    error = payload.get("error")
    return isinstance(error, dict) or bool(error) or "error" in (payload.get("type"), payload.get("object"))


# ── first content ──────────────────────────────────────────────────────────────────────────────────────────────────


def is_content(event: Event, dialect: str) -> bool:
    """R023: text, reasoning, refusal, head or delta of a tool call, an item or envelope delivered whole."""
    return CONTENT[dialect](event.payload)


def _chat_content(payload: Object) -> bool:
    for choice in objects(payload.get("choices")):
        for carrier in (choice.get("delta"), choice.get("message")):
            if isinstance(carrier, dict) and (
                any(carrier.get(name) for name in CHAT_CONTENT) or any(map(_says_of_a_call, calls_of(carrier)))
            ):
                return True
    return False


def calls_of(delta: Object) -> list[Object]:
    return objects(delta.get("tool_calls"))


def _says_of_a_call(fragment: Object) -> bool:
    bodies = [body for body in (fragment.get("function"), fragment.get("custom")) if isinstance(body, dict)]
    return bool(fragment.get("id")) or any(any(body.values()) for body in bodies)


CHAT_CONTENT = (
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "reasoning_details",
    "thinking",
    "refusal",
    "function_call",
    "audio",
    "images",
)


def _responses_content(payload: Object) -> bool:
    if isinstance(payload.get("response"), dict):
        return bool(payload["response"].get("output"))
    kind = payload.get("type")
    item, part = payload.get("item"), payload.get("part")
    if kind == "response.output_item.done":
        return isinstance(item, dict)
    if kind == "response.output_item.added" and isinstance(item, dict):
        filled = {"message": "content", "reasoning": "summary"}.get(str(item.get("type")))
        return bool(item.get(filled)) if filled else bool(text_or_none(item.get("type")))
    if kind == "response.image_generation_call.partial_image":
        return True
    if isinstance(part, dict) and PART_EVENT.fullmatch(str(kind)):
        return any(part.get(name) and isinstance(part[name], str) for name in ("text", "refusal"))
    found = TEXT_EVENT.fullmatch(str(kind))
    if found is None:
        return False
    name = "delta" if found["step"] == "delta" else {**PART_TEXTS, **ITEM_TEXTS}[found["what"]][-1]
    return bool(text_or_none(payload.get(name)))


# A Responses event of a text: what it is → the item it belongs to, and where its text goes there.
PART_TEXTS = {
    "output_text": ("message", "content", "content_index", "output_text", "text"),
    "refusal": ("message", "content", "content_index", "refusal", "refusal"),
    "reasoning_text": ("reasoning", "content", "content_index", "reasoning_text", "text"),
    "reasoning_summary_text": ("reasoning", "summary", "summary_index", "summary_text", "text"),
}
ITEM_TEXTS = {
    "function_call_arguments": ("function_call", "arguments"),
    "custom_tool_call_input": ("custom_tool_call", "input"),
    "mcp_call_arguments": ("mcp_call", "arguments"),
    "code_interpreter_call_code": ("code_interpreter_call", "code"),
}
TEXT_EVENT = re.compile(rf"response\.(?P<what>{'|'.join([*PART_TEXTS, *ITEM_TEXTS])})\.(?P<step>delta|done)")
PART_EVENT = re.compile(r"response\.(?P<what>content|reasoning_summary)_part\.(?:added|done)")


def _messages_content(payload: Object) -> bool:
    kind, delta = payload.get("type"), payload.get("delta")
    if kind == "message_start":
        message = payload.get("message")
        return isinstance(message, dict) and any(map(_is_filled, objects(message.get("content"))))
    if kind == "content_block_start":
        return isinstance(payload.get("content_block"), dict) and _is_filled(payload["content_block"])
    if kind == "content_block_delta" and isinstance(delta, dict):
        return bool(text_or_none(delta.get(MESSAGES_DELTAS.get(str(delta.get("type")), ""))))
    return False


def _is_filled(block: Object) -> bool:
    """A block of text, thinking or compaction starts empty; any other is a call's head, or whole."""
    name = {"text": "text", "thinking": "thinking", "compaction": "content"}.get(str(block.get("type")))
    return bool(block.get(name)) if name else bool(block.get("type"))


MESSAGES_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
CONTENT: dict[str, Callable[[Object], bool]] = {
    "chat": _chat_content,
    "responses": _responses_content,
    "messages": _messages_content,
}


# ── deltas ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# Strings that name something: a later one replaces; any other string of a delta continues the one before.
NAMES = frozenset({"format", "id", "model", "name", "object", "phase", "provider", "role", "status", "type"})


def folded(known: Any, more: Any, names: frozenset[str] = NAMES) -> Any:
    """Two values of one field of successive deltas, put together. A null adds nothing."""
    if more is None:
        return known
    if isinstance(known, str) and isinstance(more, str):
        return known + more
    if isinstance(known, list) and isinstance(more, list):
        return known + more
    if isinstance(known, dict) and isinstance(more, dict):
        whole = dict(known)
        for name, value in more.items():
            replaces = name in names and isinstance(value, str)
            whole[name] = value if replaces else folded(whole.get(name), value, names)
        return whole
    return more


def latest(known: Any, more: Any) -> Any:
    """The same for fields that come whole: the last value that is not null, also inside objects."""
    if more is None:
        return known
    if isinstance(known, dict) and isinstance(more, dict):
        return {name: latest(known.get(name), more.get(name)) for name in {**known, **more}}
    return more


def with_known_counts(known: Any, usage: Any) -> Any:
    """R020: the later usage, where it has a null the count that was known before."""
    if isinstance(known, dict) and isinstance(usage, dict):
        return {name: with_known_counts(known.get(name), value) for name, value in usage.items()}
    return known if usage is None else usage


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


def texts_by_name(value: Any) -> Object:
    """Per key: all texts under it put together; of names and signatures the last. Leaves joints open."""
    found: Object = {}

    def walk(item: Any, name: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                walk(inner, key)
        elif isinstance(item, list):
            for inner in item:
                walk(inner, name)
        elif isinstance(item, str):
            found[name] = item if name in NAMES | {"signature"} else found.get(name, "") + item

    walk(value, "")
    return found


# ── what a stream says ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Slot:
    """A tool call. ``index``: where it was opened; ``id_index``: the index beside which its id came."""

    index: int | None
    place: int
    id: Any = None
    id_index: int | None = None
    bodies: dict[str, Object] = field(default_factory=dict)
    rest: Object = field(default_factory=dict)

    @property
    def has_name(self) -> bool:
        return any(body.get("name") for body in self.bodies.values())

    def add(self, fragment: Object) -> None:
        for kind in CALL_BODIES:
            more = fragment.get(kind)
            if not isinstance(more, dict):
                continue
            body = self.bodies.setdefault(kind, {})
            name = text_of(more.get("name"))
            body["name"] = text_of(body.get("name")) + ("" if name == body.get("name") else name)
            said = {key: value for key, value in more.items() if value and key != "name"}
            self.bodies[kind] = {**more, **folded(body, said)} | {"name": body["name"]}
        rest = {name: value for name, value in fragment.items() if name not in CALL_KEYS}
        self.rest = folded(self.rest, rest)


class Slots:
    """Which call a fragment belongs to (N8a, N8b; R014, R015, R017)."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.current: Slot | None = None

    def add(self, fragment: Object) -> None:
        slot = self.current = self._slot_of(fragment)
        index = fragment.get("index")
        if slot.id is None and fragment.get("id"):
            slot.id, slot.id_index = fragment["id"], index if type(index) is int else None
        slot.add(fragment)

    def _slot_of(self, fragment: Object) -> Slot:
        index = fragment["index"] if type(fragment.get("index")) is int else None
        call_id, name = text_or_none(fragment.get("id")) or None, called_name(fragment)
        streaming = self.current if index is None else self._last(lambda slot: slot.index == index)
        slot: Slot | None
        if call_id is None:
            if not name:
                slot = streaming or self.current
            else:
                slot = None if streaming is None or _opens_again(streaming, fragment) else streaming
        else:
            slot = self._known(call_id, index)
            if slot is None and streaming is not None and streaming.id is None:
                slot = None if index is None and name and streaming.has_name else streaming
            elif slot is None and not name:
                slot = self._last(lambda slot: slot.id == call_id)
        return slot or self._open(index)

    def _known(self, call_id: str, index: int | None) -> Slot | None:
        same_id = [slot for slot in self.slots if slot.id == call_id]
        fitting = same_id if index is None else [slot for slot in same_id if slot.id_index == index]
        fitting = fitting or [slot for slot in same_id if slot.id_index is None]
        return fitting[-1] if fitting else None

    def _last(self, fits: Callable[[Slot], bool]) -> Slot | None:
        return next((slot for slot in reversed(self.slots) if fits(slot)), None)

    def _open(self, index: int | None) -> Slot:
        indices = [slot.index for slot in self.slots if slot.index is not None]
        self.slots.append(Slot(index, max(indices, default=-1) if index is None else index))
        return self.slots[-1]

    def reduced(self) -> list[Any]:
        ordered = sorted(self.slots, key=lambda slot: slot.place)
        return [[slot.id, _said_bodies(slot.bodies), without_nulls(slot.rest)] for slot in ordered]


def _said_bodies(call: Object) -> Object:
    """What a call says under ``function`` and ``custom``, without what it leaves empty."""
    bodies = {kind: an_object(call.get(kind)) for kind in CALL_BODIES}
    said = {kind: {key: value for key, value in body.items() if value} for kind, body in bodies.items()}
    return {kind: body for kind, body in said.items() if body}


CALL_BODIES = ("function", "custom")
CALL_KEYS = frozenset({"index", "id", "type", "function", "custom"})


def called_name(fragment: Object) -> str:
    bodies = [fragment.get("function"), fragment.get("custom")]
    return next((text_of(body.get("name")) for body in bodies if isinstance(body, dict) and body.get("name")), "")


def _opens_again(slot: Slot, fragment: Object) -> bool:
    """Two whole calls without ids: the arguments of the first are closed, the second's begin."""
    more = an_object(fragment.get("function")).get("arguments")
    known = slot.bodies.get("function", {}).get("arguments")
    if not isinstance(known, str) or not isinstance(more, str):
        return False
    return known.rstrip().endswith("}") and more.lstrip().startswith("{")


@dataclass
class Choice:
    role: Any = "assistant"
    content: Any = None
    reasoning: dict[str, str] = field(default_factory=dict)
    details: list[Any] = field(default_factory=list)
    slots: Slots = field(default_factory=Slots)
    message: Object = field(default_factory=dict)
    whole: Object | None = None
    finish_reason: Any = None
    rest: Object = field(default_factory=dict)

    def add(self, chunk: Object) -> None:
        self.finish_reason = chunk.get("finish_reason") or self.finish_reason
        if isinstance(chunk.get("message"), dict):
            self.whole = chunk["message"]
        for name, value in chunk.items():
            if name not in ("index", "delta", "message", "finish_reason"):
                together = folded if name in GROWING else latest
                self.rest[name] = together(self.rest.get(name), value)
        if isinstance(chunk.get("delta"), dict):
            self._add_delta(chunk["delta"])

    def _add_delta(self, delta: Object) -> None:
        self.role = delta.get("role") or self.role
        content = delta.get("content")
        if content == "":
            self.content = "" if self.content is None else self.content
        elif isinstance(content, (str, list)) and content:
            self.content = text_of(self.content) + text_of(content)
        elif content and not self.content:
            self.content = content
        self._add_reasoning({name: delta[name] for name in REASONING if text_or_none(delta.get(name))})
        if isinstance(delta.get("reasoning_details"), list):
            self.details += delta["reasoning_details"]
        for fragment in calls_of(delta):
            self.slots.add(fragment)
        self.message = folded(self.message, {name: value for name, value in delta.items() if name not in READ_APART})

    def _add_reasoning(self, said: dict[str, str]) -> None:
        """R018: each name that came holds all of it."""
        whole = next(iter(self.reasoning.values()), "")
        for name in {**self.reasoning, **said} if said else ():
            self.reasoning[name] = self.reasoning.get(name, whole) + said.get(name, next(iter(said.values())))

    def reduced(self) -> Object:
        rest = {"finish_reason": self.finish_reason, "rest": without_nulls(self.rest)}
        if self.whole is not None:
            return {**_reduce_message(self.whole), **rest}
        message = without_nulls(self.message)
        says_else = self.reasoning or self.details or self.slots.slots or any(map(message.get, CHAT_CONTENT))
        return {
            "role": self.role,
            # The empty text is the answer only where nothing else is.
            "content": self.content or (None if says_else else self.content),
            "reasoning": self.reasoning,
            "reasoning_details": texts_by_name(self.details),
            "tool_calls": self.slots.reduced(),
            "message": message,
            **rest,
        }


GROWING = frozenset({"logprobs", "token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"})
REASONING = ("reasoning_content", "reasoning")
READ_APART = frozenset({"role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls"})
CHUNK_MARKS = ("id", "model", "object", "usage", "prompt_filter_results")
CHUNK_ONLY = frozenset({"choices", "object", "error", "obfuscation"})


def is_chunk(payload: Object) -> bool:
    """Other dialects' events have a type; an error without choices is no chunk."""
    if payload.get("choices"):
        return True
    is_foreign = isinstance(payload.get("type"), str) or says_error(payload)
    return not is_foreign and any(payload.get(name) for name in CHUNK_MARKS)


def chat_stream(found: list[Event]) -> Object | None:
    choices: dict[int, Choice] = {}
    top: Object = {}
    chunks = [event.payload for event in found if is_chunk(event.payload)]
    for chunk in [event.payload for event in found]:
        for name, value in chunk.items():
            if not is_chunk(chunk) and name not in ("id", "model", "usage"):
                continue
            is_no_id = name == "id" and isinstance(top.get(name), str) and not isinstance(value, str)
            if name not in CHUNK_ONLY and (value or not top.get(name)) and not is_no_id:
                together = with_known_counts if name == "usage" else latest
                top[name] = together(top.get(name), value)
        for choice in objects(chunk.get("choices")):
            index = choice.get("index")
            is_number = isinstance(index, int) or (isinstance(index, str) and re.fullmatch("[0-9]{1,9}", index))
            choices.setdefault(int(index) if is_number else 0, Choice()).add(choice)  # type: ignore[arg-type]
    if not chunks:
        return None
    return {"top": without_nulls(top), "choices": [choices[index].reduced() for index in sorted(choices)]}


def reduce_chat(response: Object) -> Object:
    return {
        "top": without_nulls({name: value for name, value in response.items() if name not in CHUNK_ONLY}),
        "choices": [_reduce_chat_choice(choice) for choice in objects(response.get("choices"))],
    }


def _reduce_chat_choice(choice: Object) -> Object:
    message = choice.get("message")
    rest = {name: value for name, value in choice.items() if name not in ("index", "message", "finish_reason")}
    return {
        **_reduce_message(message if isinstance(message, dict) else {}),
        "finish_reason": choice.get("finish_reason"),
        "rest": without_nulls(rest),
    }


def _reduce_message(message: Object) -> Object:
    content = message.get("content")
    return {
        "role": message.get("role", "assistant"),
        "content": text_of(content) if isinstance(content, (str, list)) else content,
        "reasoning": {name: text_of(message.get(name)) for name in REASONING if text_of(message.get(name))},
        "reasoning_details": texts_by_name(message.get("reasoning_details")),
        "tool_calls": [_reduce_chat_call(call) for call in calls_of(message)],
        "message": without_nulls({name: value for name, value in message.items() if name not in READ_APART}),
    }


def _reduce_chat_call(call: Object) -> list[Any]:
    rest = {name: value for name, value in call.items() if name not in CALL_KEYS}
    return [call.get("id"), _said_bodies(call), without_nulls(rest)]


def messages_stream(found: list[Event]) -> Object | None:
    message: Object | None = None
    blocks: dict[int, Object] = {}
    partial: dict[int, str] = {}
    usage: Any = None
    streaming = 0

    def open_block(index: Any, block: Any) -> None:
        nonlocal streaming
        streaming = index if type(index) is int else max(blocks, default=-1) + 1
        blocks[streaming] = dict(block) if isinstance(block, dict) else {}
        partial.pop(streaming, None)
        taken_over = blocks[streaming].get("to") if blocks[streaming].get("type") == "fallback" else None
        if message is not None and isinstance(taken_over, dict):
            message["model"] = taken_over.get("model") or message.get("model")

    for event in found:
        payload = event.payload
        kind, delta = payload.get("type"), payload.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if kind == "message_start":
            opening = payload.get("message")
            message = dict(opening) if isinstance(opening, dict) else {}
            usage = _merged_usage(usage, message.pop("usage", None))
            for block in objects(message.pop("content", None)):
                open_block(None, block)
        elif kind == "content_block_start":
            open_block(payload.get("index"), payload.get("content_block"))
        elif kind == "content_block_delta" and isinstance(payload.get("delta"), dict):
            index = payload["index"] if type(payload.get("index")) is int else streaming
            if index not in blocks:
                open_block(index, {})
            _add_block_delta(blocks[index], partial, index, delta)
        elif kind == "message_delta":
            usage = _merged_usage(usage, payload.get("usage"))
            beside = {name: value for name, value in payload.items() if name not in DELTA_FRAME}
            said = {name: value for name, value in {**beside, **delta}.items() if value is not None}
            if not said.get("stop_reason"):
                said.pop("stop_reason", None)
            message = {**(message or {}), **said}
    if message is None and not blocks:
        return None
    return {
        "message": without_nulls({**(message or {}), "type": (message or {}).get("type") or "message"}),
        "usage": usage,
        "content": [_finished(blocks[index], partial.get(index)) for index in sorted(blocks)],
    }


DELTA_FRAME = frozenset({"type", "delta", "usage", "error"})
# What a delta's type says of a block that no start announced, and the strings of a delta that come whole.
BLOCK_TYPES = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "compaction"}
WHOLE_TEXTS = frozenset({"content", "encrypted_content", "signature", "type"})


def _merged_usage(known: Any, more: Any) -> Any:
    """R019, R020: merged by field."""
    return without_nulls(latest(known, more)) if isinstance(more, dict) else known


def _add_block_delta(block: Object, partial: dict[int, str], index: int, delta: Object) -> None:
    kind = str(delta.get("type"))
    if not block.get("type") and kind in BLOCK_TYPES:
        block["type"] = BLOCK_TYPES[kind]
    if kind == "text_delta":
        said = {"text": delta["text"]} if isinstance(delta.get("text"), str) else {}
    elif kind == "input_json_delta":
        if text_or_none(delta.get("partial_json")):
            partial[index] = partial.get(index, "") + delta["partial_json"]
        said = {}
    elif kind == "citations_delta":
        said = {}
        known = block.get("citations")
        block["citations"] = [*(known if isinstance(known, list) else []), delta.get("citation")]
    else:
        said = {name: value for name, value in delta.items() if name != "type"}
    block.update(folded(block, said, WHOLE_TEXTS))


def _finished(block: Object, partial: str | None) -> Object:
    if partial:
        try:
            block["input"] = load(partial)
        except (ValueError, RecursionError):
            block["input"] = {"_raw": partial}
    return {name: value for name, value in block.items() if value is not None}


def reduce_messages(response: Object) -> Object:
    rest = {name: value for name, value in response.items() if name not in ("usage", "content")}
    return {
        "message": without_nulls(rest),
        "usage": without_nulls(response.get("usage")),
        "content": [_finished(block, None) for block in objects(response.get("content"))],
    }


def responses_stream(found: list[Event]) -> Object | None:
    """The envelope as it came, with the items that ended before it if it lists none (D3e); without a terminal one, its
    output rebuilt from item, part and delta events (D3r).
    """
    payloads = [event.payload for event in found]
    envelopes = [payload for payload in payloads if isinstance(payload.get("response"), dict)]
    for payload in reversed(envelopes):
        if payload.get("type") in ENVELOPES:
            whole: Object = payload["response"]
            ended = [] if whole.get("output") else ended_items(payloads)
            return {**whole, "output": ended} if ended else whole
    envelope: Object | None = envelopes[-1]["response"] if envelopes else None
    listed = envelope.get("output") if envelope is not None else None
    output = Items(payload for payload in payloads if not isinstance(payload.get("response"), dict)).output(listed)
    if not output:
        return envelope
    return {**(envelope or {"object": "response"}), "output": output}


def ended_items(payloads: list[Object]) -> list[Object]:
    items = sorted(
        Items(payload for payload in payloads if not isinstance(payload.get("response"), dict)).items, key=_at
    )
    return [item.whole() for item in items if item.done]


def _at(item: Item) -> int:
    return item.place


@dataclass
class Item:
    """An output item. ``place``: its output_index, or that of the item before it; ``texts``: of itself or its parts."""

    place: int
    fields: Object
    done: bool = False
    parts: dict[str, dict[int, Object]] = field(default_factory=dict)

    def part(self, holder: str, index: Any, fresh: Object) -> Object:
        parts = self.known_parts(holder)
        place = index if type(index) is int else (list(parts)[-1] if parts else 0)
        return parts.setdefault(place, dict(fresh))

    def known_parts(self, holder: str) -> dict[int, Object]:
        if holder not in self.parts:
            known = self.fields.get(holder)
            known = known if isinstance(known, list) else []
            self.parts[holder] = {place: dict(part) for place, part in enumerate(known) if isinstance(part, dict)}
        return self.parts[holder]

    def whole(self) -> Object:
        return self.fields | {holder: [parts[index] for index in sorted(parts)] for holder, parts in self.parts.items()}


class Items:
    """Output items by their id, else by their output_index, else the last one (R022).

    An index that a finished item has is free for another item; a finished item takes no more deltas.
    """

    def __init__(self, payloads: Iterator[Object]) -> None:
        self.items: list[Item] = []
        self.by_id: dict[str, Item] = {}
        self.by_index: dict[int, Item] = {}
        for payload in payloads:
            self._add(payload, str(payload.get("type")))

    def output(self, listed: Any) -> list[Any]:
        told = {item.place for item in self.items}
        kept = [(place, item) for place, item in enumerate(listed if isinstance(listed, list) else [])]
        kept = [(place, item) for place, item in kept if place not in told]
        return [item for _, item in sorted(kept + [(item.place, item.whole()) for item in self.items], key=_place)]

    def _add(self, payload: Object, kind: str) -> None:
        text, part = TEXT_EVENT.fullmatch(kind), PART_EVENT.fullmatch(kind)
        if kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(payload.get("item"), dict):
                self._add_item(payload, payload["item"], done=kind.endswith("done"))
        elif text:
            self._add_text(payload, text["what"], text["step"])
        elif part and isinstance(payload.get("part"), dict):
            holder = "content" if part["what"] == "content" else "summary"
            is_reasoning = holder == "summary" or payload["part"].get("type") == "reasoning_text"
            item = self._item_of(payload, "reasoning" if is_reasoning else "message")
            if not item.done:
                parts = item.known_parts(holder)
                index = payload.get(f"{holder}_index")
                parts[index if type(index) is int else len(parts)] = dict(payload["part"])
        elif kind == "response.output_text.annotation.added":
            item = self._item_of(payload, "message")
            if payload.get("annotation") is not None and not item.done:
                found = item.part("content", payload.get("content_index"), FRESH_TEXT)
                found["annotations"] = [*(found.get("annotations") or []), payload["annotation"]]

    def _add_item(self, payload: Object, fields: Object, *, done: bool) -> None:
        item_id, index = text_or_none(fields.get("id")) or None, payload.get("output_index")
        item = self.by_id.get(item_id or "")
        if item is None and type(index) is int and index in self.by_index:
            there = self.by_index[index]
            is_same = not there.done and there.fields.get("type") == fields.get("type")
            item = there if is_same and (done or "id" not in there.fields) else None
        item = item or self._open(payload, fields)
        item.fields, item.parts, item.done = dict(fields), {}, done
        if item_id:
            self.by_id[item_id] = item

    def _add_text(self, payload: Object, what: str, step: str) -> None:
        item = self._item_of(payload, (PART_TEXTS.get(what) or ITEM_TEXTS[what])[0])
        if item.done:
            return
        if what in ITEM_TEXTS:
            holder, name = item.fields, ITEM_TEXTS[what][1]
            called = text_or_none(payload.get("name")) if isinstance(payload.get(name), str) else None
            if step == "done" and called and not item.fields.get("name"):
                item.fields["name"] = called
        else:
            _, parts, index_name, kind, name = PART_TEXTS[what]
            is_said = step == "delta" or isinstance(payload.get(name), str)
            fresh: Object = {"type": kind, name: ""} | ({"annotations": []} if kind == "output_text" else {})
            holder = item.part(parts, payload.get(index_name), fresh) if is_said else {}
            logprobs = payload.get("logprobs")
            if isinstance(logprobs, list) and logprobs:
                known = holder.get("logprobs")
                holder["logprobs"] = [*known, *logprobs] if step == "delta" and isinstance(known, list) else logprobs
        said = payload.get("delta" if step == "delta" else name)
        if isinstance(said, str):
            holder[name] = text_of(holder.get(name)) + said if step == "delta" else said

    def _item_of(self, payload: Object, kind: str) -> Item:
        item_id, index = text_or_none(payload.get("item_id")) or None, payload.get("output_index")
        item = self.by_id.get(item_id or "")
        if item is None and type(index) is int:
            item = self.by_index.get(index)
            item = None if item is not None and item.done and item_id else item
        elif item is None and not item_id and self.items:
            item = self.items[-1]
        announced: Object = {"id": item_id} if item_id else {}
        announced |= {"type": kind} | ({"role": "assistant"} if kind == "message" else {})
        return item or self._open(payload, announced)

    def _open(self, payload: Object, fields: Object) -> Item:
        index, item_id = payload.get("output_index"), text_or_none(payload.get("item_id"))
        before = self.items[-1].place if self.items else 0
        item = Item(index if type(index) is int else before, dict(fields))
        self.items.append(item)
        if type(index) is int:
            self.by_index[index] = item
        if item_id:
            self.by_id[item_id] = item
        return item


FRESH_TEXT: Object = {"type": "output_text", "text": "", "annotations": []}


def _place(placed: tuple[int, Any]) -> int:
    return placed[0]


STREAMS: dict[str, Callable[[list[Event]], Object | None]] = {
    "chat": chat_stream,
    "messages": messages_stream,
    "responses": responses_stream,
}
REDUCTIONS: dict[str, Callable[[Object], Object]] = {
    "chat": reduce_chat,
    "messages": reduce_messages,
    "responses": lambda response: response,
}


# ── what a response says, as NeMo Gym reads it, with the decided exceptions ────────────────────────────────────────


def count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


STATUS_CATEGORIES = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 504: "timeout"}


def category_of_status(status: int | None) -> str | None:
    if status is None or status < 400:
        return None
    return STATUS_CATEGORIES.get(status, "client_error" if status < 500 else "upstream_error")


def category_of_exception(error: BaseException) -> str:
    name = type(error).__name__.lower()
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, TimeoutError) or "timeout" in name:
        return "timeout"
    return "connection" if "conn" in name else "exception"


def status_of_exception(error: BaseException | None) -> int | None:
    """N10: a bool is none."""
    carriers = ((error, "status"), (error, "status_code"), (getattr(error, "response", None), "status_code"))
    values = [getattr(carrier, name, None) for carrier, name in carriers]
    return next((value for value in values if type(value) is int), None)


def body_of_exception(error: BaseException | None) -> bytes:
    response = getattr(error, "response", None)
    carriers = ((error, "response_content"), (response, "content"), (response, "text"))
    body = first(*(getattr(carrier, name, None) for carrier, name in carriers))
    return body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b""


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
            parsed = load(value)
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
            message = an_object(choice.get("message"))
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
    request, response = an_object(request), an_object(response)
    choices = response.get("choices")
    choice = an_object(choices[0]) if isinstance(choices, list) and choices else {}
    details = an_object(response.get("incomplete_details"))
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


def an_object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """A text, or the texts of a list of parts put together."""
    if isinstance(value, str):
        return value
    return "".join(text_of(part.get("text") or part.get("refusal")) for part in objects(value))


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
