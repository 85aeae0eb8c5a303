"""Writes rollouts as one trace, a rollout at a time: as many as a store holds."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.flows import FlowIds
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.shapes import Process
from otel_gym.views.perfetto.timeline import Shown, processes_of


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
    ``processes_again`` is asked twice where JSON holds several: before the first event it must know when they begin.
    """
    name = name or path.name
    if not is_json_name(name):
        with opened(path, name) as file:
            return write_processes(PftraceWriter(file.write), processes_again())
    while True:
        made = iter(processes_again())
        held = list(islice(made, 2))
        base_ns = first_start(map(_start, chain(held, made)))
        again = processes_again() if len(held) > 1 else held
        with suppress(StartsTooEarlyError), opened(path, name) as file:  # of one that was stored meanwhile
            file.write(b"[\n")
            number = write_processes(ChromeJsonWriter(file.write, base_ns), again)
            file.write(b"\n]\n")
            return number


def _start(process: Process) -> int | None:
    return process.start_ns()


def first_start(starts: Iterable[int | None]) -> int:
    """Where the times of a JSON trace begin."""
    return max(min((start for start in starts if start is not None), default=0), 0)


def write_processes(writer: PftraceWriter | ChromeJsonWriter, made: Iterable[Process]) -> int:
    number = 0
    for process in made:
        writer.process(process)
        number += 1
    writer.end()
    return number


@contextmanager
def opened(path: Path, name: str) -> Iterator[Any]:
    with path.open("wb") as file:
        if not name.lower().endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as compressed:
            yield compressed
