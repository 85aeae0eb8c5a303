"""Whether the engine shows of a trace what was to be shown: each slice with its times, within the right one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from otel_gym.views.perfetto.export import first_start
from otel_gym.views.perfetto.shapes import Instant, Process, Slice, Track
from trace_engine import Engine

SLICES = """
    select s.name, s.ts, s.dur, p.name as parent, p.ts as parent_ts
    from slice s left join slice p on s.parent_id = p.id
"""
ARROWS = """
    select source.name as source, target.name as target
    from flow join slice source on source.id = flow.slice_out join slice target on target.id = flow.slice_in
"""


@dataclass(slots=True, order=True)
class Shown:
    name: str
    ts: int
    dur: int
    parent: str
    parent_ts: int


def expected(processes: Iterable[Process]) -> list[Shown]:
    return sorted(shown for process in processes for track in process.tracks for shown in _of_track(track))


def _of_track(track: Track) -> Iterator[Shown]:
    for lane in track.lanes:
        for each in lane:
            yield from _of(each, None)
    for below in track.tracks:
        yield from _of_track(below)


def _of(each: Slice | Instant, parent: Slice | None) -> Iterator[Shown]:
    above = ("", 0) if parent is None else (parent.name, parent.start_ns)
    if isinstance(each, Instant):
        yield Shown(each.name, each.time_ns, 0, *above)
        return
    yield Shown(each.name, each.start_ns, each.end_ns - each.start_ns, *above)
    for child in each.children:
        yield from _of(child, each)


def arrows(processes: Iterable[Process]) -> list[tuple[str, str]]:
    """Names of the two ends of each."""
    ends: dict[int, list[str]] = {}
    for side in ("flows_out", "flows_in"):
        for made in (made for process in processes for track in process.tracks for made in _slices(track)):
            for flow in getattr(made, side):
                ends.setdefault(flow, []).append(made.name)
    return sorted((source, target) for source, target in ends.values())


def _slices(track: Track) -> Iterator[Slice]:
    waiting: list[Any] = [each for lane in track.lanes for each in lane]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Slice):
            yield each
            waiting += each.children
    for below in track.tracks:
        yield from _slices(below)


def points(processes: Iterable[Process]) -> int:
    def of(tracks: list[Track]) -> int:
        return sum(len(counter.points) for track in tracks for counter in track.counters) + sum(
            of(track.tracks) for track in tracks
        )

    return sum(of(process.tracks) for process in processes)


def differences(engine: Engine, processes: list[Process], *, exact: bool) -> list[str]:
    """``exact``: to the nanosecond, as Perfetto's own format; else times count from the first that is known, where
    also stands what is of no known time, and are a nanosecond off where an arrow begins. Of a JSON trace of months they
    are whole microseconds.
    """
    problems = engine.problems()
    wanted = expected(processes)
    lasts_months = bool(wanted) and max(wanted, key=_ts).ts - min(wanted, key=_ts).ts > _EXACT_NS
    allowed = 0 if exact else 2000 if lasts_months else 2
    found = sorted(
        Shown(row["name"], row["ts"], row["dur"], row["parent"] or "", row["parent_ts"] or 0)
        for row in engine.query(SLICES)
    )
    if len(wanted) != len(found):
        return [*problems, f"{len(found)} slices in place of {len(wanted)}"]
    if not exact and wanted:
        base = first_start(process.start_ns() for process in processes)
        for shown in wanted:
            shown.ts = max(shown.ts - base, 0)
            shown.parent_ts = max(shown.parent_ts - base, 0) if shown.parent else 0
        wanted.sort(key=_rounded)
        found.sort(key=_rounded)
    problems += [problem for pair in zip(wanted, found, strict=True) for problem in _differing(*pair, allowed)]
    wanted_arrows = arrows(processes)
    found_arrows = sorted((row["source"], row["target"]) for row in engine.query(ARROWS))
    if wanted_arrows != found_arrows:
        problems.append(f"arrows {found_arrows[:5]} in place of {wanted_arrows[:5]}")
    told = engine.query("select count(*) as n from counter")[0]["n"]
    if told != points(processes):
        problems.append(f"{told} values of counters in place of {points(processes)}")
    return problems


_EXACT_NS = 49 * 24 * 3600 * 10**9


def _ts(shown: Shown) -> int:
    return shown.ts


def _rounded(shown: Shown) -> tuple[str, int, int, str]:
    """The same order for times that are a nanosecond off."""
    return shown.name, (shown.ts + 8) // 16, shown.ts, shown.parent


def _differing(wanted: Shown, found: Shown, allowed: int) -> Iterator[str]:
    off = max(abs(wanted.ts - found.ts), abs(wanted.dur - found.dur))
    if wanted.name != found.name or off > allowed:
        yield f"{found} in place of {wanted}"
    elif (wanted.dur or not allowed) and (
        wanted.parent != found.parent or abs(wanted.parent_ts - found.parent_ts) > allowed
    ):
        yield f"{found.name} within {found.parent!r} in place of {wanted.parent!r}"
