"""What model APIs put on the wire, read without I/O: bytes in, dataclasses and JSON objects out."""

from typing import TYPE_CHECKING

from otel_gym.loading import loading_from

if TYPE_CHECKING:
    from otel_gym.wire.bodies import decode_body, load_json_object
    from otel_gym.wire.dialects import DIALECTS, Dialect, dialect_for_path
    from otel_gym.wire.exchange import DialectName, Exchange, Execution, JsonObject, ParsedExchange, Raised
    from otel_gym.wire.parse import category_of_status, is_event_stream, parse_exchange
    from otel_gym.wire.sse import ServerSentEvent, SseFramer

__all__ = [
    "DIALECTS",
    "Dialect",
    "DialectName",
    "Exchange",
    "Execution",
    "JsonObject",
    "ParsedExchange",
    "Raised",
    "ServerSentEvent",
    "SseFramer",
    "category_of_status",
    "decode_body",
    "dialect_for_path",
    "is_event_stream",
    "load_json_object",
    "parse_exchange",
]

if not TYPE_CHECKING:  # for whom a name that is not above is an error
    __getattr__, __dir__ = loading_from(
        __name__,
        {
            "otel_gym.wire.bodies": (
                "decode_body",
                "load_json_object",
            ),
            "otel_gym.wire.dialects": (
                "DIALECTS",
                "Dialect",
                "dialect_for_path",
            ),
            "otel_gym.wire.exchange": (
                "DialectName",
                "Exchange",
                "Execution",
                "JsonObject",
                "ParsedExchange",
                "Raised",
            ),
            "otel_gym.wire.parse": (
                "category_of_status",
                "is_event_stream",
                "parse_exchange",
            ),
            "otel_gym.wire.sse": (
                "ServerSentEvent",
                "SseFramer",
            ),
        },
    )
