"""Why a call failed, by what its span tells: a status, or the name of an exception."""

from __future__ import annotations

import re

from otel_gym.store.foreign.dialect import ERROR_TYPE, Attributes, text_of
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.wire.parse import category_of_status

# The clients' exceptions and the providers' error types that stand for one HTTP status.
STATUS_OF: dict[str, int] = {
    "BadRequestError": 400,
    "invalid_request_error": 400,
    "AuthenticationError": 401,
    "authentication_error": 401,
    "PermissionDeniedError": 403,
    "permission_error": 403,
    "NotFoundError": 404,
    "not_found_error": 404,
    "ConflictError": 409,
    "RequestTooLargeError": 413,
    "request_too_large": 413,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "rate_limit_error": 429,
    "InternalServerError": 500,
    "api_error": 500,
    "ServiceUnavailableError": 503,
    "DeadlineExceededError": 504,
    "OverloadedError": 529,
    "overloaded_error": 529,
}
CATEGORY_OF: dict[str, str] = {
    "APITimeoutError": "timeout",
    "ConnectTimeout": "timeout",
    "PoolTimeout": "timeout",
    "ReadTimeout": "timeout",
    "TimeoutError": "timeout",
    "WriteTimeout": "timeout",
    "timeout_error": "timeout",
    "CancelledError": "cancelled",
    "GeneratorExit": "cancelled",
    "KeyboardInterrupt": "cancelled",
    "APIConnectionError": "connection",
    "ConnectError": "connection",
    "ConnectionError": "connection",
    "ReadError": "connection",
    "RemoteProtocolError": "connection",
}
EXCEPTION = "exception"
# How the clients of OpenAI and Anthropic begin the text of an error that a server answered with.
_STATUS_SAID = re.compile(r"(?:[A-Za-z]+Error: )?Error code: (\d{3})\b")


def error_category(span: StoredSpan, attributes: Attributes) -> str | None:
    """In NeMo Gym's words; None if nothing tells of a failure."""
    status = attributes.get("http.response.status_code")
    by_status = category_of_status(status) if type(status) is int else None
    if by_status is not None:
        return by_status
    for name in filter(None, (text_of(attributes, ERROR_TYPE), exception_type(span))):
        category = _category_of_name(name)
        if category is not None:
            return category
    said = (span.status_message, *(text_of(event.attributes, "exception.message") for event in span.events))
    status_said = next((found for text in filter(None, said) if (found := _STATUS_SAID.match(text))), None)
    if status_said is not None:
        return category_of_status(int(status_said[1])) or EXCEPTION
    failed = span.status == STATUS_ERROR or ERROR_TYPE in attributes
    return EXCEPTION if failed else None


def exception_type(span: StoredSpan) -> str | None:
    """Of the last exception that the span recorded."""
    types = (text_of(event.attributes, "exception.type") for event in reversed(span.events))
    return next(filter(None, types), None)


def _category_of_name(name: str) -> str | None:
    """Of ``429``, ``openai.RateLimitError``, ``rate_limit_error``."""
    if name.isascii() and name.isdigit() and len(name) == 3:
        return category_of_status(int(name))
    last = name.rpartition(".")[2]
    status = STATUS_OF.get(last)
    return CATEGORY_OF.get(last) if status is None else category_of_status(status)
