"""What a span costs in a view: by one process, by several processes, and by Ray Data (examples/views_with_ray.py).

    python bench/ray_views.py [--spans N] [--workers N] [--rounds N]

The view is `export model-calls` as JSON lines, of the store that bench/parquet.py makes: spans of a coding agent, some
4 kB of JSON each, sealed. All arms write the same rows, which is checked. The several processes share the rollouts
among them, each reading its own from the store; Ray reads the parts, brings the rollouts together and maps over them.
The cost is the processor time of every process that an arm starts, looked up in /proc five times a second, so that it
holds on a machine that does other work too; wall time stands beside it, with the load. What starting costs is told by a
store of one rollout. Ray needs .venv-engines (`make engines`) and is left out without.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from otel_gym.store.compact import compact
from otel_gym.store.parquet import part_paths
from otel_gym.store.reader import open_store
from otel_gym.store.tables import group_of
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import Row, write_json_lines
from parquet import SPANS_OF_A_ROLLOUT, write_store
from table import Figure, print_table

ROOT = Path(__file__).resolve().parent.parent
RAY = ROOT / ".venv-engines" / "bin" / "python"
SHARES_OF_A_WORKER = 4


def write_share(directory: Path, output: Path, rollout_ids: list[str]) -> None:
    """The model calls of these rollouts, as a file named by the first."""
    write_json_lines(_rows(directory, rollout_ids), output / f"{rollout_ids[0]}.jsonl")


def _rows(directory: Path, rollout_ids: list[str]) -> Iterator[Row]:
    store = open_store(directory)
    rollouts = (rollout for rollout_id in rollout_ids for rollout in store.rollouts(rollout_id))
    return model_call_rows(counted_calls(rollouts, LaterAttempts(store)))


def by_processes(directory: Path, output: Path, workers: int) -> None:
    """In the order of the parts, so that each row group is read by few."""
    rollout_ids = sorted(open_store(directory).rollout_ids(), key=lambda name: (group_of(name), name))
    size = -(-len(rollout_ids) // (workers * SHARES_OF_A_WORKER))
    shares = [(directory, output, rollout_ids[at : at + size]) for at in range(0, len(rollout_ids), size)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.starmap(write_share, shares, chunksize=1)


class Seconds(NamedTuple):
    cpu: float
    wall: float


class ProcessorTime(threading.Thread):
    """Of every process that has ``mark`` in its environment: Ray's daemons and workers are nobody's children."""

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self._mark = mark.encode()
        self._ticks: dict[str, int] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            self._look()

    def _look(self) -> None:
        for process in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                if process in self._ticks or self._mark in Path(f"/proc/{process}/environ").read_bytes():
                    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                    self._ticks[process] = int(fields[11]) + int(fields[12])

    def seconds(self) -> float:
        self._ended.set()
        self.join()
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def timed(command: list[object], output: Path) -> Seconds:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    mark = f"BENCH_ARM={time.monotonic_ns()}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "BENCH_ARM": mark[10:]}
    processors = ProcessorTime(mark)
    processors.start()
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], env=environment, capture_output=True, check=True)
    return Seconds(processors.seconds(), time.perf_counter() - start)


def arms(workers: int) -> dict[str, Callable[[Path, Path], list[object]]]:
    """Name → the command that writes the view of a store into a folder."""
    found: dict[str, Callable[[Path, Path], list[object]]] = {
        "one process": lambda store, output: [
            *(sys.executable, "-m", "otel_gym.cli", "export", "model-calls"),
            *("--dir", store, "-o", output / "all.jsonl"),
        ],
        f"{workers} processes": lambda store, output: [
            *(sys.executable, __file__, "--write", store, output, "--workers", workers)
        ],
    }
    if RAY.exists():
        script = ROOT / "examples" / "views_with_ray.py"
        found[f"Ray Data, {workers} workers"] = lambda store, output: [
            *(RAY, script, "model-calls", store, output, "--cpus", workers)
        ]
    return found


def lines_of(folder: Path) -> list[bytes]:
    return sorted(line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines())


def measure(folder: Path, spans: int, workers: int, rounds: int) -> Iterator[Figure]:
    one, many, output = folder / "one", folder / "many", folder / "output"
    for store, number in ((one, SPANS_OF_A_ROLLOUT), (many, spans)):
        write_store(store, number)
        compact(store, idle_s=0, remove=True)
    starting: dict[str, list[Seconds]] = {}
    whole: dict[str, list[Seconds]] = {}
    written: dict[str, list[bytes]] = {}
    for _ in range(rounds):
        for name, command in arms(workers).items():
            starting.setdefault(name, []).append(timed(command(one, output), output))
            whole.setdefault(name, []).append(timed(command(many, output), output))
            written[name] = lines_of(output)
    yield Figure("spans, parts", f"{spans:,} in {len(part_paths(many))}")
    yield Figure("cores, load of the machine", f"{os.cpu_count()}, {os.getloadavg()[0]:.1f}")
    alone = median(whole["one process"])
    for name in whole:
        start, seconds = median(starting[name]), median(whole[name])
        per_span = (seconds.cpu - start.cpu) / spans * 1e6
        yield Figure(f"{name}: processor time", f"{per_span:.0f} us a span, {start.cpu:.1f} s to start")
        yield Figure(f"{name}: wall", f"{seconds.wall:.1f} s, {seconds.wall / alone.wall:.2f} x one process")
        if name != "one process":
            same = written[name] == written["one process"]
            yield Figure(f"{name}: the rows of one process", "yes" if same else "no", "yes", same)
    if not RAY.exists():
        yield Figure("Ray Data", "left out: `make engines` installs it")


def median(rounds: list[Seconds]) -> Seconds:
    return Seconds(*map(statistics.median, zip(*rounds, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        by_processes(*options.write, options.workers)
        return 0
    with tempfile.TemporaryDirectory(prefix="otel_gym_ray_") as folder:
        return print_table(list(measure(Path(folder), options.spans, options.workers, options.rounds)))


if __name__ == "__main__":
    sys.exit(main())
