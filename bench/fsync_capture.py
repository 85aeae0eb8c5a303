"""A peer: capture that makes each call's record durable before the call is answered.

What NeMo Gym 0.7.0 does (shared facts on performance, section 8), made anew: the body is teed; of a stream each
chunk is split into events and read as JSON on the event loop, to find the last one; the last message is held while
a thread puts the answer together and appends one line, with lock and fsync, to a file that it opens for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from otel_gym.records import build_model_call_record
from otel_gym.wire.exchange import Exchange

App = Callable[[Any, Any, Any], Awaitable[None]]

_END_OF_EVENT = re.compile(rb"\r?\n\r?\n")


class PerRecordFsyncCapture:
    """ASGI middleware around an app that speaks Chat Completions; records go to ``path``."""

    def __init__(self, app: App, path: Path) -> None:
        self.app = app
        self.path = path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        call = _Call(self.path)

        async def tee_receive() -> Any:
            message = await receive()
            call.request.append(message.get("body", b""))
            return message

        async def tee_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                call.started(message)
            elif call.is_last(message.get("body", b""), message.get("more_body", False)):
                await asyncio.to_thread(call.record)
            await send(message)

        await self.app(scope, tee_receive, tee_send)


class _Call:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.request: list[bytes] = []
        self.chunks: list[tuple[int, bytes]] = []
        self.start_ns = time.time_ns()
        self.status, self.content_type = 0, ""
        self._rest = b""
        self._is_recorded = False

    def started(self, message: Any) -> None:
        self.status = message["status"]
        self.content_type = dict(message["headers"])[b"content-type"].decode()

    def is_last(self, body: bytes, more_body: bool) -> bool:
        self.chunks.append((time.time_ns() - self.start_ns, body))
        return (self._ends_stream(body) or not more_body) and not self._is_recorded

    def _ends_stream(self, body: bytes) -> bool:
        if self.content_type != "text/event-stream":
            return False
        *events, self._rest = _END_OF_EVENT.split(self._rest + body)
        return any(self._is_terminal(event.removeprefix(b"data: ")) for event in events)

    def _is_terminal(self, data: bytes) -> bool:
        return data == b"[DONE]" or "error" in json.loads(data)

    def record(self) -> None:
        self._is_recorded = True
        exchange = Exchange(
            dialect="chat",
            model_call_id=os.urandom(16).hex(),
            started_unix_nano=self.start_ns,
            request_body=b"".join(self.request),
            status_code=self.status,
            response_content_type=self.content_type,
            chunks=self.chunks,
            returned_ns=time.time_ns() - self.start_ns,
        )
        line = orjson.dumps(build_model_call_record(exchange, 0).model_dump()) + b"\n"
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            fcntl.flock(file, fcntl.LOCK_UN)
