"""One way to read a stream in tests: its text in, what the exchange says out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.wire import DialectName, Exchange, ParsedExchange, parse_exchange

ReadStream = Callable[..., ParsedExchange]


def _as_stream(events: Any) -> bytes:
    if isinstance(events, bytes):
        return events
    if isinstance(events, str):
        return events.encode()
    parts = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events]
    return "".join(parts).encode()


@pytest.fixture
def read_stream() -> ReadStream:
    """``read_stream(dialect, events, **fields)``: events are SSE text, bytes, or payloads to frame.

    Each payload becomes one chunk, 10 ns apart, so that ``first_content_ns`` names an event:
    10 for the first, 20 for the second.
    """

    def read(dialect: DialectName, events: Any, **fields: Any) -> ParsedExchange:
        pieces = [[event] for event in events] if isinstance(events, list) else [events]
        chunks = [(10 * place, _as_stream(piece)) for place, piece in enumerate(pieces, start=1)]
        exchange = Exchange(
            dialect=dialect,
            model_call_id="call",
            started_unix_nano=0,
            **{"status_code": 200, "response_content_type": "text/event-stream", "chunks": chunks, **fields},
        )
        return parse_exchange(exchange)

    return read
