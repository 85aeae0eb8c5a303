"""Perfetto's own format: TrackEvents as protobuf, written by hand, a process at a time.

Fields and numbers: perfetto's protos/perfetto/trace/track_event. Names are interned, times are whole nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from otel_gym.views.perfetto.chrome_json import PROCESSES_A_PART
from otel_gym.views.perfetto.shapes import Args, Counter, Instant, Lane, Process, Slice, Track

_BEGIN, _END, _INSTANT, _COUNTER = (b"\x48" + bytes([kind]) for kind in (1, 2, 3, 4))
_EXPLICIT_ORDER = b"\x58\x03"  # child_ordering
_CATEGORIES, _NAMES, _ANNOTATIONS = 1, 2, 3  # kinds of interned data
# One id is one colour: what failed looks alike in the whole trace.
_ERRORS = b"\xaa\x03\x05error"
_INT64 = 1 << 63
_UINT64 = (1 << 64) - 1
_DOUBLE = struct.Struct("<d").pack
_FIXED64 = struct.Struct("<Q").pack
_DEEPEST_NAME = 16
_BATCH_BYTES = 1 << 20


class PftraceWriter:
    """``write`` takes the bytes of a file, in order. ``part``: which part of a trace this is, if several make it."""

    def __init__(self, write: Callable[[bytes], Any], part: int = 0) -> None:
        self._write = write
        sequence = b"\x50" + _varint(part + 1)  # trusted_packet_sequence_id
        self._in_sequence = sequence + b"\x68\x02"  # sequence_flags: it needs the names that were interned before
        self._of_event = self._in_sequence + b"\x5a"  # track_event
        self._interned: dict[tuple[int, str], bytes] = {}
        self._new: list[bytes] = []
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._uuids = part << 32
        self._processes = part * PROCESSES_A_PART
        self._written: list[bytes] = []
        self._size = 0
        self._packet(sequence + b"\x68\x01")  # nothing is interned yet

    def end(self) -> None:
        self._flush()

    def process(self, process: Process) -> None:
        self._processes += 1
        uuid = self._uuid()
        about = b"\x08" + _varint(self._processes) + _text(6, process.name)
        self._descriptor(uuid, _field(3, about) + _rank(self._processes))
        # The UI puts a process's own tracks in the order of their names; below a track it keeps to ours.
        self._tracks(process.tracks, self._track("timeline", uuid, 0, _EXPLICIT_ORDER))

    def _tracks(self, tracks: list[Track], parent: int) -> None:
        for rank, track in enumerate(tracks):
            if track.tracks:
                self._tracks(track.tracks, self._track(track.name, parent, rank, _EXPLICIT_ORDER))
            for lane in track.lanes:
                self._lane(lane, _track_uuid(self._track(track.name, parent, rank)))
            for counter in track.counters:
                unit = _field(8, _text(6, counter.unit))
                self._counter(counter, _track_uuid(self._track(counter.name, parent, rank, unit)))

    def _track(self, name: str, parent: int, rank: int, more: bytes = b"") -> int:
        uuid = self._uuid()
        self._descriptor(uuid, b"\x28" + _varint(parent) + _text(2, name) + _rank(rank) + more)
        return uuid

    def _descriptor(self, uuid: int, fields: bytes) -> None:
        self._packet(self._in_sequence + _field(60, b"\x08" + _varint(uuid) + fields))

    def _lane(self, lane: Lane, uuid: bytes) -> None:
        ending = self._of_event + _varint(len(_END + uuid)) + _END + uuid
        levels = [iter(lane)]
        open_slices: list[Slice] = []
        while levels:
            each = next(levels[-1], None)
            if each is None:
                levels.pop()
                if open_slices:
                    self._packet(b"\x40" + _time(open_slices.pop().end_ns) + ending)
            elif isinstance(each, Instant):
                # Lanes are drawn as one, in which instants of one time would nest: at the top they have an end.
                kind = _INSTANT if open_slices else _BEGIN
                self._event(each.time_ns, kind + uuid + self._named(each) + self._arguments(each.args))
                if not open_slices:
                    self._packet(b"\x40" + _time(each.time_ns) + ending)
            else:
                self._event(each.start_ns, self._begin(each, uuid))
                if each.children:
                    levels.append(iter(each.children))
                    open_slices.append(each)
                else:
                    self._packet(b"\x40" + _time(each.end_ns) + ending)

    def _begin(self, made: Slice, uuid: bytes) -> bytes:
        event = _BEGIN + uuid + self._named(made) + self._arguments(made.args)
        for flow in made.flows_out:
            event += b"\xf9\x02" + _FIXED64(flow)  # flow_ids
        for flow in made.flows_in:
            event += b"\x81\x03" + _FIXED64(flow)  # terminating_flow_ids
        return event + _ERRORS if made.is_error else event

    def _named(self, made: Slice | Instant) -> bytes:
        return self._name(_NAMES, b"\x50", made.name) + self._name(_CATEGORIES, b"\x18", made.category)

    def _counter(self, counter: Counter, uuid: bytes) -> None:
        for time_ns, value in counter.points:
            is_whole = float(value).is_integer() and abs(value) < _INT64
            told = b"\xf0\x01" + _varint(int(value) & _UINT64) if is_whole else b"\xe1\x02" + _DOUBLE(value)
            self._event(time_ns, _COUNTER + uuid + told)

    def _event(self, time_ns: int, event: bytes) -> None:
        size = len(event)
        packet = b"\x40" + _time(time_ns) + self._of_event + (_SMALL[size] if size < 16384 else _varint(size)) + event
        if self._new:
            packet += _field(12, b"".join(self._new))
            self._new.clear()
        self._packet(packet)

    def _packet(self, packet: bytes) -> None:
        size = len(packet)
        self._written += (b"\x0a", _SMALL[size] if size < 16384 else _varint(size), packet)
        self._size += size
        if self._size > _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._write(b"".join(self._written))
        self._written.clear()
        self._size = 0

    def _uuid(self) -> int:
        self._uuids += 1
        return self._uuids

    def _name(self, kind: int, tag: bytes, name: str) -> bytes:
        """The field that stands for a name; the name itself goes with the packet that needs it first."""
        known = self._interned.get((kind, name))
        if known is None:
            iid = _varint(len(self._interned) + 1)
            known = self._interned[kind, name] = tag + iid
            self._new.append(_field(kind, b"\x08" + iid + _text(2, name)))
        return known

    # Arguments: ``gen_ai.usage.input_tokens`` as three objects in each other, since a dot in a name becomes "_".

    def _arguments(self, args: Args) -> bytes:
        if not args:
            return b""
        shape = tuple(args)
        plan = self._plans.get(shape)
        if plan is None:
            paths = [(index, name.split(".", _DEEPEST_NAME)) for index, name in enumerate(shape)]
            plan = self._plans[shape] = self._plan(paths, 0)
        return b"".join(_entries(plan, list(args.values())))

    def _plan(self, paths: list[tuple[int, list[str]]], depth: int) -> _Plan:
        plan: _Plan = []
        below: dict[str, list[tuple[int, list[str]]]] = {}
        tag = b"\x22" if depth == 0 else b"\x5a"  # debug_annotations of an event, dict_entries of an annotation
        for index, path in paths:
            if len(path) == depth + 1:
                plan.append(_Entry(tag, self._name(_ANNOTATIONS, b"\x08", path[depth]), index))
            else:
                below.setdefault(path[depth], []).append((index, path))
        for name, under in below.items():
            iid = self._name(_ANNOTATIONS, b"\x08", name)
            within = self._plan(under, depth + 1)
            if len(within) == 1 and within[0].index >= 0:  # an object of one value is made with it
                [only] = within
                plan.append(_Entry(tag, only.name, only.index, [*only.around, iid]))
            else:
                plan.append(_Entry(tag, iid, below=within))
        return plan


class _Entry(msgspec.Struct, eq=False):
    """Of a shape of arguments: which value has a name, or what lies below it. Values come again: ``known`` has them.

    ``around``: names of the objects that hold nothing but it, the innermost first.
    """

    tag: bytes
    name: bytes
    index: int = -1
    around: list[bytes] = []
    below: list[_Entry] = []
    known: dict[str | int, bytes] = {}


_Plan = list[_Entry]
_MOST_KNOWN = 512


def _entries(plan: _Plan, values: list[Any]) -> list[bytes]:
    written = []
    for entry in plan:
        if entry.index < 0:
            body = entry.name + b"".join(_entries(entry.below, values))
            written.append(entry.tag + _varint(len(body)) + body)
            continue
        value = values[entry.index]
        kind = type(value)
        known = entry.known.get(value) if kind is str or kind is int else None
        if known is None:
            body = entry.name + _value(value)
            for name in entry.around:
                body = name + b"\x5a" + _varint(len(body)) + body
            known = entry.tag + _varint(len(body)) + body
            if (kind is str or kind is int) and len(entry.known) < _MOST_KNOWN:
                entry.known[value] = known
        written.append(known)
    return written


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
    if number < 1 << 14:
        return _SMALL[number]
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _time(time_ns: int) -> bytes:
    """As ``_varint``: times of one trace share all but their last bits."""
    high = time_ns >> 28
    behind = _known_high.get(high)
    if behind is None:
        if time_ns < 1 << 42:
            return _varint(time_ns)
        if len(_known_high) > _MOST_KNOWN:
            _known_high.clear()
        behind = _known_high[high] = _varint(high)
    return _GOING_ON[time_ns & 16383] + _GOING_ON[(time_ns >> 14) & 16383] + behind


_known_high: dict[int, bytes] = {}
_SMALL = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << 14)]
# The lowest 14 bits of a number that goes on behind them.
_GOING_ON = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(1 << 14)]


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _track_uuid(uuid: int) -> bytes:
    return b"\x58" + _varint(uuid)


def _rank(rank: int) -> bytes:
    return b"\x60" + _varint(rank)
