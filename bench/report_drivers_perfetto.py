"""Drivers of fault reports on traces: spans with a name and two times, shown in Chrome's JSON."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.timeline import Shown
from report_bench import Bench
from report_problems import Object, unequal_of_known

_KEYS = {"name", "start_ns", "end_ns", "id", "parent"}
_EPS_US = 0.0015


def has_plain_spans(folder: Path) -> bool:
    """``spans.json``: a list of objects that have a name and times alone."""
    path = folder / "spans.json"
    if not path.is_file():
        return False
    spans = json.loads(path.read_bytes())
    return isinstance(spans, list) and all(
        isinstance(span, dict) and {"name", "start_ns"} <= span.keys() <= _KEYS for span in spans
    )


def drive_plain_spans(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    told = json.loads((folder / "spans.json").read_bytes())
    ids = {span.get("id", str(number)): f"{number + 1:016x}" for number, span in enumerate(told)}
    spans = [
        StoredSpan(
            "1" * 32,
            ids[span.get("id", str(number))],
            ids.get(span.get("parent", "")),
            span["name"],
            1,
            span["start_ns"],
            span.get("end_ns"),
        )
        for number, span in enumerate(told)
    ]
    rollout = RolloutSpans(None, "0-0", spans)
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace.json"
        write_trace(lambda: processes([rollout], Shown()), trace)
        events = json.loads(trace.read_bytes())
    shown = [event for event in events if event["ph"] == "X"]
    durations = {event["name"]: event["dur"] for event in shown}
    lanes = {event["tid"] for event in shown}
    ours: Object = {
        "slices": len(shown),
        "visible_events": len({(event["tid"], event["ts"], event["name"]) for event in shown}),
        "no_partial_overlap_per_tid": not any(_overlaps(shown)),
        # None are async: each overlapping span has a track of its own.
        "distinct_async_ids": len(lanes),
        "begin_without_end": sum({"B": 1, "E": -1}.get(event["ph"], 0) for event in events),
        "unfinished": [event["name"] for event in shown if event["args"].get("unfinished")],
    }
    if len(shown) == 1:
        ours["dur"] = shown[0]["dur"]
    wanted_us = expected.get("dur_us")
    if isinstance(wanted_us, dict):
        ours["dur_us"] = {name: durations.get(name) for name in wanted_us}
    elif wanted_us is not None:
        ours["dur_us"] = [event["dur"] for event in shown]
    if "lanes_min" in expected:
        ours["lanes_min"] = min(len(lanes), expected["lanes_min"])
    if shown[0]["ts"] != 0:
        yield f"the first event is at {shown[0]['ts']} us of the trace"
    yield from unequal_of_known(ours, expected)


def _overlaps(shown: list[Object]) -> Iterator[bool]:
    """Whether two slices of a lane overlap without one within the other."""
    lanes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in shown:
        lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for intervals in lanes.values():
        for (_, end), (begin, other_end) in pairwise(sorted(intervals, key=lambda times: (times[0], -times[1]))):
            yield begin < end - _EPS_US and other_end > end + _EPS_US
