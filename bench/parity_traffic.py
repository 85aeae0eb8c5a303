"""What went over the wire in a case of the parity corpus, and which rules of docs/nemo-gym-parity.md its traffic meets.

Read from the http case alone, by the naive reading of reference.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import reference
from scripted import EMPTY_BODY_AT_MS, chunk_bytes, scripted_exception

Object = dict[str, Any]

DIALECT_OF_PATH = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
PREFIXED = re.compile(r"/ng-rollout/(?P<id>[^/]+)(?:/training-token-capture)?(?P<rest>/.*)")
HANG_UPS = frozenset({"CancelledError", "ClientDisconnect", "ClientDisconnected"})
ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
RESERVED_IDS = frozenset({"unassigned"})


@dataclass
class Traffic:
    """What went over the wire, computed from the http case alone."""

    http: Object

    @property
    def upstream(self) -> Object:
        upstream: Object = self.http["upstream"]
        return upstream

    @cached_property
    def rollout_id(self) -> str | None:
        match = PREFIXED.fullmatch(self.http["request"]["path"])
        return match["id"] if match else None

    @cached_property
    def dialect(self) -> str | None:
        match = PREFIXED.fullmatch(self.http["request"]["path"])
        return DIALECT_OF_PATH.get(match["rest"]) if match else None

    @property
    def has_line_feed(self) -> bool:
        """A path that NeMo Gym's pattern matches without the line feed at its end."""
        path = self.http["request"]["path"]
        return PREFIXED.fullmatch(path) is None and PREFIXED.fullmatch(path.removesuffix("\n")) is not None

    @cached_property
    def decided_paths(self) -> dict[str, dict[str, str]]:
        """Rule → what the application sees by it, where that is not what NeMo Gym shows it."""
        request = self.http["request"]
        raw_path = request.get("raw_path", request["path"])
        if self.has_line_feed:
            return {"N13": {"path": request["path"], "raw_path": raw_path}}
        path, raw = PREFIXED.fullmatch(request["path"]), PREFIXED.fullmatch(raw_path)
        if path and raw and unquote(raw["rest"]) == path["rest"]:
            return {"N12": {"raw_path": raw["rest"]}}
        return {}

    @property
    def id_is_refused(self) -> bool:
        rollout_id = self.rollout_id or ""
        return rollout_id in RESERVED_IDS or ROLLOUT_ID.fullmatch(rollout_id) is None

    @property
    def is_captured(self) -> bool:
        return self.dialect is not None and not self.id_is_refused

    @property
    def started(self) -> bool:
        return not self.upstream.get("raise_before_start")

    @cached_property
    def chunks(self) -> list[tuple[float, bytes]]:
        if not self.started:
            return []
        return [(chunk["at_ms"], chunk_bytes(chunk)) for chunk in self.upstream.get("chunks") or []]

    @cached_property
    def raw_body(self) -> bytes:
        return b"".join(body for _, body in self.chunks)

    @cached_property
    def encoding(self) -> str | None:
        return _header(self.upstream["headers"], "content-encoding")

    @cached_property
    def body(self) -> bytes:
        return reference.decoded(self.raw_body, self.encoding)

    @cached_property
    def content_type(self) -> str:
        return _header(self.upstream["headers"], "content-type") or ""

    @property
    def is_stream(self) -> bool:
        return self.started and self.content_type.lower().startswith("text/event-stream")

    @cached_property
    def events(self) -> list[reference.Event]:
        return reference.events(self.body) if self.is_stream else []

    @cached_property
    def payloads(self) -> list[Object]:
        return [event.payload for event in self.events if event.payload]

    @cached_property
    def terminal(self) -> str | None:
        return reference.terminal(self.events, self.dialect or "")

    @property
    def client_session_id(self) -> str | None:
        headers = self.http["request"]["headers"]
        values = {value for name, value in headers if name.lower() == "x-session-id" and value}
        return values.pop() if len(values) == 1 else None

    @property
    def exception(self) -> Object | None:
        script = self.upstream.get("raise")
        return script if isinstance(script, dict) else None

    @cached_property
    def raised(self) -> BaseException | None:
        """The exception itself, as the scripted application raises it."""
        script = self.exception
        return None if script is None else scripted_exception(script, self.http["client"].get("raised"))

    @property
    def hung_up_when_done(self) -> bool:
        return type(self.raised).__name__ in HANG_UPS and self.terminal is not None

    @property
    def status(self) -> int | None:
        sent: int | None = self.upstream["status"] if self.started else None
        return sent if sent is not None else reference.status_of_exception(self.raised)

    @cached_property
    def request_body(self) -> bytes:
        if not self.upstream.get("reads_body", True):
            return b""
        return b"".join(chunk_bytes(chunk) for chunk in self.http["request"]["body_chunks"])

    @cached_property
    def request_text(self) -> bytes:
        return reference.decoded(self.request_body, self.request_encoding)

    @cached_property
    def request_encoding(self) -> str | None:
        return _header(self.http["request"]["headers"], "content-encoding")

    @cached_property
    def end_ms(self) -> float:
        """When the final body message was sent; without one, when the exception was raised."""
        last_chunk = self.chunks[-1][0] if self.chunks else 0.0
        if self.exception is not None:
            return max(last_chunk, float(self.upstream.get("raise_at_ms", 0.0)))
        if self.chunks and not self.upstream.get("trailing_empty"):
            return last_chunk
        return max(last_chunk, float(self.upstream.get("end_at_ms", 0.0 if self.chunks else EMPTY_BODY_AT_MS)))

    @property
    def returns_late(self) -> bool:
        return float(self.upstream.get("tail_ms", 0.0)) > self.end_ms

    @cached_property
    def first_content_ms(self) -> float | None:
        received = b""
        for number, (at_ms, chunk) in enumerate(self.chunks, start=1):
            received += chunk
            last = number == len(self.chunks)
            read = reference.decoded_so_far(received, self.encoding)
            if read.endswith(b"\r") and self.body[len(read) : len(read) + 1] == b"\n":
                read = read[:-1]  # half of a line end completes nothing
            for event in reference.events(read):
                if (event.closed or last) and reference.is_content(event, self.dialect or ""):
                    return at_ms
        return None


def _header(headers: list[list[str]], name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name]
    return ", ".join(values) if values else None


# ── conditions of the rules ─────────────────────────────────────────────────────────────────────────


def _bare_cr(traffic: Traffic) -> bool:
    return re.search(rb"\r(?!\n)", traffic.body) is not None


def _separators_in_text(traffic: Traffic) -> bool:
    return re.search("[\u2028\u2029\u0085]", traffic.body.decode("utf-8", "replace")) is not None


def _fragments(traffic: Traffic) -> Iterator[Object]:
    for payload in traffic.payloads:
        for choice in reference.objects(payload.get("choices")):
            delta = choice.get("delta")
            yield from reference.objects(delta.get("tool_calls")) if isinstance(delta, dict) else []


def _index_is_no_key(traffic: Traffic) -> bool:
    """A fragment without index, an index shared by two ids or two whole calls, or one that no head had opened."""
    ids: dict[Any, set[Any]] = {}
    closed: set[Any] = set()
    for fragment in _fragments(traffic):
        if fragment.get("index") is None:
            return True
        index, arguments = _key(fragment["index"]), reference.an_object(fragment.get("function")).get("arguments")
        is_named, arguments = bool(reference.called_name(fragment)), str(arguments or "").strip()
        if index not in ids and not is_named and not fragment.get("id"):
            return True
        if index in closed and is_named and not fragment.get("id") and arguments.startswith("{"):
            return True
        closed |= {index} if arguments.endswith("}") else set()
        ids.setdefault(_key(fragment["index"]), set()).add(_key(fragment.get("id") or None))
    return any(len(found - {None}) != 1 for found in ids.values())


def _name_in_fragments(traffic: Traffic) -> bool:
    names: dict[Any, list[str]] = {}
    for fragment in _fragments(traffic):
        called = fragment.get("function")
        if isinstance(called, dict) and called.get("name"):
            names.setdefault(_key(fragment.get("index")), []).append(_key(called["name"]))
    return any(len(set(found)) > 1 for found in names.values())


def _custom_tool(traffic: Traffic) -> bool:
    return any(fragment.get("type") == "custom" or "custom" in fragment for fragment in _fragments(traffic))


def _prefilled_tool(traffic: Traffic) -> bool:
    starts = _of_type(traffic, "content_block_start")
    blocks = {_key(payload.get("index")): reference.an_object(payload.get("content_block")) for payload in starts}
    with_deltas = {
        _key(payload.get("index"))
        for payload in _of_type(traffic, "content_block_delta")
        if reference.an_object(payload.get("delta")).get("type") == "input_json_delta"
    }
    return any(block.get("input") and index in with_deltas for index, block in blocks.items()) or _started_late(traffic)


def _started_late(traffic: Traffic) -> bool:
    """A block that starts, or starts again, after deltas of its input: those are not of this block."""
    begun = set()
    for payload in traffic.payloads:
        index = _key(payload.get("index"))
        if payload.get("type") == "content_block_start" and index in begun:
            return True
        if reference.an_object(payload.get("delta")).get("type") == "input_json_delta":
            begun.add(index)
    return False


def _key(value: Any) -> Any:
    """A JSON value as a key."""
    return repr(value) if isinstance(value, (dict, list)) else value


def _of_type(traffic: Traffic, kind: str) -> list[Object]:
    return [payload for payload in traffic.payloads if payload.get("type") == kind]


def _several_choices(traffic: Traffic) -> bool:
    choices = [choice for payload in traffic.payloads for choice in reference.objects(payload.get("choices"))]
    indices = {_key(choice.get("index", 0)) for choice in choices}
    return traffic.dialect == "chat" and len(indices) > 1


def _no_envelope(traffic: Traffic) -> bool:
    return traffic.dialect == "responses" and not any(
        payload.get("type") in reference.ENVELOPES and isinstance(payload.get("response"), dict)
        for payload in traffic.payloads
    )


def _no_output_listed(traffic: Traffic) -> bool:
    """The last terminal envelope lists no output, and an item had ended."""
    ends = [payload for payload in traffic.payloads if payload.get("type") in reference.ENVELOPES]
    envelopes = [payload["response"] for payload in ends if isinstance(payload.get("response"), dict)]
    ended = [payload.get("item") for payload in _of_type(traffic, "response.output_item.done")]
    is_empty = bool(envelopes) and not envelopes[-1].get("output")
    return traffic.dialect == "responses" and is_empty and any(isinstance(item, dict) for item in ended)


def _another_took_over(traffic: Traffic) -> bool:
    blocks = [reference.an_object(payload.get("content_block")) for payload in _of_type(traffic, "content_block_start")]
    return any(block.get("type") == "fallback" and isinstance(block.get("to"), dict) for block in blocks)


def _no_message_start(traffic: Traffic) -> bool:
    return traffic.dialect == "messages" and not _of_type(traffic, "message_start")


def _odd_chunks(traffic: Traffic) -> bool:
    """Values on which NeMo Gym's reassembly raises or gives up: mixed index types, texts that are no text …"""
    chunks = [payload for payload in traffic.payloads if "choices" in payload]
    no_choice = bool(chunks) and not any(reference.objects(chunk["choices"]) for chunk in chunks)
    types = _index_types(traffic)
    return no_choice or any(map(_is_odd, traffic.payloads)) or len(types) > 1 or bool(types & {list, dict})


def _is_odd(payload: Object) -> bool:
    choices = payload.get("choices")
    if choices is not None and not isinstance(choices, list):
        return True
    if any(choice.get("message") is not None for choice in reference.objects(choices)) or _is_odd_event(payload):
        return True
    deltas = [choice.get("delta") for choice in reference.objects(choices)]
    if any(delta is not None and not isinstance(delta, dict) for delta in deltas):
        return True
    return any(map(_odd_delta, [*deltas, payload.get("delta")])) or ("choices" not in payload and "type" not in payload)


# Those that NeMo Gym reads, and those that it passes over where their block is known.
KNOWN_DELTAS = frozenset(f"{what}_delta" for what in ("text", "thinking", "input_json", "signature", "citations"))


def _is_odd_event(payload: Object) -> bool:
    """A Messages event with a part of another kind than it should have, or a delta that NeMo Gym does not know."""
    message, delta = payload.get("message"), payload.get("delta")
    kind = str(payload.get("type"))
    is_known = str(reference.an_object(delta).get("type")) in KNOWN_DELTAS
    if kind == "content_block_delta" and not (is_known and "index" in payload):
        return True
    if kind.startswith("content_block_") and type(payload.get("index", 0)) is not int:
        return True
    if kind == "message_start" and reference.an_object(message).get("content"):
        return True
    carriers = {"message_start": reference.an_object(message), "message_delta": payload}
    usage = carriers.get(kind, {}).get("usage")
    parts = (message, payload.get("content_block"), usage, delta)
    texts = [reference.an_object(payload.get("content_block")).get(name) for name in ("text", "thinking")]
    if any(text and not isinstance(text, str) for text in texts):
        return True
    return kind in MESSAGES_EVENTS and any(part is not None and not isinstance(part, dict) for part in parts)


MESSAGES_EVENTS = frozenset({"message_start", "message_delta", "content_block_start", "content_block_delta"})


def _odd_delta(delta: Any) -> bool:
    if not isinstance(delta, dict):
        return delta is not None and not isinstance(delta, str)
    if not isinstance(delta.get("tool_calls") or [], list):
        return True
    called = [call.get("function") or {} for call in reference.objects(delta.get("tool_calls"))]
    if not all(isinstance(body, dict) for body in called):
        return True
    if any(not isinstance(body.get(name) or "", str) for body in called for name in ("name", "arguments")):
        return True
    texts = ("content", "reasoning_content", "reasoning", "refusal", "text", "thinking", "partial_json")
    return any(delta.get(name) is not None and not isinstance(delta[name], str) for name in texts) or any(
        not isinstance(call, dict) for call in delta.get("tool_calls") or []
    )


def _index_types(traffic: Traffic) -> set[type]:
    found = [fragment.get("index", 0) for fragment in _fragments(traffic)]
    found += [payload["index"] for payload in traffic.payloads if "index" in payload]
    return {type(index) for index in found}


def _empty_identity(traffic: Traffic) -> bool:
    return any(payload.get(name) == "" for payload in traffic.payloads for name in ("id", "model"))


def _null_usage(traffic: Traffic) -> bool:
    later = [payload.get("usage") for payload in _of_type(traffic, "message_delta")]
    if traffic.dialect == "chat":
        later = [payload["usage"] for payload in traffic.payloads if payload.get("usage")][1:]
    return any(isinstance(usage, dict) and _has_null(usage) for usage in later)


def _has_null(usage: Object) -> bool:
    return any(value is None or (isinstance(value, dict) and _has_null(value)) for value in usage.values())


RESPONSE_RULES: dict[str, Callable[[Traffic], bool]] = {
    "N1": lambda traffic: traffic.is_stream and traffic.exception is not None and not traffic.hung_up_when_done,
    "R028": lambda traffic: traffic.is_stream and traffic.hung_up_when_done,
    "N3": lambda traffic: traffic.is_stream and _bare_cr(traffic),
    "N4": lambda traffic: traffic.is_stream and not traffic.content_type.startswith("text/event-stream"),
    "D6": lambda traffic: traffic.body != traffic.raw_body,
    "D3r": lambda traffic: traffic.is_stream and _no_envelope(traffic),
    "D3e": lambda traffic: traffic.is_stream and _no_output_listed(traffic),
    "D3n": lambda traffic: traffic.is_stream and _several_choices(traffic),
    "D3f": lambda traffic: traffic.is_stream and _another_took_over(traffic),
    "D3s": lambda traffic: traffic.is_stream and _no_message_start(traffic),
    "N7": lambda traffic: traffic.is_stream and _odd_chunks(traffic),
    "N8a": lambda traffic: traffic.is_stream and _index_is_no_key(traffic),
    "N8b": lambda traffic: traffic.is_stream and _name_in_fragments(traffic),
    "N8c": lambda traffic: traffic.is_stream and _custom_tool(traffic),
    "N8d": lambda traffic: traffic.is_stream and _prefilled_tool(traffic),
    "N11": lambda traffic: traffic.is_stream and _separators_in_text(traffic),
    "R007": lambda traffic: traffic.is_stream and traffic.body.startswith(b"\xef\xbb\xbf"),
    "R011": lambda traffic: traffic.is_stream and _empty_identity(traffic),
    "R020": lambda traffic: traffic.is_stream and _null_usage(traffic),
}
