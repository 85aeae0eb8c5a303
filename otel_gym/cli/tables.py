"""How summaries look as tables; the same tables for `ls`, `stats` and the demo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from otel_gym.cli.formats import UNKNOWN, count, milliseconds, number, share, utc
from otel_gym.views.summary import UNFINISHED, RolloutSummary, RunStatistics

STATUS_STYLES = {"ok": "green", "error": "red", UNFINISHED: "yellow"}


def rollout_status(row: RolloutSummary) -> Text:
    text = Text(row.status or UNKNOWN, STATUS_STYLES.get(row.status or "", ""))
    if row.superseded_by is not None:
        text.append(f", superseded by {row.superseded_by}", "dim")
    if row.executions > 1:
        text.append(f", newest of {row.executions} executions", "dim")
    if row.unfinished and row.status != UNFINISHED:
        text.append(f", {row.unfinished} spans unfinished", "yellow")
    if row.ambiguous:
        text.append(f", {row.ambiguous} spans of no certain execution", "yellow")
    if row.run_is_ambiguous:
        text.append(", of no certain run", "yellow")
    return text


ROLLOUT_COLUMNS: tuple[tuple[str, Literal["left", "right"], Callable[[RolloutSummary], str | Text]], ...] = (
    ("run", "left", lambda row: row.run_id or UNKNOWN),
    ("rollout", "left", lambda row: row.rollout_id),
    ("calls", "right", lambda row: count(row.calls)),
    ("tokens in", "right", lambda row: count(row.tokens_in)),
    ("cached", "right", lambda row: count(row.cached_tokens)),
    ("tokens out", "right", lambda row: count(row.tokens_out)),
    ("errors", "right", lambda row: Text(count(row.errors), "red" if row.errors else "")),
    ("started", "left", lambda row: utc(row.started_at)),
    ("duration", "right", lambda row: milliseconds(row.duration_ms)),
    ("reward", "right", lambda row: number(row.reward)),
    ("status", "left", rollout_status),
)


def rollout_table(rows: Sequence[RolloutSummary], *, terminal: bool | None = None) -> Table:
    """``terminal`` (default: whether stdout is one) saves width: a run that all rows share stands above them."""
    terminal = sys.stdout.isatty() if terminal is None else terminal
    runs = {row.run_id for row in rows}
    columns = ROLLOUT_COLUMNS[1:] if terminal and len(runs) == 1 else ROLLOUT_COLUMNS
    table = _table(terminal)
    if columns is not ROLLOUT_COLUMNS:
        table.title, table.title_justify = f"run {next(iter(runs)) or UNKNOWN}", "left"
    for name, justify, _ in columns:
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name != "status")
    for row in rows:
        table.add_row(*(cell(row) for _, _, cell in columns))
    return table


def footer(rows: Sequence[RolloutSummary], counts: Mapping[str, int]) -> str:
    """Totals over what counts, and what is not in the table."""
    counted = [row for row in rows if row.counts]
    parts = [f"rollouts: {len(counted)}", f"calls: {sum(row.calls for row in counted)}"]
    superseded = sum(row.superseded_by is not None for row in rows)
    if superseded:
        parts.append(f"superseded attempts: {superseded}")
    unassigned = sum(row.calls for row in rows if row.is_unassigned)
    if unassigned:
        parts.append(f"unassigned calls, in no mean: {unassigned}")
    parts += [f"{name}: {number:,}" for name, number in sorted(counts.items()) if number]
    return "; ".join(parts)


def run_table(runs: Sequence[RunStatistics]) -> Table:
    """A column a run, a line a figure."""
    table = _table(sys.stdout.isatty())
    for column in ("run", *(run.run_id or UNKNOWN for run in runs)):
        table.add_column(column, overflow="fold")
    figures = [run_figures(run) for run in runs]
    for name in figures[0] if figures else ():
        table.add_row(name, *(run[name] for run in figures))
    return table


def run_figures(run: RunStatistics) -> dict[str, str]:
    return {
        "rollouts": count(run.rollouts),
        "superseded attempts": count(run.superseded),
        "calls": count(run.calls),
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


def _table(terminal: bool) -> Table:
    return Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 1 if terminal else 2, 0, 0))
