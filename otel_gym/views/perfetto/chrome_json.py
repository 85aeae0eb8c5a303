"""Chrome's JSON trace events: a list with one event a line, so that a file that was cut off can still be read.

Times are microseconds from the beginning of the trace, with three decimals: from 1970 they would be rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from otel_gym.views.perfetto.json_text import json_args, json_text
from otel_gym.views.perfetto.shapes import Counter, Instant, Lane, Process, Slice, Track

# No part has more of them, and a number of a process has 32 bits.
PROCESSES_A_PART = 1_000_000
FIRST_TID = 1_000_000  # a thread with the number of its process would be taken for its main thread
_BATCH = 1024
_MOST_KNOWN = 4096
# 52 days; a double of as many microseconds still tells apart what is a nanosecond apart.
_EXACT_NS = 2**52

# Of the slice around one: its start, and by how much it begins late.
_Parent = tuple[int, int]


class StartsTooEarlyError(Exception):
    """A process begins before the trace does; ``start_ns`` is when."""

    def __init__(self, start_ns: int) -> None:
        super().__init__(start_ns)
        self.start_ns = start_ns


class ChromeJsonWriter:
    """Writes the events between the brackets of a file, or the ``part`` of them with that number.

    ``write`` takes the bytes, in order; ``base_ns`` is where the times of the trace begin.
    """

    def __init__(self, write: Callable[[bytes], Any], base_ns: int, part: int = 0) -> None:
        self._write = write
        self._base_ns = base_ns
        self._tids = FIRST_TID
        self._pid = part * PROCESSES_A_PART
        self._lines: list[str] = []
        self._is_first = True
        self._known: dict[int, str] = {}

    def end(self) -> None:
        self._flush()

    def process(self, process: Process) -> None:
        """StartsTooEarlyError before anything of it is written."""
        start_ns = process.start_ns()
        if start_ns is not None and start_ns < self._base_ns:
            raise StartsTooEarlyError(start_ns)
        self._pid += 1
        self._tids = FIRST_TID
        self._about("process_name", "name", process.name, 0)
        self._about("process_sort_index", "sort_index", self._pid, 0)
        self._tracks(process.tracks, "")

    def _tracks(self, tracks: list[Track], prefix: str) -> None:
        for track in tracks:
            self._tracks(track.tracks, f"{prefix}{track.name}: ")
            for lane in track.lanes:
                self._tids += 1
                self._about("thread_name", "name", prefix + track.name, self._tids)
                self._about("thread_sort_index", "sort_index", self._tids, self._tids)
                self._lane(lane)
            for counter in track.counters:
                self._counter(counter, prefix)
            if len(self._lines) >= _BATCH:
                self._flush()

    def _lane(self, lane: Lane) -> None:
        place = f'"pid":{self._pid},"tid":{self._tids}'
        levels: list[tuple[_Parent, Iterator[Slice | Instant]]] = [((-1, 0), iter(lane))]
        while levels:
            parent, below = levels[-1]
            each = next(below, None)
            if each is None:
                levels.pop()
            elif isinstance(each, Instant):
                self._lines.append(
                    f'{{"ph":"i","s":"t",{_named(each.name, each.category)},'
                    f'"ts":{self._us(each.time_ns)},{place},"args":{json_args(each.args)}}}'
                )
            else:
                late_ns = self._slice(each, parent, place)
                if each.children:
                    levels.append(((each.start_ns, late_ns), iter(each.children)))

    def _slice(self, made: Slice, parent: _Parent, place: str) -> int:
        """Returns by how much it begins late."""
        start_ns, end_ns = made.start_ns - self._base_ns, made.end_ns - self._base_ns
        unit_ns = 1 if start_ns < _EXACT_NS else 1000
        late_ns = 0
        if made.start_ns == parent[0] and end_ns > start_ns + parent[1] + unit_ns:
            late_ns = parent[1] + unit_ns  # else an arrow at the parent's begin would be taken for its own
        start_ns += late_ns
        start = self._told(start_ns)
        took_ns = end_ns - start_ns if unit_ns == 1 else _whole(end_ns) - _whole(start_ns)
        colour = ',"cname":"terrible"' if made.is_error else ""
        self._lines.append(
            f'{{"ph":"X",{_named(made.name, made.category)},"ts":{start},'
            f'"dur":{_microseconds(took_ns)},{place}{colour},"args":{json_args(made.args)}}}'
        )
        for phase, flows in (("s", made.flows_out), ("f", made.flows_in)) if made.flows_out or made.flows_in else ():
            for flow in flows:
                self._lines.append(
                    f'{{"ph":"{phase}","bp":"e","name":"flow","cat":"flow","id":{flow},"ts":{start},{place}}}'
                )
        return late_ns

    def _counter(self, counter: Counter, prefix: str) -> None:
        name, _, rest = counter.name.partition(" ")  # Perfetto puts the two together again
        head = f'{{"ph":"C","name":{json_text(prefix + name)},"pid":{self._pid},"ts":'
        tail = f',"args":{{{json_text(rest)}:'
        known, us = self._known, self._us
        for time_ns, value in counter.points:
            self._lines.append(f"{head}{known.get(time_ns - self._base_ns) or us(time_ns)}{tail}{value!r}}}}}")

    def _about(self, what: str, key: str, value: str | int, tid: int) -> None:
        told = value if isinstance(value, int) else json_text(value)
        self._lines.append(f'{{"ph":"M","name":"{what}","pid":{self._pid},"tid":{tid},"args":{{"{key}":{told}}}}}')

    def _us(self, time_ns: int) -> str:
        """What is of unknown time may lie before the trace."""
        return self._told(max(time_ns - self._base_ns, 0))

    def _told(self, after_ns: int) -> str:
        """Several events are of one time."""
        known = self._known.get(after_ns)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[after_ns] = _microseconds(after_ns)
        return known

    def _flush(self) -> None:
        if self._lines:
            self._write((("" if self._is_first else ",\n") + ",\n".join(self._lines)).encode("utf-8", "replace"))
            self._is_first = False
            self._lines.clear()


@lru_cache(maxsize=4096)
def _named(name: str, category: str) -> str:
    return f'"name":{json_text(name)},"cat":{json_text(category)}'


def _microseconds(after_ns: int) -> str:
    """With nanoseconds as long as a double has room for them: further on whole, so that what nests still does."""
    if after_ns >= _EXACT_NS:
        after_ns = _whole(after_ns)
    whole, rest = divmod(after_ns, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def _whole(after_ns: int) -> int:
    return (after_ns + 500) // 1000 * 1000
