"""``otel-gym compact``: the sealed form, which SQL engines read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import (
    DAMAGED,
    CommandError,
    Directory,
    chosen_directory,
    early_leaving,
    named_folder,
    said_failures,
    say,
)
from otel_gym.cli.formats import counted
from otel_gym.cli.writing import without_collector
from otel_gym.store.reader import Store

if TYPE_CHECKING:
    from otel_gym.store.compact import Compaction

_SAID_OF_DAMAGE = 20


def compact(
    directory: Directory = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            parser=named_folder,
            metavar="DATASET",
            help="Another store: everything goes to its parts.",
            show_default=False,
        ),
    ] = None,
    by_rollout: Annotated[
        bool, typer.Option("--by-rollout", help="One file a rollout: to hand single ones on. Slower and larger.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete what stands, read back and checked, in Parquet.")
    ] = False,
    idle: Annotated[
        float,
        typer.Option(
            "--idle",
            metavar="SECONDS",
            help="Silence after which a writer on another host counts as ended.",
            min=0,
        ),
    ] = 3600,
) -> None:
    """Seal the spans of ended processes in Parquet files of many rollouts, DIR/parquet/part-*.parquet.

    Files of processes that may still run are left for the next time; compressed ones are left out, which is said. It
    may be killed at any moment and run again; each span stands in one part. docs/store.md gives the columns, and a
    query for DuckDB, polars, Spark, Ray and pyarrow.

    \b
    Example:
        otel-gym compact --dir ./otel_gym_store
        otel-gym compact --dir ./otel_gym_store --into /data/rollouts --remove
    """
    # pyarrow is slow to load
    from otel_gym.store.compact import LockedError, PartError
    from otel_gym.store.compact import compact as compact_store

    with said_failures():
        folder = chosen_directory(directory)
        if not any((folder / name).is_dir() for name in ("spans", "parquet")):
            Store(folder)  # says what is wrong with a folder that is no store
            raise CommandError(f"{folder}: nothing to seal, it has neither spans/ nor parquet/")
        try:
            if into is not None:
                check_store_folder(into, "--into")
            with without_collector():
                done = compact_store(folder, into=into, by_rollout=by_rollout, remove=remove, idle_s=idle)
        except (LockedError, PartError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"{error}; what was sealed before stays, run it again") from None
        with early_leaving():
            _print(done)
        for line in _damage_said(done):
            say(line)
        if done.damage or done.left_out:
            raise typer.Exit(DAMAGED)


def _print(done: Compaction) -> None:
    size = f", {done.bytes_read:,} → {done.bytes_written:,} bytes" if done.bytes_read else ""
    sealed = f"{counted(done.spans, 'span')} of {counted(done.rollouts, 'rollout')}"
    typer.echo(f"{sealed} in {counted(len(done.parts), 'new part')}{size}")
    if done.duplicates:
        typer.echo(f"spans that were written again, and count once: {done.duplicates:,}")
    if done.removed:
        typer.echo(f"{counted(done.removed, 'file')} deleted, of which Parquet holds all")
    for why, number in Counter(left.why for left in done.left).items():
        typer.echo(f"{counted(number, 'file')} left: {why}")


def _damage_said(done: Compaction) -> list[str]:
    damages = [str(damage) for damage in dict.fromkeys(done.damage)]
    more = len(damages) - _SAID_OF_DAMAGE
    said = [*damages[:_SAID_OF_DAMAGE], f"and {more:,} more like these"] if more > 0 else damages
    return [*_left_out_said(done), *said]


def _left_out_said(done: Compaction) -> list[str]:
    if not done.left_out:
        return []
    said = f"{counted(len(done.left_out), 'file')} left out (the first: {done.left_out[0]})"
    cure = "unpack what is compressed (gunzip, zstd -d --rm), name it .jsonl, run it again"
    return [f"{said}: only plain .jsonl files are sealed; {cure}"]
