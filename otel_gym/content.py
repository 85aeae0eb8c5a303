"""What may be recorded, and in which form.

A body keeps its lossless form: its own text, or base64 where it is not UTF-8. What is derived from
it (messages, names, errors) is made safe here: U+FFFD for a lone surrogate, null for NaN, text for
what JSON cannot say; never an exception.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

KEPT_HEAD_BYTES = 64 * 1024
_BASE64 = "base64"
_MAX_DEPTH = 200
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class KeptBody:
    """What is kept of a body.

    ``coding`` is the compression still on ``content`` (it could not be undone), None for plain bytes.
    ``whole_bytes`` and ``sha256`` are those of the whole body, where only its head is kept.
    """

    content: bytes
    coding: str | None = None
    whole_bytes: int | None = None
    sha256: str | None = None


def body_text(body: KeptBody) -> tuple[str, str | None]:
    """The text that stands for a body without loss, and its encoding: None for the body's own text.

    Else ``base64``, or ``gzip+base64`` where the text stands for bytes that are still compressed.
    """
    if body.coding is None:
        try:
            return body.content.decode("utf-8"), None
        except UnicodeDecodeError:
            return base64.b64encode(body.content).decode("ascii"), _BASE64
    return base64.b64encode(body.content).decode("ascii"), f"{body.coding}+{_BASE64}"


def body_of_text(text: str, encoding: str | None) -> KeptBody:
    """The reverse of ``body_text``; ValueError where the base64 is damaged."""
    if encoding is None:
        return KeptBody(text.encode("utf-8", "surrogatepass"))
    coding = encoding.removesuffix(_BASE64).removesuffix("+")
    return KeptBody(base64.b64decode(text, validate=True), coding or None)


def safe_text(text: str) -> str:
    """``text`` with U+FFFD in place of lone surrogates, which UTF-8 cannot carry."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def safe_json(value: Any) -> str:
    """Compact JSON that a strict parser takes, whatever ``value`` holds."""
    try:
        return safe_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (ValueError, TypeError, RecursionError):
        return safe_text(json.dumps(_jsonable(value, 0), ensure_ascii=False, separators=(",", ":")))


def _jsonable(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return "<nested too deep>"
    if isinstance(value, dict):
        return {_key(key): _jsonable(item, depth + 1) for key, item in list(value.items())}
    if isinstance(value, list | tuple):
        return [_jsonable(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _described(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _described(key)


def _described(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # a broken __str__ of the user's must not stop the recording
        return f"<{type(value).__name__}>"


def fits_int64(number: int) -> bool:
    return -_INT64 <= number < _INT64
