"""``OTEL_GYM_DURABILITY=sync``: a client that has read its answer finds the call on disk, whatever dies next.

The end of an answer (the final body message; on SSE everything from the terminal event on) is held
until the exchange is written and synced, for at most two seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

LONGEST_WAIT_S = 2.0

# Matched on line starts, where no JSON text can be: raw newlines do not occur inside one.
_TERMINAL_LINE = re.compile(
    rb"[\r\n](?:"
    rb"event: ?(?:message_stop|error|response\.(?:completed|failed|incomplete))"
    rb"|data: ?\[DONE\]"
    rb'|data: ?\{"type": ?"(?:message_stop|error|response\.(?:completed|failed|incomplete))"'
    rb")"
)
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_LINE_START = 64


class TerminalEventFinder:
    """Says when the bytes of a stream hold a terminal event whole; sees lines, parses nothing."""

    def __init__(self) -> None:
        self._recent = b"\n"
        self.began = False

    def feed(self, chunk: bytes) -> bool:
        recent = self._recent + chunk
        if not self.began:
            found = _TERMINAL_LINE.search(recent)
            if found is None:
                self._recent = recent[-_LONGEST_LINE_START:]
                return False
            self.began = True
            recent = recent[found.end() :]
        if _EVENT_END.search(recent):
            return True
        self._recent = recent[-_LONGEST_LINE_START:]
        return False


class DurableSend:
    """Forwards the messages of one answer, and its end when ``make_durable`` says that it is on disk."""

    def __init__(self, send: Send, make_durable: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._make_durable = make_durable
        self._finder: TerminalEventFinder | None = None
        self._held: list[Message] = []
        self._durable = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._finder = TerminalEventFinder() if _is_plain_event_stream(message) else None
        elif message["type"] == "http.response.body" and not self._durable:
            self._held.append(message)
            if not self._is_end(message):
                if not self._is_holding():
                    await self._release()
                return
            await self._make_durable()
            self._durable = True
            await self._release()
            return
        await self._send(message)

    def _is_end(self, message: Message) -> bool:
        complete = self._finder is not None and self._finder.feed(message.get("body") or b"")
        return complete or not message.get("more_body")

    def _is_holding(self) -> bool:
        return self._finder is not None and self._finder.began

    async def _release(self) -> None:
        held, self._held = self._held, []
        for message in held:
            await self._send(message)


def _is_plain_event_stream(message: Message) -> bool:
    headers = {bytes(name).lower(): bytes(value).lower() for name, value in message.get("headers") or ()}
    return headers.get(b"content-type", b"").startswith(b"text/event-stream") and b"content-encoding" not in headers


async def wait_until_written(hand_over: Callable[[Callable[[bool], None]], bool]) -> bool:
    """Hands over and waits for the recorder's word; False if it failed or the time ran out."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[bool] = loop.create_future()

    def tell(success: bool) -> None:
        if not outcome.done():
            outcome.set_result(success)

    def written(success: bool) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, success)

    if not hand_over(written):
        return False
    try:
        return await asyncio.wait_for(outcome, LONGEST_WAIT_S)
    except TimeoutError:
        return False
