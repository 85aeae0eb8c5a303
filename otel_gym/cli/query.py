"""``otel-gym query``: SQL over a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from otel_gym.cli.common import (
    DAMAGED,
    AsJson,
    CommandError,
    Directory,
    chosen_directory,
    console,
    early_leaving,
    print_json,
    print_lines,
    said_failures,
    say,
    stdin_chunks,
)
from otel_gym.cli.formats import UNKNOWN
from otel_gym.cli.tables import aligned, is_terminal
from otel_gym.cli.writing import not_written, tidied_when_ended
from otel_gym.content import printable
from otel_gym.views.json_lines import replacing

if TYPE_CHECKING:
    from otel_gym.store.repair import Damage
    from otel_gym.views.query import Query

STDOUT = Path("-")
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
# Of a table on a terminal; files, pipes and --json have everything.
TERMINAL_ROWS, TERMINAL_CHARACTERS = 1000, 200
_SAID_OF_DAMAGE = 20


def query(
    text: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL; - is read from stdin.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .jsonl, .csv or .parquet.  [default: a table, to stdout]",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also superseded attempts and executions that do not count.")
    ] = False,
    json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a header.")] = False,
    directory: Directory = None,
) -> None:
    """Ask a store in SQL: the views spans, model_calls, tools and rollouts.

    What is sealed is read where it lies, only the columns that are asked for; what is not is read first. The store is
    only read. `rollouts`, `model_calls` and `tools` hold what counts, `spans` holds all; docs/query.md has their
    columns. Needs the extra `query` (DuckDB).

    \b
    Example:
        otel-gym query "SELECT task_index, avg(reward) FROM rollouts GROUP BY ALL ORDER BY ALL"
        otel-gym query "FROM tools WHERE status = 'ERROR'" --json
        otel-gym query "SELECT * EXCLUDE (attributes) FROM model_calls" -o calls.parquet
    """
    with said_failures(), tidied_when_ended():
        _check_output(output, json, as_csv)
        from otel_gym.views.query import Query, QueryError  # pyarrow is slow to load

        select = _select(text)
        try:
            with Query(chosen_directory(directory), select, every=every) as answer:
                _give(answer, output, json, as_csv)
                damage = answer.damage
        except QueryError as problem:
            raise CommandError(str(problem)) from None
        _say_damage(damage)


def _select(text: str) -> str:
    """What the shell or stdin gave as bytes, as UTF-8."""
    given = b"".join(stdin_chunks()) if text == "-" else os.fsencode(text)
    try:
        return given.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"the SQL is no UTF-8 (byte 0x{given[error.start]:02x} at {error.start:,})") from None


def _check_output(output: Path | None, json: bool, as_csv: bool) -> None:
    if json and as_csv:
        raise CommandError("--json and --csv are two forms; give one")
    if output is not None and output != STDOUT and (json or as_csv):
        raise CommandError("a file's form follows from its name; leave --json and --csv out")
    if output is not None and output != STDOUT and output.suffix not in SUFFIXES:
        raise CommandError(f"{output}: no form is named so; name it .jsonl, .csv or .parquet")


def _give(answer: Query, output: Path | None, json: bool, as_csv: bool) -> None:
    if output is not None and output != STDOUT:
        _write(answer, output)
        return
    from otel_gym.views.query_rows import json_rows, print_csv

    with early_leaving():
        if json:
            print_json(json_rows(answer.columns, answer.rows()))
        elif as_csv:
            print_csv(answer.columns, answer.rows(), sys.stdout)
        elif is_terminal():
            _print_table(answer.columns, answer.rows())
        else:
            print_lines(aligned([printable(name) for name in answer.columns], _lines(answer.rows())))


def _write(answer: Query, output: Path) -> None:
    from otel_gym.views.query_rows import write_rows

    try:
        if output.suffix == ".parquet":
            with replacing(output) as temporary:
                answer.write_parquet(temporary)
        else:
            write_rows(answer.columns, answer.rows(), output)
    except OSError as error:
        raise not_written(output, error) from None


def _lines(rows: Iterator[Sequence[Any]]) -> Iterator[list[str]]:
    from otel_gym.views.query_rows import text_cell

    for row in rows:
        yield [printable(text_cell(value, UNKNOWN)) for value in row]


def _print_table(columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(Text(printable(name)), overflow="fold")
    for line in islice(_lines(rows), TERMINAL_ROWS):
        table.add_row(*(Text(_cut(cell)) for cell in line))
    console().print(table)
    if next(rows, None) is not None:
        say(f"only the first {TERMINAL_ROWS:,} rows are shown; -o FILE, --json and --csv give all")


def _cut(cell: str) -> str:
    return cell if len(cell) <= TERMINAL_CHARACTERS else f"{cell[: TERMINAL_CHARACTERS - 1]}…"


def _say_damage(damage: list[Damage]) -> None:
    said = list(dict.fromkeys(map(str, damage)))
    for text in said[:_SAID_OF_DAMAGE]:
        say(text)
    if len(said) > _SAID_OF_DAMAGE:
        say(f"and {len(said) - _SAID_OF_DAMAGE:,} more like these")
    if said:
        raise typer.Exit(DAMAGED)
