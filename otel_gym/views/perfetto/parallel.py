"""One trace of a large store, by several processes: each writes rollouts that follow on each other, to be joined."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from otel_gym.store.reader import Damage, RolloutSpans, Store, open_store
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.perfetto.chrome_json import ChromeJsonWriter, StartsTooEarlyError
from otel_gym.views.perfetto.export import EARLIER_NS, is_json_name, opened, processes, write_processes
from otel_gym.views.perfetto.pftrace import PftraceWriter
from otel_gym.views.perfetto.timeline import Shown

# A process takes half a second to begin; fewer rollouts than these are sooner written by one.
_LEAST_ROLLOUTS = 1000
_PARTS_EACH = 4
# Each of them takes 75 MB, and 100 MB of a store of a hundred thousand rollouts.
_MOST_WORKERS = 2

Runs = frozenset[str | None]


@dataclass(frozen=True, slots=True)
class _Part:
    directory: Path
    rollout_ids: Sequence[str]
    runs: Runs | None
    first_run: str | None
    shown: Shown
    number: int
    path: Path
    base_ns: int | None


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
    first = next(_counting(store, store.rollout_ids(), runs), None)
    base_ns = None if first is None or not is_json_name(name) else first.spans[0].start_ns - EARLIER_NS
    run_id = None if first is None else first.run_id
    while True:
        try:
            with opened(path, name) as file:
                return _write_parts(store, file, name, shown, workers, runs, run_id, base_ns, steps)
        except StartsTooEarlyError as early:
            base_ns = early.start_ns - EARLIER_NS


def _write_parts(
    store: Store,
    file: IO[bytes],
    name: str,
    shown: Shown,
    workers: int,
    runs: Runs | None,
    first_run: str | None,
    base_ns: int | None,
    steps: Callable[[Sequence[int]], Iterator[int]],
) -> tuple[int, list[Damage]]:
    ids = store.rollout_ids()
    size = -(-len(ids) // (workers * _PARTS_EACH))
    starts = range(0, len(ids), size)
    number, damage, has_events = 0, list[Damage](), False
    is_json = is_json_name(name)
    file.write(b"[" if is_json else b"")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="otel_gym_trace_") as folder,
        ProcessPoolExecutor(workers, mp_context=context) as pool,
    ):
        parts = [
            _Part(
                store.directory, ids[at : at + size], runs, first_run, shown, place, Path(folder, str(place)), base_ns
            )
            for place, at in enumerate(starts)
        ]
        waiting: list[Future[tuple[int, list[Damage]]]] = []
        try:
            with _ignoring_interrupts():
                waiting += [pool.submit(_write_part, part) for part in parts]
            for place in steps(range(len(parts))):
                written, found = waiting[place].result()
                number += written
                damage += found
                if is_json and parts[place].path.stat().st_size:
                    file.write(b",\n" if has_events else b"\n")
                    has_events = True
                with parts[place].path.open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
                parts[place].path.unlink()
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    file.write(b"\n]\n" if is_json else b"")
    return number, damage


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


def _write_part(part: _Part) -> tuple[int, list[Damage]]:
    gc.disable()  # spans and slices are no cycles
    store = open_store(part.directory)
    made = processes(
        _counting(store, part.rollout_ids, part.runs), part.shown, part=part.number, first_run=(part.first_run,)
    )
    with part.path.open("wb") as file:
        if part.base_ns is None:
            return write_processes(PftraceWriter(file.write, part.number), made), store.damage
        writer = ChromeJsonWriter(file.write, max(part.base_ns, 0), part.number)
        return write_processes(writer, made), store.damage


def _counting(store: Store, rollout_ids: Sequence[str], runs: Runs | None) -> Iterator[RolloutSpans]:
    selected = (
        rollout
        for rollout_id in rollout_ids
        for rollout in store.rollouts(rollout_id)
        if runs is None or rollout.run_id in runs
    )
    return counting_rollouts(selected, LaterAttempts(store), named=False)
