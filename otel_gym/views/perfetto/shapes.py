"""What a trace shows, whatever the format: processes of tracks, tracks of lanes, lanes of nested slices.

Times are UTC nanoseconds. In a lane nothing overlaps but what is nested.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

Args = dict[str, Any]

# Kinds of spans: each has a track of its agent, and is the category of its slices.
AGENT, MODEL, TOOL = "agent", "model calls", "tools"
ENVIRONMENT, HTTP, OTHER = "environment", "http server", "other spans"


class Instant(msgspec.Struct, eq=False):
    name: str
    time_ns: int
    category: str
    args: Args


class Slice(msgspec.Struct, eq=False):
    """``children`` lie within it, in the order of time. Flows are arrows by their ids: ``flows_out`` begin here."""

    name: str
    start_ns: int
    end_ns: int
    category: str
    args: Args
    is_error: bool = False
    children: list[Slice | Instant] = field(default_factory=list)
    flows_out: list[int] = field(default_factory=list)
    flows_in: list[int] = field(default_factory=list)
    lane: int = -1

    @property
    def closes_ns(self) -> int:
        """When something else may begin beside it: what has no length takes a nanosecond of its lane."""
        return self.end_ns if self.end_ns > self.start_ns else self.start_ns + 1


Lane = list[Slice | Instant]


class Counter(msgspec.Struct, eq=False):
    """``points``: a value holds from its time to that of the next."""

    name: str
    unit: str
    points: list[tuple[int, float]]


class Track(msgspec.Struct, eq=False):
    """One row of a process, or with ``tracks`` a group of rows; rows that overlap in time are its lanes."""

    name: str
    lanes: list[Lane] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)


class Process(msgspec.Struct, eq=False):
    name: str
    tracks: list[Track]

    def start_ns(self) -> int | None:
        """The first of its times; None if none is known."""
        return min(_starts(self.tracks), default=None)


def _starts(tracks: list[Track]) -> list[int]:
    starts: list[int] = []
    for track in tracks:
        starts += [each.start_ns for lane in track.lanes for each in lane if isinstance(each, Slice)]
        starts += [counter.points[0][0] for counter in track.counters if counter.points]
        starts += _starts(track.tracks)
    return starts
