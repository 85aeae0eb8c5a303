"""``otel-gym export``: what a store holds, in the forms that others read."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import CommandError, Directory, Run, open_store, progress, reader
from otel_gym.store.reader import Store
from otel_gym.views.counting import CountingExecutions
from otel_gym.views.selection import selected_rollouts

app = typer.Typer(
    help="Write what a store holds in the forms that others read.", no_args_is_help=True, rich_markup_mode=None
)


class Format(StrEnum):
    jsonl = "jsonl"
    parquet = "parquet"


@app.callback()
def export() -> None:
    """Write what a store holds in the forms that others read."""


@app.command("model-calls")
@reader
def model_calls(
    rollouts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[[RUN/]ROLLOUT]...", help="Only these; default: all of the store.", show_default=False),
    ] = None,
    format: Annotated[
        Format, typer.Option("--format", help="parquet has one schema, nested values as JSON text.")
    ] = Format.jsonl,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write.  [default: stdout, for jsonl]", show_default=False),
    ] = None,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write the ModelCallRecords: one exchange with a model server each, retries included.

    A file appears under its name only when it is whole. What is already there is replaced.

    \b
    Example:
        otel-gym export model-calls --run latest -o model_calls.jsonl
        otel-gym export model-calls 2-0 | head -1
        otel-gym export model-calls --format parquet -o model_calls.parquet
    """
    if format is Format.parquet and output is None:
        raise CommandError("parquet is no text for a terminal; name a file with -o FILE.parquet")
    from otel_gym.views.model_calls_export import (
        FILE_WRITERS,
        model_call_rows,
        print_json_lines,
    )  # pyarrow is slow to load

    store = open_store(directory)
    addresses = rollouts or []
    with progress("exporting", len(addresses) or len(store.rollout_ids())) as advancing:
        counting = CountingExecutions(advancing(selected_rollouts(store, addresses, run)))
        rows = model_call_rows(counting)
        if output is None:
            print_json_lines(rows, sys.stdout)
            _say_left_out(counting.calls_left_out)
            return store
        try:
            number = FILE_WRITERS[format.value](rows, output)
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}; give another -o FILE") from None
    typer.echo(f"{number} model calls written to {output}", err=True)
    _say_left_out(counting.calls_left_out)
    return store


def _say_left_out(calls: int) -> None:
    if calls:
        text = "model calls left out: they are of executions that do not count (otel-gym show draws them)"
        typer.echo(f"otel-gym: {calls} {text}", err=True)
