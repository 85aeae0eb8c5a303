"""A model server that plays a script on a virtual clock, and the client that calls it, both in process (ASGI).

The scripts are those of a corpus/model_calls http case: what is sent, when, and how the application ends.
Shared by the scripts of this folder; knows nothing of what is captured.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

EPOCH_SECONDS = 1_800_000_000
EMPTY_BODY_AT_MS = 5.0


class VirtualClock:
    """Stands still unless moved; ``wall_ns`` is UTC, both in integer nanoseconds."""

    def __init__(self) -> None:
        self._ns = 0

    def wall_ns(self) -> int:
        return EPOCH_SECONDS * 10**9 + self._ns

    def monotonic_ns(self) -> int:
        return self._ns

    def restart(self) -> None:
        self._ns = 0

    def move_to(self, milliseconds: float) -> None:
        self._ns = max(self._ns, nanoseconds(milliseconds))


def nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 10**6)


def chunk_bytes(chunk: dict[str, Any]) -> bytes:
    """The bytes of a chunk: {"text"}, {"b64"}, {"repeat": {"text", "n"}} or {"segments": [...]}."""
    if "text" in chunk:
        return text_bytes(str(chunk["text"]))
    if "b64" in chunk:
        return base64.b64decode(chunk["b64"])
    if "repeat" in chunk:
        return chunk_bytes(chunk["repeat"]) * int(chunk["repeat"]["n"])
    return b"".join(chunk_bytes(segment) for segment in chunk["segments"])


def text_bytes(text: str) -> bytes:
    """UTF-8; a lone surrogate is the byte that it stands for (PEP 383), else U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def header_bytes(text: str) -> bytes:
    """Latin-1 as HTTP has it, UTF-8 where a character is beyond it."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text_bytes(text)


class UpstreamStatusError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("upstream answered with an error")
        self.status = script.get("status")
        content = script.get("response_content")
        if content is not None:
            self.response_content = content if script.get("content_type") == "str" else str(content).encode()


class StatusCodeError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("upstream answered with an error")
        self.status_code = script.get("status_code")


class _Response:
    def __init__(self, script: dict[str, Any]) -> None:
        self.status_code = script.get("status_code")
        content, text = script.get("content"), script.get("text")
        self.content = None if content is None else str(content).encode()
        self.text = text


class HTTPXLikeError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("upstream answered with an error")
        self.response = _Response(script)


class StrStatusError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("status is a text")
        self.status = str(script.get("status", "429"))


class BoolStatusError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("status is a bool")
        self.status = True


class WeirdError(Exception):
    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__("boom")


KINDS: dict[str, Callable[[dict[str, Any]], BaseException]] = {
    "status": UpstreamStatusError,
    "status_code": StatusCodeError,
    "httpx_response": HTTPXLikeError,
    "str_status": StrStatusError,
    "bool_status": BoolStatusError,
    "generic": WeirdError,
    "CancelledError": lambda _script: asyncio.CancelledError(),
    "asyncio.TimeoutError": lambda _script: TimeoutError(),
}


def scripted_exception(script: dict[str, Any], class_name: str | None) -> BaseException:
    """The exception of a ``raise`` script; a kind that we do not know is a class of the name that the client saw."""
    kind = str(script["kind"])
    if kind in KINDS:
        return _named(KINDS[kind](script), class_name)
    builtin = _builtin_exception(kind)
    if builtin is not None:
        return builtin("scripted")
    raised: BaseException = type(class_name or kind, (Exception,), {})("scripted")
    return raised


def _named(exception: BaseException, class_name: str | None) -> BaseException:
    if class_name is None or type(exception).__name__ == class_name:
        return exception
    exception.__class__ = type(class_name, (type(exception),), {})
    return exception


def _builtin_exception(name: str) -> type[BaseException] | None:
    found = __builtins__.get(name) if isinstance(__builtins__, dict) else getattr(__builtins__, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


@dataclass
class ScriptedServer:
    """The application below capture. ``saw`` is the scope it was called with: path, raw_path, query."""

    upstream: dict[str, Any]
    clock: VirtualClock
    raised_name: str | None = None
    saw: dict[str, str] = field(default_factory=dict)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.saw = {
            "path": scope["path"],
            "raw_path": scope.get("raw_path", b"").decode("latin-1"),
            "query": scope.get("query_string", b"").decode("latin-1"),
        }
        if "execution" in self.upstream:
            scope.setdefault("state", {})["nemo_gym_model_execution"] = self.upstream["execution"]
        if self.upstream.get("reads_body", True):
            await _read_body(receive)
        if self.upstream.get("raise_before_start"):
            self._raise()
        await self._answer(send)

    async def _answer(self, send: Send) -> None:
        upstream = self.upstream
        await send(
            {
                "type": "http.response.start",
                "status": upstream["status"],
                "headers": [(header_bytes(name), header_bytes(value)) for name, value in upstream["headers"]],
            }
        )
        chunks = list(upstream.get("chunks") or [])
        ends_empty = bool(upstream.get("trailing_empty")) or not chunks
        for number, chunk in enumerate(chunks, start=1):
            self.clock.move_to(chunk["at_ms"])
            more = "raise" in upstream or ends_empty or number < len(chunks)
            await send({"type": "http.response.body", "body": chunk_bytes(chunk), "more_body": more})
        if "raise" in upstream:
            self._raise()
        if ends_empty:
            self.clock.move_to(upstream.get("end_at_ms", 0.0 if chunks else EMPTY_BODY_AT_MS))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if "tail_ms" in upstream:
            self.clock.move_to(upstream["tail_ms"])

    def _raise(self) -> None:
        self.clock.move_to(self.upstream.get("raise_at_ms", 0.0))
        raise scripted_exception(self.upstream["raise"], self.raised_name)


async def _read_body(receive: Receive) -> None:
    while (await receive()).get("more_body"):
        pass


@dataclass
class ClientView:
    """What the client got; the body as its messages."""

    status: int | None = None
    headers: list[list[str]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    raised: str | None = None

    @property
    def body_sha256(self) -> str:
        return hashlib.sha256(b"".join(self.messages)).hexdigest()


async def call(
    application: Application, request: dict[str, Any], clock: VirtualClock, start_ms: float = 0.0
) -> ClientView:
    """One request through the application: the client sends a message a body chunk, then only listens."""
    view = ClientView()
    bodies = [chunk_bytes(chunk) for chunk in request["body_chunks"]] or [b""]
    waiting = [
        {"type": "http.request", "body": body, "more_body": number < len(bodies)}
        for number, body in enumerate(bodies, start=1)
    ]

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            view.status = message["status"]
            view.headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in message["headers"]]
        elif message["type"] == "http.response.body":
            view.messages.append(bytes(message.get("body", b"")))

    clock.restart()
    clock.move_to(start_ms)
    try:
        await application(http_scope(request), receive, send)
    except BaseException as raised:  # CancelledError is one of the endings that a script may ask for
        if isinstance(raised, (KeyboardInterrupt, SystemExit)):
            raise
        view.raised = type(raised).__name__
    return view


def http_scope(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request["method"],
        "scheme": "http",
        "path": request["path"],
        "raw_path": request.get("raw_path", request["path"]).encode("latin-1", "replace"),
        "query_string": request.get("query", "").encode("latin-1"),
        "root_path": "",
        "headers": [(header_bytes(name.lower()), header_bytes(value)) for name, value in request.get("headers", [])],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
