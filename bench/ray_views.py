"""What a span costs in a view: by one process, by several processes, and by Ray Data (examples/views_with_ray.py).

    python bench/ray_views.py [--spans N] [--workers N] [--rounds N]

The view is `export model-calls` as JSON lines, of the store that bench/parquet.py makes: spans of a coding agent, some
4 kB of JSON each, sealed. All arms write the same rows, which is checked. The several processes share the rollouts
among them, each reading its own from the store; Ray reads the parts, brings the rollouts together and maps over them.
Wall time counts, from the start of the process to its end, since starting is part of the price; what an arm takes
without it is told by a second, smaller store: the difference of both, for the difference of their spans. Ray needs
.venv-engines (`make engines`) and is left out without.
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_gym.store.compact import compact
from otel_gym.store.reader import open_store
from otel_gym.store.tables import group_of
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import Row, write_json_lines
from parquet import write_store
from table import Figure, print_table

ROOT = Path(__file__).resolve().parent.parent
RAY = ROOT / ".venv-engines" / "bin" / "python"
SHARES_OF_A_WORKER = 4
# A tenth of the spans, to know what starting costs.
SMALL = 10


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


def timed(command: list[object], output: Path) -> float:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], env=environment, capture_output=True, check=True)
    return time.perf_counter() - start


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
    sizes = {spans // SMALL: folder / "small", spans: folder / "large"}
    for number, store in sizes.items():
        write_store(store, number)
        compact(store, idle_s=0, remove=True)
    commands = arms(workers)
    seconds: dict[tuple[str, int], list[float]] = {}
    written: dict[str, list[bytes]] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            output = folder / "output"
            for number, store in sizes.items():
                seconds.setdefault((name, number), []).append(timed(command(store, output), output))
            written[name] = lines_of(output)
    yield Figure("spans", f"{spans:,} in {len(list((folder / 'large' / 'parquet').iterdir()))} part(s)")
    alone = statistics.median(seconds["one process", spans])
    for name in commands:
        whole = statistics.median(seconds[name, spans])
        per_span = (whole - statistics.median(seconds[name, spans // SMALL])) / (spans - spans // SMALL)
        start = max(0.0, whole - per_span * spans)
        value = f"{per_span * 1e6:.0f} us a span, {start:.1f} s to start; {whole / alone:.2f} x one process"
        yield Figure(f"model calls by {name}", value)
        if name != "one process":
            same = written[name] == written["one process"]
            yield Figure(f"{name}: the rows of one process", "yes" if same else "no", "yes", same)
    if not RAY.exists():
        yield Figure("model calls by Ray Data", "left out: `make engines` installs it")


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
