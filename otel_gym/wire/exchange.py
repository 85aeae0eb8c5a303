"""One HTTP exchange with a model server, and what its bytes say.

``Exchange`` holds what capture saw: bytes and exact nanoseconds, nothing parsed.
``ParsedExchange`` is what ``wire.parse.parse_exchange`` reads from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

DialectName = Literal["responses", "chat", "messages"]
JsonObject = dict[str, Any]


@dataclass(slots=True)
class Raised:
    """How the application below ended when it raised instead of returning.

    ``category`` is one of cancelled, timeout, connection, exception; ``status_code`` and ``body``
    are what the exception itself carried (``.status``, ``.response.content`` …), None if nothing.
    """

    type_name: str
    category: str
    status_code: int | None = None
    body: bytes | None = None


@dataclass(slots=True)
class Execution:
    """What a model server says of itself in ``scope["state"]["nemo_gym_model_execution"]``."""

    upstream_attempted: bool | None = None
    response_source: str | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None


@dataclass(slots=True)
class Exchange:
    """Times: ``started_unix_nano`` is UTC, the ``*_ns`` are monotonic offsets from it.

    ``last_byte_ns`` is when the final body message was forwarded (None if none was);
    ``returned_ns`` when the application returned or raised. ``chunks`` is the body as forwarded,
    one (offset, bytes) a message that was not empty. An exchange read back from disk has one chunk
    and ``first_content_ns`` set: the time of the first content event was measured when it was live.
    ``is_cut``: only the heads of the bodies were kept, so that their ends say nothing of the call's.
    Header names are lower-case and allow-listed; a name that came twice has two values.
    """

    dialect: DialectName
    model_call_id: str
    started_unix_nano: int
    model_ref: JsonObject | None = None
    request_headers: dict[str, list[str]] = field(default_factory=dict)
    request_body: bytes = b""
    request_content_encoding: str | None = None
    status_code: int | None = None
    response_headers: dict[str, list[str]] = field(default_factory=dict)
    response_content_type: str | None = None
    response_content_encoding: str | None = None
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    last_byte_ns: int | None = None
    returned_ns: int = 0
    first_content_ns: int | None = None
    raised: Raised | None = None
    execution: Execution | None = None
    live: bool = True
    is_cut: bool = False

    @property
    def response_body(self) -> bytes:
        if len(self.chunks) == 1:
            return self.chunks[0][1]
        return b"".join(chunk for _, chunk in self.chunks)


@dataclass(slots=True)
class ParsedExchange:
    """An exchange as objects.

    request, response   JSON object, or None where the body was absent, no JSON or no object
    *_raw               the text, where the object is not all there is: request that is no object;
                        any SSE body; a response that is no object
    streamed            the response was SSE (by its media type)
    terminal_event      the event that closed the stream: "[DONE]", "response.completed",
                        "message_stop", "error" …; None if the stream broke before one, or no stream
    stream_truncated    a stream without terminal event
    error_category      NeMo Gym's categories (facts/gym.md (a)), None if the call was fine
    error               the provider's error object (body or in-stream), None if it sent none
    first_content_ns    offset of the chunk that completed the first content event (R023); for a
                        plain body the first non-empty chunk; None if there was none
    first_chunk_ns      offset of the first non-empty chunk
    """

    request: JsonObject | None = None
    request_raw: str | None = None
    response: JsonObject | None = None
    response_raw: str | None = None
    streamed: bool = False
    terminal_event: str | None = None
    stream_truncated: bool = False
    error_category: str | None = None
    error: JsonObject | None = None
    first_content_ns: int | None = None
    first_chunk_ns: int | None = None
