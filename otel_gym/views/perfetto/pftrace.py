"""Perfetto's own format: TrackEvents as protobuf, written by hand, a process at a time.

Fields and numbers: perfetto's protos/perfetto/trace/track_event. Names are interned, times are whole nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from otel_gym.views.perfetto.shapes import Args, Counter, Instant, Process, Slice, Track

_SEQUENCE = b"\x50\x01"  # trusted_packet_sequence_id 1
_STATE_CLEARED, _NEEDS_STATE = b"\x68\x01", b"\x68\x02"  # sequence_flags
_BEGIN, _END, _INSTANT, _COUNTER = (b"\x48" + bytes([kind]) for kind in (1, 2, 3, 4))
_EXPLICIT_ORDER = b"\x58\x03"  # child_ordering
_CATEGORIES, _NAMES, _ANNOTATIONS = 1, 2, 3  # kinds of interned data
# One id is one colour: what failed looks alike in the whole trace.
_ERRORS = b"\xaa\x03\x05error"
_INT64 = 1 << 63
_UINT64 = (1 << 64) - 1
_DOUBLE = struct.Struct("<d").pack
_FIXED64 = struct.Struct("<Q").pack

# Of a shape of arguments: the id of each name, and which value has it or what lies below it.
_Plan = list[tuple[bytes, "int | _Plan"]]


class PftraceWriter:
    """``write`` takes the bytes of a file, in order."""

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write
        self._interned: dict[tuple[int, str], bytes] = {}
        self._new: list[bytes] = []
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._uuids = 0
        self._processes = 0
        self._packets: list[bytes] = []

    def begin(self) -> None:
        self._packet(_SEQUENCE + _STATE_CLEARED)

    def end(self) -> None:
        self._flush()

    def process(self, process: Process) -> None:
        self._processes += 1
        uuid = self._uuid()
        about = b"\x08" + _varint(self._processes) + _text(6, process.name)
        self._descriptor(uuid, _field(3, about) + _EXPLICIT_ORDER + _rank(self._processes))
        self._tracks(process.tracks, self._track("timeline", uuid, 0, _EXPLICIT_ORDER))
        self._flush()

    def _tracks(self, tracks: list[Track], parent: int) -> None:
        for rank, track in enumerate(tracks):
            if track.tracks:
                group = self._track(track.name, parent, rank, _EXPLICIT_ORDER)
                self._tracks(track.tracks, group)
            for lane in track.lanes:
                uuid = _track_uuid(self._track(track.name, parent, rank))
                for each in lane:
                    self._slice(each, uuid) if isinstance(each, Slice) else self._instant(each, uuid)
            for counter in track.counters:
                self._counter(counter, self._track(counter.name, parent, rank, _field(8, _text(6, counter.unit))))

    def _track(self, name: str, parent: int, rank: int, more: bytes = b"") -> int:
        uuid = self._uuid()
        self._descriptor(uuid, b"\x28" + _varint(parent) + _text(2, name) + _rank(rank) + more)
        return uuid

    def _descriptor(self, uuid: int, fields: bytes) -> None:
        self._packet(_SEQUENCE + _NEEDS_STATE + _field(60, b"\x08" + _varint(uuid) + fields))

    def _slice(self, made: Slice, uuid: bytes) -> None:
        event = [_BEGIN, uuid, self._name(_NAMES, 0x50, made.name), self._name(_CATEGORIES, 0x18, made.category)]
        event.append(self._arguments(made.args))
        event += [b"\xf9\x02" + _FIXED64(flow) for flow in made.flows_out]
        event += [b"\x81\x03" + _FIXED64(flow) for flow in made.flows_in]
        if made.is_error:
            event.append(_ERRORS)
        self._event(made.start_ns, b"".join(event))
        for child in made.children:
            self._slice(child, uuid) if isinstance(child, Slice) else self._instant(child, uuid)
        self._event(made.end_ns, _END + uuid)

    def _instant(self, made: Instant, uuid: bytes) -> None:
        name, category = self._name(_NAMES, 0x50, made.name), self._name(_CATEGORIES, 0x18, made.category)
        self._event(made.time_ns, _INSTANT + uuid + name + category + self._arguments(made.args))

    def _counter(self, counter: Counter, uuid: int) -> None:
        for time_ns, value in counter.points:
            is_whole = float(value).is_integer() and abs(value) < _INT64
            told = b"\xf0\x01" + _varint(int(value) & _UINT64) if is_whole else b"\xe1\x02" + _DOUBLE(value)
            self._event(time_ns, _COUNTER + _track_uuid(uuid) + told)

    def _event(self, time_ns: int, event: bytes) -> None:
        packet = b"\x40" + _varint(time_ns) + _SEQUENCE + _NEEDS_STATE + b"\x5a" + _varint(len(event)) + event
        if self._new:
            packet += _field(12, b"".join(self._new))
            self._new.clear()
        self._packet(packet)

    def _packet(self, packet: bytes) -> None:
        self._packets.append(b"\x0a" + _varint(len(packet)) + packet)
        if len(self._packets) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._write(b"".join(self._packets))
        self._packets.clear()

    def _uuid(self) -> int:
        self._uuids += 1
        return self._uuids

    def _name(self, kind: int, tag: int, name: str) -> bytes:
        """The field that stands for a name; the name itself goes with the packet that needs it first."""
        known = self._interned.get((kind, name))
        if known is None:
            iid = _varint(len(self._interned) + 1)
            known = self._interned[kind, name] = bytes([tag]) + iid
            self._new.append(_field(kind, b"\x08" + iid + _text(2, name)))
        return known

    # Arguments: ``gen_ai.usage.input_tokens`` as three objects in each other, since a dot in a name becomes "_".

    def _arguments(self, args: Args) -> bytes:
        if not args:
            return b""
        shape = tuple(args)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan([(index, name.split(".")) for index, name in enumerate(shape)], 0)
        return self._entries(b"\x22", plan, list(args.values()))

    def _plan(self, paths: list[tuple[int, list[str]]], depth: int) -> _Plan:
        plan: _Plan = []
        below: dict[str, list[tuple[int, list[str]]]] = {}
        for index, path in paths:
            if len(path) == depth + 1:
                plan.append((self._name(_ANNOTATIONS, 0x08, path[depth]), index))
            else:
                below.setdefault(path[depth], []).append((index, path))
        plan += [(self._name(_ANNOTATIONS, 0x08, name), self._plan(under, depth + 1)) for name, under in below.items()]
        return plan

    def _entries(self, tag: bytes, plan: _Plan, values: list[Any]) -> bytes:
        entries = []
        for name, what in plan:
            body = name + (_value(values[what]) if isinstance(what, int) else self._entries(b"\x5a", what, values))
            entries.append(tag + _varint(len(body)) + body)
        return b"".join(entries)


_BATCH = 2048


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return b"\x32" + _varint(len(text)) + text
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x20" + _varint(value & _UINT64) if -_INT64 <= value < _INT64 else _value(str(value))
    if isinstance(value, float):
        return b"\x29" + _DOUBLE(value)
    if isinstance(value, list | tuple):
        return b"".join([_field(12, _value(item)) for item in value])
    if isinstance(value, dict):
        return b"".join([_field(11, _text(10, str(name)) + _value(item)) for name, item in value.items()])
    return _value(str(value))


def _varint(number: int) -> bytes:
    if number < 128:
        return _ONE_BYTE[number]
    return _long_varint(number)


def _long_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_ONE_BYTE = [bytes([number]) for number in range(128)]


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _track_uuid(uuid: int) -> bytes:
    return b"\x58" + _varint(uuid)


def _rank(rank: int) -> bytes:
    return b"\x60" + _varint(rank)
