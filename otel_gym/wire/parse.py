"""An exchange's bytes → objects: what was asked, what was answered, how it ended.

Follows NeMo Gym 0.7.0 (facts in docs/nemo-gym-parity.md) but for the rules that are named where
they apply. Bytes never make it raise.
"""

from __future__ import annotations

import bisect
import itertools

from otel_gym.wire.assembler import error_object, says_error
from otel_gym.wire.bodies import BodyDecoder, DecodedBody, decode_body, load_json_object
from otel_gym.wire.dialects import DIALECTS
from otel_gym.wire.exchange import Exchange, JsonObject, ParsedExchange, Raised
from otel_gym.wire.sse import ServerSentEvent, SseFramer

KEEP_ALIVE = b": keep-alive\n\n"

_STATUS_CATEGORIES = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 504: "timeout"}
_TERMINAL_CATEGORIES = {
    "error": "upstream_error",
    "response.failed": "upstream_error",
    "response.incomplete": "incomplete",
}
# How a server framework says that the client has gone; a plain cancellation is another way.
_HANG_UPS = frozenset({"ClientDisconnect", "ClientDisconnected"})


def parse_exchange(exchange: Exchange) -> ParsedExchange:
    """Read an exchange: request, response, errors, and when the first content came."""
    parsed = ParsedExchange()
    _read_request(exchange, parsed)
    parsed.streamed = is_event_stream(exchange.response_content_type)
    parsed.first_chunk_ns = next((offset for offset, chunk in exchange.chunks if chunk), None)
    if parsed.streamed:
        _read_stream(exchange, parsed)
    else:
        _read_plain(exchange, parsed)
    if not exchange.live:
        parsed.first_content_ns = exchange.first_content_ns
    parsed.error_category = _error_category(exchange, parsed)
    return parsed


def is_event_stream(content_type: str | None) -> bool:
    """Whether a content type is that of server-sent events, in any case (N4); a blank before it is no part of it."""
    return content_type is not None and content_type.lower().startswith("text/event-stream")


def _read_request(exchange: Exchange, parsed: ParsedExchange) -> None:
    sent = exchange.request_body
    body = decode_body(sent, exchange.request_content_encoding).shown_for(sent)
    parsed.request = load_json_object(body)
    if parsed.request is None:
        parsed.request_raw = _text(body)


def _read_plain(exchange: Exchange, parsed: ParsedExchange) -> None:
    parsed.first_content_ns = next((offset for offset, chunk in exchange.chunks if chunk and chunk != KEEP_ALIVE), None)
    sent = exchange.response_body
    decoded = decode_body(sent, exchange.response_content_encoding)
    body = decoded.shown_for(sent) or _raised_body(exchange.raised)
    response = load_json_object(body)
    parsed.error = _plain_error(response)
    if exchange.raised is None:
        parsed.response = response
    if parsed.response is None:
        parsed.response_raw = _text(body)


def _read_stream(exchange: Exchange, parsed: ParsedExchange) -> None:
    assembler = DIALECTS[exchange.dialect].assembler()
    texts, failed = _decoded_chunks(exchange)
    body = b"".join(texts)
    framer = SseFramer()
    first_content: ServerSentEvent | None = None
    for event in itertools.chain(framer.feed(body), framer.close()):
        if assembler.feed(event) and first_content is None:
            first_content = event
    if first_content is not None:
        parsed.first_content_ns = _time_of_byte(exchange, texts, first_content.end)
    body = DecodedBody(body, failed).shown_for(exchange.response_body)
    parsed.response = assembler.result()
    parsed.response_raw = _text(body or _raised_body(exchange.raised))
    parsed.terminal_event = assembler.terminal
    parsed.stream_truncated = assembler.terminal is None
    parsed.error = assembler.error
    if not body:
        parsed.error = _plain_error(load_json_object(_raised_body(exchange.raised)))


def _decoded_chunks(exchange: Exchange) -> tuple[list[bytes], str | None]:
    """What each chunk adds to the body's text, and why that is not all of it."""
    if not exchange.response_content_encoding:
        return [chunk for _, chunk in exchange.chunks], None
    decoder = BodyDecoder(exchange.response_content_encoding)
    texts = [decoder.feed(chunk) for _, chunk in exchange.chunks]
    return texts, decoder.finish()


def _time_of_byte(exchange: Exchange, texts: list[bytes], end: int) -> int:
    """When the first ``end`` bytes of the text were there."""
    ends = list(itertools.accumulate(map(len, texts)))
    return exchange.chunks[bisect.bisect_left(ends, end)][0]


def _plain_error(response: JsonObject | None) -> JsonObject | None:
    error = None if response is None else response.get("error")
    return error_object(error) if says_error(error) else None


def _raised_body(raised: Raised | None) -> bytes:
    return (raised.body or b"") if raised is not None else b""


def _text(body: bytes) -> str | None:
    return body.decode("utf-8", "replace") if body else None


def _error_category(exchange: Exchange, parsed: ParsedExchange) -> str | None:
    execution = exchange.execution
    if execution is not None and execution.local_response_reason == "context_length_exceeded":
        return "context_length_exceeded"
    raised = exchange.raised
    if raised is None or _hung_up_after_the_end(raised, parsed):
        return _category_of_answer(exchange, parsed)
    status = exchange.status_code or raised.status_code
    return category_of_status(status) or raised.category


def _hung_up_after_the_end(raised: Raised, parsed: ParsedExchange) -> bool:
    """A client that leaves after the terminal event has had all of it, as Codex always does."""
    left = raised.category == "cancelled" or raised.type_name in _HANG_UPS
    return left and parsed.terminal_event is not None


def _category_of_answer(exchange: Exchange, parsed: ParsedExchange) -> str | None:
    category = category_of_status(exchange.status_code) or _TERMINAL_CATEGORIES.get(parsed.terminal_event or "")
    if category is not None:
        return category
    if exchange.is_cut:
        return None
    if parsed.streamed and parsed.stream_truncated:
        return "stream_truncated"
    return "capture_parse_error" if parsed.response_raw and parsed.response is None else None


def category_of_status(status: int | None) -> str | None:
    """NeMo Gym's category of an HTTP status; None below 400."""
    if status is None or status < 400:
        return None
    return _STATUS_CATEGORIES.get(status) or ("client_error" if status < 500 else "upstream_error")
