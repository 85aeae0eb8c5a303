"""Arguments as protobuf, read back by hand: whatever came before them."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.views.perfetto.annotations import Pieces, Plan
from otel_gym.views.perfetto.protobuf import varint

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
# What a dict takes for the same: 1, 1.0 and True; 0.0 and -0.0.
ALIKE = [1, 1.0, True, 0, 0.0, -0.0, False, -1, 2**63 - 1, "", "a", "é" * 70]
PLAIN = st.one_of(st.sampled_from(ALIKE), st.text("aé😀", max_size=5))
VALUES = st.one_of(PLAIN, st.lists(PLAIN, max_size=3))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=8), max_size=6))
def test_arguments_are_read_back_as_they_were(events: list[dict[str, Any]]) -> None:
    iids: dict[str, int] = {}
    number, pieces = count(1), Pieces()

    def iid_of(name: str) -> bytes:
        return b"\x08" + varint(iids.setdefault(name, next(number)))

    for args in events:
        if not args:
            continue
        values = list(args.values())
        written = Plan(list(args), list(map(type, values)), iid_of, pieces).encode(values)
        told = {iid: name for name, iid in iids.items()}
        found = sorted(_read(written, 4, told), key=repr)
        assert found == sorted(((name, _typed(value)) for name, value in args.items()), key=repr)


def _typed(value: Any) -> Any:
    """Told apart where Python does not: True from 1, -0.0 from 0.0."""
    return [_typed(item) for item in value] if isinstance(value, list) else repr(value)


def _fields(message: bytes) -> list[tuple[int, Any]]:
    at, fields = 0, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        value: Any = None
        if tag & 7 == 0:
            value = number()
        elif tag & 7 == 1:
            value, at = message[at : at + 8], at + 8
        else:
            size = number()
            value, at = message[at : at + size], at + size
        fields.append((tag >> 3, value))
    return fields


def _read(message: bytes, within: int, told: dict[int, str], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field, annotation in _fields(message):
        assert field == within
        (first, iid), *rest = _fields(annotation)
        assert first == 1
        name = before + told[iid]
        if rest and all(field == 11 for field, _ in rest):
            holds = b"".join(b"\x5a" + varint(len(content)) + content for _, content in rest)
            found += _read(holds, 11, told, f"{name}.")
        else:
            found.append((name, _value(rest)))
    return found


def _value(fields: list[tuple[int, Any]]) -> Any:
    if not fields or fields[0][0] == 12:
        return [_value(_fields(item)) for _, item in fields]
    [(field, value)] = fields
    if field == 2:
        return repr(bool(value))
    if field == 4:
        return repr(value - (1 << 64) if value >= 1 << 63 else value)
    return repr(struct.unpack("<d", value)[0]) if field == 5 else repr(value.decode())
