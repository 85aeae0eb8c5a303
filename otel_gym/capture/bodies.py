"""Bodies as they pass an ASGI application, kept as far as somebody wants them. Nothing is held back or changed."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from otel_gym.tracing.logs import log_once

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RequestBody:
    """``receive`` for the application; ``head`` is what it has read so far, at most ``keep`` bytes of it."""

    def __init__(self, receive: Receive, keep: int) -> None:
        self._receive = receive
        self._keep = keep
        self._read_ahead: deque[Message] = deque()
        self.head = bytearray()

    async def receive(self) -> Message:
        if self._read_ahead:
            return self._read_ahead.popleft()
        return await self._next()

    async def whole(self) -> bytes | None:
        """Read ahead of the application, which gets it all the same; None if it is longer, or its client left."""
        size = 0
        while size <= self._keep:
            message = await self._next()
            self._read_ahead.append(message)
            size += len(message.get("body", b""))
            if message["type"] != "http.request":
                return None
            if not message.get("more_body", False):
                return bytes(self.head) if size <= self._keep else None
        return None

    async def _next(self) -> Message:
        message = await self._receive()
        self.head += message.get("body", b"")[: self._keep - len(self.head)]
        return message


class Answer:
    """``send`` for the application. Before the last message goes on ``conclude`` is called, once, with this answer.

    ``status`` and ``head``, at most ``keep`` bytes of the body, are known by then. What ``conclude`` raises is logged.
    """

    def __init__(self, send: Send, conclude: Callable[[Answer], None], keep: int = 0) -> None:
        self._send = send
        self._conclude = conclude
        self._keep = keep
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.head = bytearray()
        self.size = 0

    @property
    def is_error(self) -> bool:
        return self.status is not None and self.status >= 400

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            self.size += len(body)
            self.head += body[: self._keep - len(self.head)]
            if not message.get("more_body", False):
                self._is_whole()
        await self._send(message)

    def _is_whole(self) -> None:
        try:
            self._conclude(self)
        except Exception:
            log_once("what a server answered could not be recorded")

    def session(self, cookie: str) -> dict[str, Any]:
        """What Starlette's session cookie of that name, set by this answer, holds; empty where none is set."""
        prefix = f"{cookie}=".encode()
        for name, value in self.headers:
            if name.lower() == b"set-cookie" and value.startswith(prefix):
                try:
                    held = json.loads(b64decode(value[len(prefix) :].partition(b".")[0]))
                except ValueError:
                    return {}
                return held if isinstance(held, dict) else {}
        return {}
