"""The scripted model server: a plain ASGI application, and a thread that serves it on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from otel_gym.demo.dialects import DIALECTS, Dialect, new_id
from otel_gym.demo.script import MISSING_MODEL, Conversation, Fault, Reply, Script, usage_of
from otel_gym.listening import listen, url_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

FIRST_TOKEN_S = 0.02
BETWEEN_EVENTS_S = 0.002
START_TIMEOUT_S = 20.0
# Said in milliseconds, which the OpenAI client honours below its default wait of half a second.
RETRY_AFTER = [(b"retry-after-ms", b"40")]

NO_ROUTE = Fault(404, "not_found_error", "no such route")
NO_MODEL = Fault(404, "not_found_error", f"the model {MISSING_MODEL} does not exist")


class ConnectionCutError(Exception):
    """Makes the server break the connection in the middle of a stream."""


class ScriptedModelServer:
    """ASGI. ``served`` counts the model calls that it got."""

    def __init__(self) -> None:
        self.script = Script()
        self.served = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _read(receive)
        dialect = DIALECTS.get(scope["path"])
        if dialect is None or scope["method"] != "POST":
            await _send_error(send, DIALECTS["/v1/responses"], NO_ROUTE)
            return
        self.served += 1
        conversation = dialect.read(json.loads(body))
        if conversation.model == MISSING_MODEL:
            await _send_error(send, dialect, NO_MODEL)
            return
        reply, fault = self.script.reply(conversation.task, conversation.turn)
        if fault is not None and fault.status is not None:
            await _send_error(send, dialect, fault)
            return
        await asyncio.sleep(FIRST_TOKEN_S)
        if conversation.stream:
            await _send_stream(send, dialect, _events(dialect, conversation, reply, fault))
        else:
            await _send_json(send, dialect, 200, dialect.plain(conversation, reply, usage_of(conversation, reply)))


async def _events(
    dialect: Dialect, conversation: Conversation, reply: Reply, fault: Fault | None
) -> AsyncIterator[bytes]:
    cut_after = None if fault is None else fault.cut_after_events
    for number, event in enumerate(dialect.events(conversation, reply, usage_of(conversation, reply))):
        if number == cut_after:
            raise ConnectionCutError
        yield event
        await asyncio.sleep(BETWEEN_EVENTS_S)


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _send_stream(send: Send, dialect: Dialect, events: AsyncIterator[bytes]) -> None:
    await send(_start(200, b"text/event-stream; charset=utf-8", dialect))
    async for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_json(send: Send, dialect: Dialect, status: int, content: dict[str, Any]) -> None:
    await send(_start(status, b"application/json", dialect, RETRY_AFTER if status in (429, 529) else []))
    await send({"type": "http.response.body", "body": json.dumps(content).encode(), "more_body": False})


async def _send_error(send: Send, dialect: Dialect, fault: Fault) -> None:
    await _send_json(send, dialect, fault.status or 500, dialect.error(fault))


def _start(
    status: int, content_type: bytes, dialect: Dialect, more: list[tuple[bytes, bytes]] | None = None
) -> Message:
    headers = [(b"content-type", content_type), (dialect.request_id_header, new_id("req").encode()), *(more or [])]
    return {"type": "http.response.start", "status": status, "headers": headers}


@contextmanager
def running_model_server(port: int = 0) -> Iterator[tuple[ScriptedModelServer, str]]:
    """The server and its URL, until the block ends; port 0 picks a free one.

    Raises ListenError if the port cannot be had, TimeoutError if the server does not start.
    """
    application = ScriptedModelServer()
    listener = listen("127.0.0.1", port)
    # "critical": a connection that is cut on purpose is no error to be logged.
    config = uvicorn.Config(application, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=2)
    server = _StartedServer(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="scripted-model-server", daemon=True)
    thread.start()
    try:
        if not server.ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the scripted model server did not start within {START_TIMEOUT_S:g} s")
        yield application, url_of(listener)
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_S)


class _StartedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()
