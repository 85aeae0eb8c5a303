"""One trace of a large store, by several processes: each writes rollouts that follow on each other, to be joined."""

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
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import IO

from otel_gym.store.reader import Damage, RolloutSpans, Store, open_store
from otel_gym.store.starts import earliest_start
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.export import first_start, is_json_name, opened, processes, write_processes
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.timeline import Shown

# A process takes half a second to begin; fewer rollouts than these are sooner written by one.
_LEAST_ROLLOUTS = 1000
_PARTS_EACH = 4
# Each of them takes 75 MB, and 100 MB of a store of a hundred thousand rollouts.
_MOST_WORKERS = 2

# How much earlier still another rollout may begin, where one began before what was taken for the first.
_EARLIER_NS = 2 * 24 * 60 * 60 * 10**9

Runs = frozenset[str | None]


@dataclass(frozen=True, slots=True)
class _Part:
    """``base_ns``: where the times of a JSON trace begin; None for Perfetto's own format."""

    directory: Path
    rollout_ids: Sequence[str]
    runs: Runs | None
    first_run: str | None
    shown: Shown
    base_ns: int | None = None
    number: int = 0
    path: Path = Path()


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
    first = next(_counting(store, LaterAttempts(store), ids, runs), None)
    whole = _Part(store.directory, ids, runs, None if first is None else first.run_id, shown)
    starts = [] if first is None else [first.spans[0].start_ns]

    def base_ns() -> int:
        return first_start([*starts, earliest_start(store.directory, runs)])

    while True:
        try:
            with opened(path, name) as file:
                return _write_parts(whole, file, workers, steps, base_ns if is_json_name(name) else None)
        except StartsTooEarlyError as early:
            starts.append(early.start_ns - _EARLIER_NS)


def _write_parts(
    whole: _Part,
    file: IO[bytes],
    workers: int,
    steps: Callable[[Sequence[int]], Iterator[int]],
    base_ns: Callable[[], int] | None,
) -> tuple[int, list[Damage]]:
    """``base_ns`` tells where a JSON trace begins; it is asked while the processes start."""
    number, damage = 0, dict[Damage, None]()
    before, between, behind = (b"", b"", b"") if base_ns is None else (b"\n", b",\n", b"\n]\n")
    file.write(b"" if base_ns is None else b"[")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="otel_gym_trace_") as folder,
        ProcessPoolExecutor(workers, context, _end_with_parent, (Path(folder),)) as pool,
    ):
        waiting: list[Future[tuple[int, list[Damage]]]] = []
        try:
            with _beginning_processes():
                for _ in range(workers):
                    pool.submit(_open, whole.directory)
            if base_ns is not None:
                whole = replace(whole, base_ns=base_ns())
            parts = list(_parts_of(whole, workers * _PARTS_EACH, Path(folder)))
            with _beginning_processes():
                waiting += [pool.submit(_write_part, part) for part in parts]
            for place in steps(range(len(parts))):
                written, found = waiting[place].result()
                number += written
                damage |= dict.fromkeys(found)  # a process tells of all that it met in its parts so far
                with parts[place].path.open("rb") as part:
                    if parts[place].path.stat().st_size:
                        file.write(before)
                        before = between
                    shutil.copyfileobj(part, file, 1 << 20)
                parts[place].path.unlink()
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    file.write(behind)
    return number, list(damage)


def _parts_of(whole: _Part, most: int, folder: Path) -> Iterator[_Part]:
    size = -(-len(whole.rollout_ids) // most)
    for number, at in enumerate(range(0, len(whole.rollout_ids), size)):
        ids = whole.rollout_ids[at : at + size]
        yield replace(whole, rollout_ids=ids, number=number, path=folder / str(number))


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


def _end_with_parent(folder: Path) -> None:
    """Makes this process end, and take the parts with it, if its parent is killed: nobody else would tell it to."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_wait_for_end_of, args=(parent, folder), daemon=True).start()


def _wait_for_end_of(parent: BaseProcess, folder: Path) -> None:
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


@lru_cache(maxsize=1)
def _store_at(directory: Path) -> tuple[Store, LaterAttempts]:
    """Opened once in each process, whatever the number of its parts."""
    gc.disable()  # spans and slices are no cycles
    store = open_store(directory)
    return store, LaterAttempts(store)


def _open(directory: Path) -> None:
    """What each process begins with."""
    _store_at(directory)


def _write_part(part: _Part) -> tuple[int, list[Damage]]:
    store, attempts = _store_at(part.directory)
    counting = _counting(store, attempts, part.rollout_ids, part.runs)
    made = processes(counting, part.shown, part=part.number, first_run=(part.first_run,))
    with part.path.open("wb") as file:
        if part.base_ns is None:
            return write_processes(PftraceWriter(file.write, part.number), made), store.damage
        writer = ChromeJsonWriter(file.write, part.base_ns, part.number)
        return write_processes(writer, made), store.damage


def _counting(
    store: Store, attempts: LaterAttempts, rollout_ids: Sequence[str], runs: Runs | None
) -> Iterator[RolloutSpans]:
    selected = (
        rollout
        for rollout_id in rollout_ids
        for rollout in store.rollouts(rollout_id)
        if runs is None or rollout.run_id in runs
    )
    return counting_rollouts(selected, attempts, named=False)
