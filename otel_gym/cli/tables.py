"""How summaries look as tables; the same tables for `ls`, `stats` and the demo.

On a terminal rich draws them, as wide as it is. Elsewhere rows are plain aligned text, and go out as they come.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from otel_gym.cli.formats import UNKNOWN, count, counted, milliseconds, number, share, utc
from otel_gym.content import printable
from otel_gym.store.executions import UNFINISHED
from otel_gym.views.summary import RolloutSummary, RunStatistics

STATUS_STYLES = {"ok": "green", "error": "red", UNFINISHED: "yellow"}
# A terminal below this leaves out what can best be missed.
WIDE = 100
# How long plain text waits for rows by whose widths it aligns the columns.
GATHER_S = 0.2


def rollout_status(row: RolloutSummary) -> Text:
    text = Text(row.status or UNKNOWN, STATUS_STYLES.get(row.status or "", ""))
    if row.superseded_by is not None:
        text.append(f", superseded by {printable(row.superseded_by)}", "dim")
    if row.executions > 1:
        text.append(f", newest of {row.executions} executions", "dim")
    if row.unfinished_calls:
        text.append(f", {counted(row.unfinished_calls, 'call')} unfinished", "yellow")
    elif row.unfinished and row.status != UNFINISHED:
        text.append(f", {counted(row.unfinished, 'span')} unfinished", "yellow")
    if row.ambiguous:
        text.append(f", {counted(row.ambiguous, 'span')} of no certain execution", "yellow")
    if row.run_is_ambiguous:
        text.append(", of no certain run", "yellow")
    return text


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    justify: Literal["left", "right"]
    cell: Callable[[RolloutSummary], str | Text]
    wide_only: bool = False


ROLLOUT_COLUMNS = (
    Column("run", "left", lambda row: Text(printable(row.run_id or UNKNOWN))),
    Column("rollout", "left", lambda row: Text(printable(row.rollout_id))),
    Column("calls", "right", lambda row: count(row.calls)),
    Column("tokens in", "right", lambda row: count(row.tokens_in)),
    Column("cached", "right", lambda row: count(row.cached_tokens), wide_only=True),
    Column("tokens out", "right", lambda row: count(row.tokens_out)),
    Column("errors", "right", lambda row: Text(count(row.errors), "red" if row.errors else "")),
    Column("started", "left", lambda row: UNKNOWN if row.started_at is None else utc(row.started_at), wide_only=True),
    Column("duration", "right", lambda row: milliseconds(row.duration_ms)),
    Column("reward", "right", lambda row: number(row.reward)),
    Column("status", "left", rollout_status),
)


def rollout_table(rows: Sequence[RolloutSummary], width: int) -> Table:
    """For a terminal of that width; a run that all rows share stands above them."""
    runs = {row.run_id for row in rows}
    columns = [column for column in ROLLOUT_COLUMNS if width >= WIDE or not column.wide_only]
    table = _table()
    if len(runs) == 1:
        columns = columns[1:]
        table.title, table.title_justify = Text(f"run {printable(next(iter(runs)) or UNKNOWN)}"), "left"
    for column in columns:
        table.add_column(column.name, justify=column.justify, overflow="fold", no_wrap=_is_short(column.name))
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    return table


def _is_short(column: str) -> bool:
    return column not in ("run", "rollout", "status")


def rollout_lines(rows: Iterable[RolloutSummary]) -> Iterator[str]:
    """The same as plain text, whole and unstyled."""
    cells = ([str(column.cell(row)) for column in ROLLOUT_COLUMNS] for row in rows)
    header = [column.name for column in ROLLOUT_COLUMNS]
    return aligned(header, cells, right={column.name for column in ROLLOUT_COLUMNS if column.justify == "right"})


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> Iterator[str]:
    """A line a row, columns as wide as those of the first rows need; nothing at the ends of lines.

    Later rows that are wider are written whole, out of line, so that a reader of the first rows need not wait.
    """
    rows = iter(rows)
    first = [header, *_soon(rows)]
    widths = [max(map(len, cells)) for cells in zip(*first, strict=True)]
    is_right = [name in set(right) for name in header]
    for row in chain(first, rows):
        cells = zip(row, widths, is_right, strict=True)
        yield "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in cells
        ).rstrip()


def _soon(rows: Iterator[Sequence[str]]) -> Iterator[Sequence[str]]:
    end = time.monotonic() + GATHER_S
    for row in rows:
        yield row
        if time.monotonic() > end:
            return


def calls_said(counting: int, superseded: int, unfinished: int) -> str:
    said = f"{counting:,} that count + {superseded:,} superseded" if superseded else f"{counting:,}"
    return f"{said} ({unfinished:,} unfinished)" if unfinished else said


def footer(rows: Sequence[RolloutSummary], counts: Mapping[str, int]) -> str:
    """Totals over what counts, and what is not in the table."""
    counting = [row for row in rows if row.counts]
    calls = calls_said(
        sum(row.calls for row in counting),
        sum(row.superseded_calls for row in rows),
        sum(row.unfinished_calls for row in counting),
    )
    parts = [f"rollouts: {len(counting):,}", f"calls: {calls}"]
    superseded = sum(row.superseded_by is not None for row in rows)
    if superseded:
        parts.append(f"superseded attempts: {superseded:,}")
    unassigned = sum(row.calls for row in rows if row.is_unassigned)
    if unassigned:
        parts.append(f"unassigned calls, in no mean: {unassigned:,}")
    parts += [f"{name}: {number:,}" for name, number in sorted(counts.items()) if number]
    return "; ".join(parts)


def hints(rows: Sequence[RolloutSummary]) -> list[str]:
    """What looks like an oversight of the user's: calls that a rollout made, and that do not know its run."""
    in_a_run = {row.rollout_id for row in rows if row.run_id is not None and row.status is not None}
    return [
        f"{row.rollout_id}: calls without a run; is the proxy started with --run, or the client given rollout.headers?"
        for row in rows
        if row.run_id is None and row.status is None and row.rollout_id in in_a_run
    ]


def run_table(runs: Sequence[RunStatistics]) -> Table:
    """A column a run, a line a figure."""
    table = _table()
    header, *lines = _run_rows(runs)
    for column in header:
        table.add_column(Text(column), overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def run_lines(runs: Sequence[RunStatistics]) -> Iterator[str]:
    header, *lines = _run_rows(runs)
    return aligned(header, lines)


def _run_rows(runs: Sequence[RunStatistics]) -> Iterator[list[str]]:
    yield ["run", *(printable(run.run_id or UNKNOWN) for run in runs)]
    figures = [run_figures(run) for run in runs]
    for name in figures[0] if figures else ():
        yield [name, *(printable(run[name]) for run in figures)]


def run_figures(run: RunStatistics) -> dict[str, str]:
    return {
        "rollouts": count(run.rollouts),
        "superseded attempts": count(run.superseded),
        "calls": calls_said(run.calls, run.superseded_calls, run.unfinished_calls),
        "retries": count(run.retries),
        "tokens in": count(run.tokens_in),
        "tokens out": count(run.tokens_out),
        "cached tokens": count(run.cached_tokens),
        "cached share": share(run.cached_share),
        "latency p50": milliseconds(run.latency_p50_ms),
        "latency p95": milliseconds(run.latency_p95_ms),
        "first token p50": milliseconds(run.ttft_p50_ms),
        "first token p95": milliseconds(run.ttft_p95_ms),
        "mean reward": number(run.mean_reward),
        "errors": ", ".join(f"{name} {number}" for name, number in run.errors.items()) or "0",
        "unassigned calls": count(run.unassigned_calls),
    }


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
