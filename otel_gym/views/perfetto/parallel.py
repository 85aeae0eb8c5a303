"""One trace of a large store, by several processes: each writes rollouts that follow on each other, to be joined.

This process is one of them. It writes into the trace from its beginning on, the others write parts of its end; where
they meet, what they wrote is put behind.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from otel_gym.store.plain_reader import PlainReader
from otel_gym.store.reader import Damage, RolloutSpans, Store
from otel_gym.store.starts import earliest_start
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.export import first_start, is_json_name, opened, processes, write_processes
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.timeline import Shown

# A process takes a third of a second to begin; fewer rollouts than these are sooner written by one.
_LEAST_ROLLOUTS = 1000
# Of so many the last ones are waited for: two at most, which a process has begun and has next.
_PARTS_EACH = 12
# Each of them takes 75 MB, and 100 MB of a store of a hundred thousand rollouts.
_MOST_WORKERS = 2
_COPIED_BYTES = 1 << 20

# How much earlier still another rollout may begin, where one began before what was taken for the first.
_EARLIER_NS = 2 * 24 * 60 * 60 * 10**9

Runs = frozenset[str | None]


@dataclass(frozen=True, slots=True)
class _Part:
    """``base_ns``: where the times of a JSON trace begin; None for Perfetto's own format."""

    rollout_ids: Sequence[str]
    runs: Runs | None
    first_run: str | None
    shown: Shown
    base_ns: int | None = None
    number: int = 0


def workers_for(store: Store) -> int:
    """How many processes its trace is worth; 1: this one."""
    if not store.has_rollouts_apart or len(store.rollout_ids()) < _LEAST_ROLLOUTS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


def write_trace_of_store(
    store: Store,
    path: Path,
    name: str,
    shown: Shown,
    workers: int,
    runs: Runs | None = None,
    steps: Callable[[Sequence[int]], Iterator[int]] = iter,
) -> tuple[int, list[Damage]]:
    """What counts in the store, of these runs only if given; returns the number of processes and the damage. OSError.

    ``steps`` is what the numbers of the parts are drawn through.
    """
    ids = store.rollout_ids()
    starts: list[int] = []

    def base_ns(first: RolloutSpans | None) -> int:
        began = [] if first is None else [first.spans[0].start_ns]
        return first_start([*starts, *began, earliest_start(store.directory, runs)])

    with _Reading(store.directory, ids) as reading:
        while True:
            try:
                with opened(path, name) as file, _others(store.directory, ids, workers - 1) as others:
                    first = next(reading.counting(ids, runs), None)
                    begin = base_ns(first) if is_json_name(name) else None
                    whole = _Part(ids, runs, None if first is None else first.run_id, shown, begin)
                    return _write_parts(whole, _Joined(file, begin is not None), reading, others, steps)
            except StartsTooEarlyError as early:
                starts.append(early.start_ns - _EARLIER_NS)


def _write_parts(
    whole: _Part, joined: _Joined, reading: _Reading, others: _Others, steps: Callable[[Sequence[int]], Iterator[int]]
) -> tuple[int, list[Damage]]:
    number, damage = 0, dict[Damage, None]()
    parts = list(_parts_of(whole, _PARTS_EACH * (others.number + 1)))
    with _beginning_processes():
        waiting = [others.submit(part) for part in reversed(parts)][::-1]
    for place in steps(range(len(parts))):
        joined.begin_part()
        if waiting[place].cancel():
            number += reading.write(parts[place], joined.write)
            continue
        written, found, path = waiting[place].result()
        number += written
        damage |= dict.fromkeys(found)  # a process tells of all that it met in its parts so far
        joined.copy(path)
    joined.end()
    return number, list(damage | dict.fromkeys(reading.damage))


def _parts_of(whole: _Part, most: int) -> Iterator[_Part]:
    size = -(-len(whole.rollout_ids) // most)
    for number, at in enumerate(range(0, len(whole.rollout_ids), size)):
        yield replace(whole, rollout_ids=whole.rollout_ids[at : at + size], number=number)


class _Joined:
    """A trace, as parts are written into it one behind the other; some of them may be empty."""

    def __init__(self, file: IO[bytes], is_json: bool) -> None:
        self._file = file
        self._before, self._between, self._behind = (b"[\n", b",\n", b"\n]\n") if is_json else (b"", b"", b"")
        self._is_empty = self._has_begun = True

    def begin_part(self) -> None:
        self._has_begun = False

    def write(self, content: bytes) -> None:
        if content and not self._has_begun:
            self._file.write(self._before if self._is_empty else self._between)
            self._is_empty, self._has_begun = False, True
        self._file.write(content)

    def copy(self, path: Path) -> None:
        with path.open("rb") as part:
            while content := part.read(_COPIED_BYTES):
                self.write(content)
        path.unlink()

    def end(self) -> None:
        self._file.write(self._before * self._is_empty + self._behind)


class _Reading:
    """A store as one process reads it for its parts."""

    def __init__(self, directory: Path, rollout_ids: Sequence[str]) -> None:
        self._store = PlainReader(directory)
        self._attempts = LaterAttempts(self._store, rollout_ids)
        self._collected = gc.isenabled()

    def __enter__(self) -> _Reading:
        gc.disable()  # spans and slices are no cycles
        return self

    def __exit__(self, *_: object) -> None:
        if self._collected:
            gc.enable()

    @property
    def damage(self) -> list[Damage]:
        return self._store.damage

    def counting(self, rollout_ids: Sequence[str], runs: Runs | None) -> Iterator[RolloutSpans]:
        selected = (
            rollout
            for rollout_id in rollout_ids
            for rollout in self._store.rollouts(rollout_id)
            if runs is None or rollout.run_id in runs
        )
        return counting_rollouts(selected, self._attempts, named=False)

    def write(self, part: _Part, write: Callable[[bytes], Any]) -> int:
        """Returns the number of processes."""
        counting = self.counting(part.rollout_ids, part.runs)
        made = processes(counting, part.shown, part=part.number, first_run=(part.first_run,))
        if part.base_ns is None:
            return write_processes(PftraceWriter(write, part.number), made)
        return write_processes(ChromeJsonWriter(write, part.base_ns, part.number), made)


_Written = tuple[int, list[Damage], Path]


class _Others:
    """The other processes, which write parts into files of ``folder``."""

    def __init__(self, pool: ProcessPoolExecutor, number: int) -> None:
        self._pool = pool
        self.number = number

    def submit(self, part: _Part) -> Future[_Written]:
        return self._pool.submit(_write_part, part)


@contextmanager
def _others(directory: Path, rollout_ids: Sequence[str], number: int) -> Iterator[_Others]:
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="otel_gym_trace_") as folder,
        ProcessPoolExecutor(number, context, _begin, (directory, rollout_ids, Path(folder))) as pool,
    ):
        try:
            with _beginning_processes():
                for _ in range(number):
                    pool.submit(_is_there)
            yield _Others(pool, number)
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _beginning_processes() -> Iterator[None]:
    """Each would run the program's main module again, and load what a command line needs and it does not."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with _ignoring_interrupts():
            yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes that begin here ignore Ctrl-C, which ends them by this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@dataclass(frozen=True, slots=True)
class _Here:
    """What a process that writes parts was begun with."""

    reading: _Reading
    folder: Path


_here: _Here


def _begin(directory: Path, rollout_ids: Sequence[str], folder: Path) -> None:
    """Makes this process end, and take the parts with it, if its parent is killed: nobody else would tell it to."""
    global _here
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_wait_for_end_of, args=(parent, folder), daemon=True).start()
    _here = _Here(_Reading(directory, rollout_ids).__enter__(), folder)


def _is_there() -> None:
    """What each process begins with."""


def _wait_for_end_of(parent: BaseProcess, folder: Path) -> None:
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _write_part(part: _Part) -> _Written:
    path = _here.folder / str(part.number)
    with path.open("wb") as file:
        return _here.reading.write(part, file.write), _here.reading.damage, path
