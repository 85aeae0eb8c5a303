"""Runs a per-rollout view over a sealed store with Ray Data: what `otel-gym` writes in one process, by many.

    pip install 'otel_gym[ray]'
    otel-gym compact --dir ./otel_gym_store
    python examples/views_with_ray.py model-calls ./otel_gym_store ./model_calls

The rows are those of `otel-gym export model-calls`, `trajectory`, `generations` or of `otel-gym ls --json`, in a file
a bucket of rollouts below the output folder, in no order. Exit code 0: all; 1: all but what is said on stderr; 2: it
could not be done, and what lies in the output folder is not whole.

With RAY_ADDRESS set it runs on that cluster: the store and the output folder must have the same path on every machine,
and otel_gym be installed there.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.exceptions

from otel_gym.store.layout import PARQUET
from otel_gym.store.parquet import PartError, damage_sealed, part_paths
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.tables import group_of, store_of_table, unsealed_files
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import Row, write_json_lines
from otel_gym.views.model_calls_export import write_parquet
from otel_gym.views.selection import selected_rollouts
from otel_gym.views.summary import summarize_rollout, superseded_marked
from otel_gym.views.trajectory_rows import generation_rows, trajectory_rows

# Of a bucket, as Arrow: a worker holds one, and about as much again for the rows that it makes.
BUCKET_BYTES = 64 * 1024 * 1024
DAMAGE_SAID = 20


def model_calls(store: Store) -> Iterator[Row]:
    return model_call_rows(counted_calls(selected_rollouts(store), LaterAttempts(store)))


def summaries(store: Store) -> Iterator[Row]:
    for summary in superseded_marked(map(summarize_rollout, selected_rollouts(store))):
        row = asdict(summary)
        del row["call_figures"]
        yield row


def counting(store: Store) -> Iterator[RolloutSpans]:
    return counting_rollouts(selected_rollouts(store), LaterAttempts(store), named=False)


VIEWS: dict[str, Callable[[Store], Iterator[Row]]] = {
    "model-calls": model_calls,
    "trajectory": lambda store: trajectory_rows(counting(store)),
    "generations": lambda store: generation_rows(counting(store)),
    "ls": summaries,
}


def with_bucket(spans: pa.Table, buckets: int) -> pa.Table:
    """A column that puts all attempts and runs of a rollout into one bucket, whatever parts their spans lie in."""
    ids = spans.column("rollout_id").to_pylist()
    numbers = {rollout_id: zlib.crc32(group_of(rollout_id).encode()) % buckets for rollout_id in set(ids)}
    return spans.append_column("bucket", pa.array([numbers[rollout_id] for rollout_id in ids], pa.int32()))


def write_bucket(spans: pa.Table, view: str, directory: Path, output: Path, form: str) -> pa.Table:
    """Writes the view of a bucket to a file of its own, whole or not at all; the row says what became of it."""
    store = store_of_table(spans, directory)
    path = output / f"{view}-{spans.column('bucket')[0].as_py():06}.{form}"
    write = write_parquet if form == "parquet" else write_json_lines
    rows = write(VIEWS[view](store), path)
    damage = [str(each) for each in store.damage]
    return pa.table({"spans": [len(spans)], "rows": [rows], "damage": pa.array([damage], pa.list_(pa.string()))})


def buckets_for(parts: list[Path]) -> int:
    footers = [pq.read_metadata(part) for part in parts]
    size = sum(
        footer.row_group(number).total_byte_size for footer in footers for number in range(footer.num_row_groups)
    )
    return max(2 * int(ray.available_resources().get("CPU", 1)), -(-size // BUCKET_BYTES))


def run(view: str, directory: Path, output: Path, form: str, parts: list[Path]) -> tuple[int, int, list[str]]:
    """How many spans were read and rows written, and what was damaged."""
    buckets = buckets_for(parts)
    unreadable = [str(part) for part in part_paths(directory) if part not in parts]
    done = (
        # By the folder: given files, Ray lists them in threads that stumble over each other's import of fsspec.
        ray.data.read_parquet(str(directory / PARQUET), skip_paths=unreadable or None, partitioning=None)
        .map_batches(partial(with_bucket, buckets=buckets), batch_format="pyarrow")
        .groupby("bucket", num_partitions=buckets)
        .map_groups(
            partial(write_bucket, view=view, directory=directory, output=output, form=form), batch_format="pyarrow"
        )
        .take_all()
    )
    damage = [problem for row in done for problem in row["damage"]]
    return sum(row["spans"] for row in done), sum(row["rows"] for row in done), damage


def readable_parts(directory: Path) -> tuple[list[Path], list[str]]:
    """The parts, and what is known before they are read: what they lack, and what is not in them yet."""
    parts, damage = [], []
    for part in part_paths(directory):
        try:
            damage += map(str, damage_sealed(part))
            parts.append(part)
        except PartError as error:
            damage.append(f"{error}; its spans are left out")
    unsealed = unsealed_files(directory)
    if unsealed:
        damage.append(f"{unsealed[0]} and others ({len(unsealed)} in all) hold what is not sealed; compact first")
    return parts, damage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("view", choices=list(VIEWS))
    parser.add_argument("store", type=Path, help="folder of the store")
    parser.add_argument("output", type=Path, help="folder that gets the files; it must not exist, or be empty")
    parser.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl", help="parquet: of model-calls alone")
    parser.add_argument("--cpus", type=int, metavar="N", help="cores of this machine to use; default: all")
    options = parser.parse_args()
    directory, output = options.store.absolute(), options.output.absolute()
    parts, damage = readable_parts(directory)
    if options.format == "parquet" and options.view != "model-calls":
        parser.error(f"--format parquet: {options.view} has no schema of its own; leave it out for jsonl")
    if not parts:
        parser.error(
            "\n".join([f"{directory}: it holds no parts; run `otel-gym compact --dir {options.store}`", *damage])
        )
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        parser.error(f"{output}: it holds files already, perhaps of another run; name another folder")
    output.mkdir(parents=True, exist_ok=True)
    ray.init(num_cpus=options.cpus, logging_level="ERROR")
    try:
        spans, rows, met = run(options.view, directory, output, options.format, parts)
    except ray.exceptions.RayError as error:
        print(f"{error}\n{output} is not whole; remove it and run this again", file=sys.stderr)
        return 2
    damage += met
    print(f"{rows:,} rows of {spans:,} spans written to {output}")
    for problem in damage[:DAMAGE_SAID]:
        print(problem, file=sys.stderr)
    if len(damage) > DAMAGE_SAID:
        print(f"and {len(damage) - DAMAGE_SAID} more", file=sys.stderr)
    return 1 if damage else 0


if __name__ == "__main__":
    sys.exit(main())
