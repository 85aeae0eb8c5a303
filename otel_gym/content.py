"""What may be recorded, and in which form.

A body keeps its lossless form: its own text, or base64 where it is not UTF-8. What is derived from
it (messages, names, errors), and what users put on spans, is made safe here, once: U+FFFD for a lone
surrogate, null for NaN in JSON, text for what neither JSON nor OTLP can say; never an exception. What
was lost by that is counted.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KEPT_HEAD_BYTES = 64 * 1024
# What is remembered by the names of a span's attributes is so for no more names than this: some instrumentations number
# theirs, and the thousands of names of such a span come once only.
MOST_REMEMBERED_NAMES = 128
_BASE64 = "base64"
_INT64 = 2**63

# Of a value in JSON text, and of one that an exporter nests in protobuf, whose parsers stop at 100 messages.
_JSON_DEPTH = 200
_VALUE_DEPTH = 32
# A small value can refer to itself so often that writing it out never ends.
_MAX_ITEMS = 200_000
_REPLACEMENT = "\ufffd"


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


# Control characters, line separators, lone surrogates, and what turns the direction of the text around it.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """``text`` as one line that commands nothing of a terminal: what it holds beside letters, escaped as in Python."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def replaced_in(text: str, safe: str) -> int:
    """How many characters ``safe_text`` replaced."""
    return 0 if safe is text else safe.count(_REPLACEMENT) - text.count(_REPLACEMENT)


def safe_json(value: Any) -> str:
    """Compact JSON that a strict parser takes, whatever ``value`` holds."""
    try:
        return safe_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (ValueError, TypeError, RecursionError):
        copy = _Copy(_JSON_DEPTH, for_json=True).of(value)
        return json.dumps(copy, ensure_ascii=False, separators=(",", ":"))


def safe_value(value: Any) -> tuple[Any, int]:
    """``value`` as an attribute that no SDK and no exporter stumbles over, and how much of it was replaced.

    NaN stays, since OTLP knows it; an integer beyond 64 bits becomes its digits, a set a list, an object its text.
    """
    kind = type(value)
    if kind is str:
        safe = safe_text(value)
        return safe, replaced_in(value, safe)
    if kind in _PLAIN or value is None or (kind is int and fits_int64(value)):
        return value, 0
    copy = _Copy(_VALUE_DEPTH, for_json=False)
    return copy.of(value), copy.replaced


def safe_attributes(attributes: Mapping[Any, Any]) -> tuple[dict[str, Any], int]:
    """The same for all attributes of a span, with names that are texts."""
    safe: dict[str, Any] = {}
    total = 0
    for name, value in attributes.items():
        key, replaced_in_key = safe_value(described(name))
        safe[key], replaced = safe_value(value)
        total += replaced + replaced_in_key
    return safe, total


_PLAIN = frozenset({bool, float, bytes})


class _Copy:
    """A copy of a value, made of what JSON or an attribute can hold; ``replaced`` counts what was lost."""

    def __init__(self, max_depth: int, *, for_json: bool) -> None:
        self.replaced = 0
        self._max_depth = max_depth
        self._for_json = for_json
        self._items = 0
        self._path: set[int] = set()

    def of(self, value: Any) -> Any:
        try:
            return self._of(value)
        except Exception as error:  # a container of the user's that fails when it is read
            return self._lost(f"<{type(value).__name__}: {type(error).__name__}>")

    def _of(self, value: Any) -> Any:
        self._items += 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            safe = safe_text(str.__str__(value))
            self.replaced += replaced_in(value, safe)
            return safe
        if isinstance(value, int):
            number = int(value)
            return number if self._for_json or fits_int64(number) else _digits(number)
        if isinstance(value, float):
            return self._float(float(value))
        if isinstance(value, bytes | bytearray | memoryview):
            return base64.b64encode(value).decode("ascii") if self._for_json else bytes(value)
        if isinstance(value, Mapping):
            return self._container(value, lambda: {self._key(key): self.of(item) for key, item in list(value.items())})
        if isinstance(value, list | tuple | set | frozenset):
            return self._container(value, lambda: [self.of(item) for item in list(value)])
        return self._object(value)

    def _float(self, number: float) -> float | None:
        if self._for_json and not math.isfinite(number):
            self.replaced += 1
            return None
        return number

    def _container(self, value: Any, copied: Any) -> Any:
        if id(value) in self._path:
            return self._lost("<refers to itself>")
        if len(self._path) >= self._max_depth:
            return self._lost("<nested too deep>")
        if self._items > _MAX_ITEMS:
            return self._lost("<too many items>")
        self._path.add(id(value))
        try:
            return copied()
        finally:
            self._path.discard(id(value))

    def _key(self, key: Any) -> str:
        text = described(key)
        safe = safe_text(str.__str__(text))
        self.replaced += replaced_in(text, safe)
        return safe

    def _object(self, value: Any) -> Any:
        """The number in a numpy scalar or a tensor of one; else what the object says of itself."""
        item = getattr(value, "item", None)
        if callable(item) and getattr(value, "shape", None) == ():
            return self.of(item())
        text = described(value)
        safe = safe_text(text)
        self.replaced += replaced_in(text, safe)
        return safe

    def _lost(self, text: str) -> str:
        self.replaced += 1
        return text


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # Python refuses thousands of digits
        return hex(number)


def described(value: Any) -> str:
    """A text as it is; of any other value what it says of itself, else the name of its type."""
    if isinstance(value, str):
        return value
    try:
        return str(value)
    except Exception:  # a broken __str__ of the user's must not stop the recording
        return f"<{type(value).__name__}>"


def count_unsafe(values: Iterable[Any]) -> int:
    """How many lone surrogates and numbers that JSON lacks are in these parsed JSON values."""
    count = 0
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            count += 0 if value.isascii() else replaced_in(value, safe_text(value))
        elif isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, float):
            count += not math.isfinite(value)
    return count


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None: the unknown is absent."""
    return {name: value for name, value in values.items() if value is not None}


def fits_int64(number: int) -> bool:
    return -_INT64 <= number < _INT64


def finite_number(value: Any) -> int | float | None:
    """The value if it is a number that a double can hold; a bool, NaN, an infinity and an int beyond it are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None
