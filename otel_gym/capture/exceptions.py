"""What an exception says about the exchange that it ended.

Model servers raise their upstream's failures through the middleware, in many shapes: the status is
read from ``.status``, ``.status_code`` or ``.response.status_code``, the body from
``.response_content`` or ``.response``. NeMo Gym reads the same places.
"""

from __future__ import annotations

import asyncio
from typing import Any

from otel_gym.wire.exchange import Raised


def raised_of(error: BaseException) -> Raised:
    return Raised(type(error).__name__, _category(error), _status_code(error), _body(error))


def _category(error: BaseException) -> str:
    name = type(error).__name__.lower()
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, TimeoutError) or "timeout" in name:
        return "timeout"
    return "connection" if "conn" in name else "exception"


def _status_code(error: BaseException) -> int | None:
    response = _attribute(error, "response")
    candidates = (
        _attribute(error, "status"),
        _attribute(error, "status_code"),
        _attribute(response, "status_code"),
    )
    return next((int(status) for status in candidates if _is_status(status)), None)


def _is_status(value: Any) -> bool:
    """An int (also http.HTTPStatus) that can be one; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 999


def _body(error: BaseException) -> bytes | None:
    response = _attribute(error, "response")
    candidates = (
        _attribute(error, "response_content"),
        _attribute(response, "content"),
        _attribute(response, "text"),
    )
    for content in candidates:
        if isinstance(content, bytes | bytearray) and content:
            return bytes(content)
        if isinstance(content, str) and content:
            return content.encode("utf-8", "replace")
    return None


def _attribute(source: Any, name: str) -> Any:
    """getattr that survives properties which raise (``httpx.Response.content`` of an unread stream)."""
    try:
        return getattr(source, name, None)
    except Exception:
        return None
