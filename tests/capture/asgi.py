"""Drives ASGI applications by hand: one request, every message kept."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

CHAT_PATH = "/v1/chat/completions"
REQUEST = {"model": "toy", "messages": [{"role": "user", "content": "What is 2+2?"}]}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "toy-served",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
}


class ManualClock:
    """Moves only when told, in milliseconds."""

    def __init__(self) -> None:
        self.ms = 0

    def wall_ns(self) -> int:
        return 1_800_000_000 * 10**9 + self.ms * 10**6

    def monotonic_ns(self) -> int:
        return self.ms * 10**6


@dataclass
class Sent:
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return next(message["status"] for message in self.messages if message["type"] == "http.response.start")

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def http_scope(path: str, headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    raw_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"model.local"), (b"content-type", b"application/json"), *raw_headers],
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 5000),
        **more,
    }


async def send_request(
    app: Callable[..., Awaitable[None]],
    path: str,
    body: bytes | dict[str, Any] = b"",
    headers: dict[str, str] | None = None,
    *,
    incoming: list[dict[str, Any]] | None = None,
    **scope: Any,
) -> Sent:
    """One request through ``app``; ``incoming`` replaces the request's own ASGI messages."""
    sent = Sent()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    queue = list(incoming or [{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return queue.pop(0) if queue else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.messages.append(dict(message))

    await app(http_scope(path, headers, **scope), receive, send)
    return sent


def json_app(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Callable[..., Awaitable[None]]:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return body_app([content], status, {"content-type": "application/json", **(headers or {})})


def body_app(
    chunks: list[bytes], status: int = 200, headers: dict[str, str] | None = None, *, read: bool = True
) -> Callable[..., Awaitable[None]]:
    raw_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while read and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": raw_headers})
        for index, chunk in enumerate(chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": index < len(chunks) - 1})

    return app


def sse(*payloads: Any, event: bool = False) -> list[bytes]:
    """Payloads as SSE chunks; with ``event`` each carries an ``event:`` line of its type."""
    chunks = []
    for payload in payloads:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        head = f"event: {payload['type']}\n" if event and isinstance(payload, dict) else ""
        chunks.append(f"{head}data: {text}\n\n".encode())
    return chunks


EVENT_STREAM = {"content-type": "text/event-stream"}
