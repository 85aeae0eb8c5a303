"""Chrome's JSON trace events: a list with one event a line, so that a file that was cut off can still be read.

Times are microseconds from the beginning of the trace, with three decimals: from 1970 they would be rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from otel_gym.content import safe_json
from otel_gym.views.perfetto.shapes import Args, Counter, Instant, Process, Slice, Track

_FIRST_TID = 1_000_000  # a thread with the number of its process would be taken for its main thread
_ESCAPED = re.compile(r"[\x00-\x1f\\]")
_FLOW = {"name": "flow", "cat": "flow", "bp": "e"}


class StartsTooEarlyError(Exception):
    """A process begins before the trace does; ``start_ns`` is when."""

    def __init__(self, start_ns: int) -> None:
        super().__init__(start_ns)
        self.start_ns = start_ns


class ChromeJsonWriter:
    """``write`` takes the bytes of a file, in order; ``base_ns`` is where its times begin."""

    def __init__(self, write: Callable[[bytes], Any], base_ns: int) -> None:
        self._write = write
        self._base_ns = base_ns
        self._tids = _FIRST_TID
        self._pid = 0
        self._lines: list[bytes] = []
        self._is_first = True

    def begin(self) -> None:
        self._write(b"[")

    def end(self) -> None:
        self._flush()
        self._write(b"\n]\n")

    def process(self, process: Process) -> None:
        """StartsTooEarlyError before anything of it is written."""
        start_ns = process.start_ns()
        if start_ns is not None and start_ns < self._base_ns:
            raise StartsTooEarlyError(start_ns)
        self._pid += 1
        self._about("process_name", {"name": process.name}, 0)
        self._about("process_sort_index", {"sort_index": self._pid}, 0)
        self._tracks(process.tracks, "")
        self._flush()

    def _tracks(self, tracks: list[Track], prefix: str) -> None:
        for track in tracks:
            self._tracks(track.tracks, f"{prefix}{track.name}: ")
            for lane in track.lanes:
                self._tids += 1
                self._about("thread_name", {"name": prefix + track.name}, self._tids)
                self._about("thread_sort_index", {"sort_index": self._tids}, self._tids)
                for each in lane:
                    self._slice(each, None) if isinstance(each, Slice) else self._instant(each)
            for counter in track.counters:
                self._counter(counter, prefix)

    def _slice(self, made: Slice, parent: Slice | None) -> None:
        start_ns, end_ns = made.start_ns, made.end_ns
        unit_ns = 1 if start_ns - self._base_ns < _EXACT_NS else 1000
        if parent is not None and start_ns == parent.start_ns and end_ns > start_ns + unit_ns:
            start_ns += unit_ns  # else an arrow at the parent's begin would be taken for its own
        start, end = self._microseconds(start_ns), self._microseconds(end_ns)
        event = {
            "ph": "X",
            "name": made.name,
            "cat": made.category,
            "ts": start,
            "dur": (end_ns - start_ns) / 1000 if type(start) is float else end - start,
            "pid": self._pid,
            "tid": self._tids,
            "args": made.args,
        }
        if made.is_error:
            event["cname"] = "terrible"
        self._event(event)
        for flow in made.flows_out:
            self._flow("s", flow, start_ns)
        for flow in made.flows_in:
            self._flow("f", flow, start_ns)
        for child in made.children:
            self._slice(child, made) if isinstance(child, Slice) else self._instant(child)

    def _flow(self, phase: str, flow: int, time_ns: int) -> None:
        self._event(
            {"ph": phase, "id": flow, "ts": self._microseconds(time_ns), "pid": self._pid, "tid": self._tids} | _FLOW
        )

    def _instant(self, made: Instant) -> None:
        self._event(
            {
                "ph": "i",
                "s": "t",
                "name": made.name,
                "cat": made.category,
                "ts": self._microseconds(made.time_ns),
                "pid": self._pid,
                "tid": self._tids,
                "args": made.args,
            }
        )

    def _counter(self, counter: Counter, prefix: str) -> None:
        for time_ns, value in counter.points:
            self._event(
                {
                    "ph": "C",
                    "name": prefix + counter.name,
                    "ts": self._microseconds(time_ns),
                    "pid": self._pid,
                    "args": {"value": value},
                }
            )

    def _about(self, what: str, args: Args, tid: int) -> None:
        self._event({"ph": "M", "name": what, "pid": self._pid, "tid": tid, "args": args})

    def _microseconds(self, time_ns: int) -> float:
        """With nanoseconds as long as a double has room for them: further on whole, so that what nests still does."""
        after_ns = time_ns - self._base_ns
        return after_ns / 1000 if after_ns < _EXACT_NS else round(after_ns / 1000)

    def _event(self, event: dict[str, Any]) -> None:
        try:
            line = orjson.dumps(event)
        except TypeError:  # an integer beyond 64 bits
            line = safe_json(event).encode()
        if b"\\" in line:
            event["args"] = {name: _readable(value) for name, value in event["args"].items()}
            line = orjson.dumps(event)
        self._lines.append(line)
        if len(self._lines) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._write((b"\n" if self._is_first else b",\n") + b",\n".join(self._lines))
            self._is_first = False
            self._lines.clear()


_BATCH = 1024
# 52 days; a double of as many microseconds still tells apart what is a nanosecond apart.
_EXACT_NS = 2**52


def _readable(value: Any) -> Any:
    """Perfetto decodes escapes only in a text that holds a quotation mark: one that has none is put between two."""
    if isinstance(value, str):
        return f'"{value}"' if '"' not in value and _ESCAPED.search(value) else value
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return value
