"""The few forms of protobuf's wire format that a trace needs."""

from __future__ import annotations

import struct

DOUBLE = struct.Struct("<d").pack
FIXED64 = struct.Struct("<Q").pack
INT64 = 1 << 63
UINT64 = (1 << 64) - 1
# Of numbers below 16,384.
SMALL = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << 14)]
# The lowest 14 bits of a number that goes on behind them.
_GOING_ON = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(1 << 14)]
_MOST_HIGH = 512
_known_high: dict[int, bytes] = {}


def varint(number: int) -> bytes:
    if number < 1 << 14:
        return SMALL[number]
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def time_varint(time_ns: int) -> bytes:
    """As ``varint``: times of one trace share all but their last bits."""
    high = time_ns >> 28
    behind = _known_high.get(high)
    if behind is None:
        if time_ns < 1 << 42:
            return varint(time_ns)
        if len(_known_high) > _MOST_HIGH:
            _known_high.clear()
        behind = _known_high[high] = varint(high)
    return _GOING_ON[time_ns & 16383] + _GOING_ON[(time_ns >> 14) & 16383] + behind


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def text(number: int, value: str) -> bytes:
    return field(number, value.encode("utf-8", "replace"))
