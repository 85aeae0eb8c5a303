"""Attribute values cut to a number of bytes, so that it can be seen that they were.

A text keeps whole characters and ends with its full length; JSON of messages stays JSON, with the texts in it cut; a
list or a map keeps its first items. What cannot be cut so is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from otel_gym.conventions import JSON_CONTENT

# Numbers take less; what frames an item of a list is told apart from it nowhere.
_NUMBER_BYTES = 10
_ITEM_BYTES = 12
# Texts inside of JSON are cut to these shares of the limit, the first that is enough.
_SHARES = (2, 8, 32, 128)
_LEAST_TEXT_BYTES = 16
# Below it a mark would be all that is left.
_LEAST_MARKED_BYTES = 64


def byte_length(text: str) -> int:
    """In UTF-8; lone surrogates, which it cannot carry, count as three bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def value_size(value: Any) -> int:
    """Bytes that a value takes in protobuf, at most, without what frames it."""
    if isinstance(value, str):
        return byte_length(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(2 * _ITEM_BYTES + byte_length(str(key)) + value_size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(_ITEM_BYTES + value_size(item) for item in value)
    return _NUMBER_BYTES


def cut_value(name: str, value: Any, limit: int) -> Any:
    """``value`` in ``limit`` bytes, which it exceeds; None where nothing of it can be kept."""
    if isinstance(value, str):
        return cut_json(value, limit) if name in JSON_CONTENT else cut_text(value, limit)
    if isinstance(value, bytes):
        return value[:limit]
    if isinstance(value, Mapping):
        kept = _first(((key, item) for key, item in value.items()), limit, byte_length)
        return dict(kept) or None
    if isinstance(value, list | tuple):
        return [item for _, item in _first((("", item) for item in value), limit, byte_length)] or None
    return None


def _first(items: Any, limit: int, key_size: Any) -> list[tuple[Any, Any]]:
    kept, left = [], limit
    for key, item in items:
        left -= 2 * _ITEM_BYTES + key_size(str(key))
        if left < _NUMBER_BYTES:
            break
        if value_size(item) > left:
            item = cut_text(item, left) if isinstance(item, str) else None
            if item is None:
                break
        left -= value_size(item)
        kept.append((key, item))
    return kept


def cut_text(text: str, limit: int, more: str = "") -> str:
    """Whole characters from its start, and a mark with its full length, and ``more``."""
    mark = f"…[cut, {byte_length(text)} bytes{more}]" if limit >= _LEAST_MARKED_BYTES else ""
    return head_of(text, limit - byte_length(mark)) + mark


def head_of(text: str, limit: int) -> str:
    """Whole characters from the start of a text, in ``limit`` bytes at most."""
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def cut_json(text: str, limit: int) -> str | None:
    """The same JSON with its long texts cut, and of a list its last items, so that it fits; None if it does not."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for share in _SHARES:
        value = _with_short_texts(value, max(limit // share, _LEAST_TEXT_BYTES))
        short = _dumped(value)
        if byte_length(short) <= limit:
            return short
    return _last_items(value, limit) if isinstance(value, list) else None


def _last_items(items: list[Any], limit: int) -> str | None:
    kept: list[str] = []
    left = limit - 2
    for item in reversed(items):
        short = _dumped(item)
        left -= byte_length(short) + 1
        if left < 0:
            break
        kept.insert(0, short)
    return f"[{','.join(kept)}]" if kept else None


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _with_short_texts(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= limit and byte_length(value) <= limit else cut_text(value, limit)
    if isinstance(value, dict):
        return {name: _with_short_texts(item, limit) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_short_texts(item, limit) for item in value]
    return value
