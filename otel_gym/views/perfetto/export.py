"""Writes rollouts as one trace, a rollout at a time: as many as a store holds."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.json_lines import is_stream
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.flows import FlowIds
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.shapes import Process
from otel_gym.views.perfetto.timeline import Shown, processes_of

_DAY_NS = 24 * 60 * 60 * 10**9
# How much earlier than the first rollout another one may begin before the file is begun anew.
EARLIER_NS = 2 * _DAY_NS


def processes(
    rollouts: Iterable[RolloutSpans],
    shown: Shown,
    *,
    part: int = 0,
    first_run: tuple[str | None, ...] = (),
    is_superseded: Callable[[RolloutSpans], bool] = lambda rollout: False,
) -> Iterator[Process]:
    """Of several runs those other than the first are named: most traces are of one.

    ``part``: which part of a trace this is, whose arrows are not to be taken for those of another; ``first_run`` is
    the one that the whole trace begins with, where that is known.
    """
    flow_ids = FlowIds(part)
    for rollout in rollouts:
        first_run = first_run or (rollout.run_id,)
        names_run = rollout.run_id != first_run[0]
        yield from processes_of(rollout, shown, flow_ids, names_run=names_run, is_superseded=is_superseded(rollout))


def is_trace_name(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith((".pftrace", ".perfetto-trace", ".json"))


def is_json_name(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".json")


def write_trace(processes_again: Callable[[], Iterable[Process]], path: Path, name: str | None = None) -> int:
    """Writes a file; returns the number of processes. OSError.

    ``name`` (else that of ``path``) says how: ``.json`` in Chrome's format, else in Perfetto's own, ``.gz`` compressed.
    ``processes_again`` may be asked more than once: JSON has to know before the first event when the trace begins.
    """
    name = name or path.name
    if not is_json_name(name):
        with opened(path, name) as file:
            return write_processes(PftraceWriter(file.write), processes_again())
    base_ns: int | None = None
    if is_stream(path):
        base_ns = min((start for process in processes_again() if (start := process.start_ns()) is not None), default=0)
    while True:
        with opened(path, name) as file:
            try:
                return _write_json(file, processes_again(), base_ns)
            except StartsTooEarlyError as early:
                base_ns = early.start_ns - EARLIER_NS


def write_processes(writer: PftraceWriter | ChromeJsonWriter, made: Iterable[Process]) -> int:
    number = 0
    for process in made:
        writer.process(process)
        number += 1
    writer.end()
    return number


def _write_json(file: IO[bytes], made: Iterable[Process], base_ns: int | None) -> int:
    """``base_ns`` None: the beginning of the one process there is, else some time before the first of several."""
    all_of_them = iter(made)
    held = list(islice(all_of_them, 2))
    if base_ns is None:
        starts = [start for process in held if (start := process.start_ns()) is not None]
        base_ns = min(starts, default=0) - (EARLIER_NS if len(held) > 1 else 0)
    file.write(b"[\n")
    number = write_processes(ChromeJsonWriter(file.write, max(base_ns, 0)), _given(held, all_of_them))
    file.write(b"\n]\n")
    return number


def _given(held: list[Process], rest: Iterator[Process]) -> Iterator[Process]:
    while held:
        yield held.pop(0)
    yield from rest


@contextmanager
def opened(path: Path, name: str) -> Iterator[Any]:
    with path.open("wb") as file:
        if not name.lower().endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as compressed:
            yield compressed
