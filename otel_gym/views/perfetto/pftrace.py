"""Perfetto's own format: TrackEvents as protobuf, written by hand, a process at a time.

Fields and numbers: perfetto's protos/perfetto/trace/track_event. Names are interned, times are whole nanoseconds. What
events share is written once and put together: what a time, a track, a name begin with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from otel_gym.views.perfetto.annotations import Pieces, Plan
from otel_gym.views.perfetto.chrome_json import PROCESSES_A_PART
from otel_gym.views.perfetto.protobuf import DOUBLE, FIXED64, INT64, SMALL, UINT64, field, text, time_varint, varint
from otel_gym.views.perfetto.shapes import Counter, Instant, Lane, Process, Slice, Track

_BEGIN, _END, _INSTANT, _COUNTER = (b"\x48" + bytes([kind]) for kind in (1, 2, 3, 4))
_EXPLICIT_ORDER = b"\x58\x03"  # child_ordering
_CATEGORIES, _NAMES, _ANNOTATIONS = 1, 2, 3  # kinds of interned data
# One id is one colour: what failed looks alike in the whole trace.
_ERRORS = b"\xaa\x03\x05error"
_BATCH_BYTES = 1 << 20
# About what an event has beside its name and its arguments.
_BARE_BYTES = 40
_MOST_HEADS = 4096
_MOST_PLANS = 4096
# What a packet of that size begins with.
_PACKET = [b"\x0a" + size for size in SMALL]


class PftraceWriter:
    """``write`` takes the bytes of a file, in order. ``part``: which part of a trace this is, if several make it."""

    def __init__(self, write: Callable[[bytes], Any], part: int = 0) -> None:
        self._write = write
        sequence = b"\x50" + varint(part + 1)  # trusted_packet_sequence_id
        self._in_sequence = sequence + b"\x68\x02"  # sequence_flags: it needs the names that were interned before
        self._of_event = self._in_sequence + b"\x5a"  # track_event
        self._interned: dict[tuple[int, str], bytes] = {}
        self._new: list[bytes] = []
        self._names: dict[tuple[str, str], bytes] = {}
        self._pieces = Pieces()
        self._plans: dict[tuple[tuple[str, ...], tuple[type, ...]], Plan] = {}
        self._heads: dict[int, bytes] = {}
        self._uuids = part << 32
        self._processes = part * PROCESSES_A_PART
        self._written: list[bytes] = []
        self._size = 0
        self._packet(sequence + b"\x68\x01")  # nothing is interned yet

    def end(self) -> None:
        self._flush()

    def process(self, process: Process) -> None:
        self._heads.clear()
        self._processes += 1
        uuid = self._uuid()
        about = b"\x08" + varint(self._processes) + text(6, process.name)
        self._descriptor(uuid, field(3, about) + _rank(self._processes))
        # The UI puts a process's own tracks in the order of their names; below a track it keeps to ours.
        self._tracks(process.tracks, self._track("timeline", uuid, 0, _EXPLICIT_ORDER))

    def _tracks(self, tracks: list[Track], parent: int) -> None:
        for rank, track in enumerate(tracks):
            if track.tracks:
                self._tracks(track.tracks, self._track(track.name, parent, rank, _EXPLICIT_ORDER))
            for lane in track.lanes:
                self._lane(lane, _track_uuid(self._track(track.name, parent, rank)))
            for counter in track.counters:
                unit = field(8, text(6, counter.unit))
                self._counter(counter, _track_uuid(self._track(counter.name, parent, rank, unit)))

    def _track(self, name: str, parent: int, rank: int, more: bytes = b"") -> int:
        uuid = self._uuid()
        self._descriptor(uuid, b"\x28" + varint(parent) + _about_track(name, rank, more))
        return uuid

    def _descriptor(self, uuid: int, fields: bytes) -> None:
        self._packet(self._in_sequence + field(60, b"\x08" + varint(uuid) + fields))

    def _lane(self, lane: Lane, uuid: bytes) -> None:
        begin, ending = _BEGIN + uuid, SMALL[len(_END + uuid)] + _END + uuid
        levels = [iter(lane)]
        ends: list[int] = []
        while levels:
            for each in levels[-1]:
                if type(each) is Instant:
                    # Lanes are drawn as one, in which instants of one time would nest: at the top they have an end.
                    self._event(each.time_ns, (_INSTANT + uuid if ends else begin) + self._told(each))
                    if not ends:
                        self._end(each.time_ns, ending)
                    continue
                assert type(each) is Slice
                event = begin + self._told(each)
                if each.flows_out or each.flows_in or each.is_error:
                    event += _marks(each)
                self._event(each.start_ns, event)
                if each.children:
                    levels.append(iter(each.children))
                    ends.append(each.end_ns)
                    break
                self._end(each.end_ns, ending)
            else:
                levels.pop()
                if ends:
                    self._end(ends.pop(), ending)

    def _told(self, made: Slice | Instant) -> bytes:
        """Its name, category and arguments."""
        named = self._names.get((made.name, made.category))
        if named is None:
            named = self._name(_NAMES, b"\x50", made.name) + self._name(_CATEGORIES, b"\x18", made.category)
            self._names[made.name, made.category] = named
        args = made.args
        if not args:
            return named
        values = [*args.values()]
        shape = (*args,), (*map(type, values),)
        plan = self._plans.get(shape)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[shape] = Plan(*shape, self._annotation, self._pieces)
        return named + plan.encode(values)

    def _counter(self, counter: Counter, uuid: bytes) -> None:
        event = _COUNTER + uuid
        for time_ns, value in counter.points:
            head = self._heads.get(time_ns) or self._head(time_ns)
            told = _VALUES[value]
            size = len(event) + len(told)
            self._written += (_PACKET[len(head) + 1 + size], head, SMALL[size], event, told)
        self._size += len(counter.points) * _BARE_BYTES
        if self._size > _BATCH_BYTES:
            self._flush()

    def _event(self, time_ns: int, event: bytes) -> None:
        head = self._heads.get(time_ns) or self._head(time_ns)
        size = len(event)
        before = SMALL[size] if size < 16384 else varint(size)
        if self._new:
            self._packet(head + before + event + field(12, b"".join(self._new)))
            self._new.clear()
            return
        whole = len(head) + len(before) + size
        self._written += (_PACKET[whole] if whole < 16384 else b"\x0a" + varint(whole), head, before, event)
        self._size += whole + _BARE_BYTES
        if self._size > _BATCH_BYTES:
            self._flush()

    def _end(self, time_ns: int, ending: bytes) -> None:
        head = self._heads.get(time_ns) or self._head(time_ns)
        self._written += (_PACKET[len(head) + len(ending)], head, ending)

    def _head(self, time_ns: int) -> bytes:
        """What an event of that time begins with: several are of one time."""
        if len(self._heads) > _MOST_HEADS:
            self._heads.clear()
        head = self._heads[time_ns] = b"\x40" + time_varint(time_ns) + self._of_event
        return head

    def _packet(self, packet: bytes) -> None:
        size = len(packet)
        self._written += (_PACKET[size] if size < 16384 else b"\x0a" + varint(size), packet)
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

    def _annotation(self, name: str) -> bytes:
        return self._name(_ANNOTATIONS, b"\x08", name)

    def _name(self, kind: int, tag: bytes, name: str) -> bytes:
        """The field that stands for a name; the name itself goes with the packet that needs it first."""
        known = self._interned.get((kind, name))
        if known is None:
            iid = varint(len(self._interned) + 1)
            known = self._interned[kind, name] = tag + iid
            self._new.append(field(kind, b"\x08" + iid + text(2, name)))
        return known


class _Values(dict[float, bytes]):
    """What the values of counters become."""

    def __missing__(self, value: float) -> bytes:
        if len(self) >= _MOST_HEADS:
            self.clear()
        is_whole = float(value).is_integer() and abs(value) < INT64
        told = b"\xf0\x01" + varint(int(value) & UINT64) if is_whole else b"\xe1\x02" + DOUBLE(value)
        self[value] = told
        return told


_VALUES = _Values()


def _marks(made: Slice) -> bytes:
    flows = b"".join([b"\xf9\x02" + FIXED64(flow) for flow in made.flows_out])  # flow_ids
    flows += b"".join([b"\x81\x03" + FIXED64(flow) for flow in made.flows_in])  # terminating_flow_ids
    return flows + _ERRORS if made.is_error else flows


def _track_uuid(uuid: int) -> bytes:
    return b"\x58" + time_varint(uuid)


@lru_cache(maxsize=4096)
def _about_track(name: str, rank: int, more: bytes) -> bytes:
    return text(2, name) + _rank(rank) + more


def _rank(rank: int) -> bytes:
    return b"\x60" + varint(rank)
