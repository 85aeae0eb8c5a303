"""Writes rollouts as one trace, a rollout at a time: as many as a store holds."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.flows import FlowIds
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.shapes import Process
from otel_gym.views.perfetto.timeline import Shown, processes_of

_DAY_NS = 24 * 60 * 60 * 10**9
# How much earlier than the first rollout another one may begin before the file is begun anew.
_EARLIER_NS = 2 * _DAY_NS


def processes(rollouts: Iterable[RolloutSpans], shown: Shown) -> Iterator[Process]:
    """Of several runs those behind the first are named: most traces are of one."""
    flow_ids = FlowIds()
    runs: set[str | None] = set()
    for rollout in rollouts:
        runs.add(rollout.run_id)
        yield from processes_of(rollout, shown, flow_ids, names_run=len(runs) > 1)


def is_trace_name(name: str) -> bool:
    return name.removesuffix(".gz").endswith((".pftrace", ".json"))


def write_trace(processes_again: Callable[[], Iterable[Process]], path: Path, name: str | None = None) -> int:
    """Writes a file; returns the number of processes. OSError.

    ``name`` (else that of ``path``) says how: ``.json`` in Chrome's format, else in Perfetto's own, ``.gz`` compressed.
    ``processes_again`` may be asked more than once: JSON has to know before the first event when the trace begins.
    """
    name = name or path.name
    is_compressed = name.endswith(".gz")
    if not name.removesuffix(".gz").endswith(".json"):
        with _opened(path, is_compressed) as file:
            return _write(PftraceWriter(file.write), processes_again())
    base_ns: int | None = None
    while True:
        with _opened(path, is_compressed) as file:
            try:
                return _write_json(file, processes_again(), base_ns)
            except StartsTooEarlyError as early:
                base_ns = early.start_ns - _EARLIER_NS


def _write(writer: PftraceWriter | ChromeJsonWriter, made: Iterable[Process]) -> int:
    number = 0
    writer.begin()
    for process in made:
        writer.process(process)
        number += 1
    writer.end()
    return number


def _write_json(file: IO[bytes], made: Iterable[Process], base_ns: int | None) -> int:
    """``base_ns`` None: the beginning of the one process there is, else some time before the first of several."""
    all_of_them = iter(made)
    held = [process for _, process in zip(range(2), all_of_them, strict=False)]
    if base_ns is None:
        starts = [start for process in held if (start := process.start_ns()) is not None]
        base_ns = min(starts, default=0) - (_EARLIER_NS if len(held) > 1 else 0)
    return _write(ChromeJsonWriter(file.write, max(base_ns, 0)), _given(held, all_of_them))


def _given(held: list[Process], rest: Iterator[Process]) -> Iterator[Process]:
    while held:
        yield held.pop(0)
    yield from rest


@contextmanager
def _opened(path: Path, is_compressed: bool) -> Iterator[Any]:
    with path.open("wb") as file:
        if not is_compressed:
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as compressed:
            yield compressed
