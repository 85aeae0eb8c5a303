"""``otel-gym ls``: a row a rollout."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from otel_gym.cli.common import (
    AsJson,
    Directory,
    Run,
    console,
    early_leaving,
    open_store,
    print_json,
    print_lines,
    progress,
    reader,
)
from otel_gym.cli.tables import footer, hints, is_terminal, rollout_lines, rollout_table
from otel_gym.store.reader import Store
from otel_gym.views.health import COUNTED, losses_said
from otel_gym.views.selection import selected_rollouts
from otel_gym.views.summary import RolloutSummary, summarize_rollout, superseded_marked


@reader
def ls(directory: Directory = None, run: Run = None, json: AsJson = False) -> Store:
    """List the rollouts of a store.

    A later attempt (12-0-a1) supersedes an earlier one (12-0); both are listed, one counts. Calls that carried no
    rollout id stand under `unassigned`, below, and are in no mean.

    \b
    Example:
        otel-gym ls --dir ./otel_gym_store --run latest
        otel-gym ls --json | head -3
    """
    store = open_store(directory)
    streaming = json or not is_terminal()
    rows: list[RolloutSummary] = []
    with progress("reading", printing=streaming) as advancing, early_leaving():
        summaries = map(summarize_rollout, selected_rollouts(store, run=run, steps=advancing))
        kept = _kept(superseded_marked(summaries), rows)
        if json:
            print_json(_row(row) for row in map(asdict, kept))
        elif streaming:
            print_lines(rollout_lines(kept))
        else:
            deque(kept, maxlen=0)
    if json:
        return store
    if not streaming:
        terminal = console()
        grouped = by_run(rows)
        for group in ([row for row in grouped if not row.is_unassigned], [row for row in grouped if row.is_unassigned]):
            if group:
                terminal.print(rollout_table(group, terminal.width))
    counts = store.counts()
    with early_leaving():
        print_lines([footer(rows, counts), *losses_said(counts), *_uncaptured_said(counts), *hints(rows)])
    return store


def _uncaptured_said(counts: Mapping[str, int]) -> list[str]:
    """No loss where it is meant, but what an empty table is asked about."""
    return [f"{name}: {COUNTED[name][0]}" for name in ("uncaptured_calls", "uncaptured_paths") if counts.get(name)]


def _kept(rows: Iterable[RolloutSummary], kept: list[RolloutSummary]) -> Iterator[RolloutSummary]:
    for row in rows:
        kept.append(row)
        yield row


def by_run(rows: list[RolloutSummary]) -> list[RolloutSummary]:
    """The rows of each run together, in the order in which the runs began; within a run as they are."""
    began: dict[str | None, float] = {}
    for row in rows:
        started_at = row.started_at or 0.0
        began[row.run_id] = min(started_at, began.get(row.run_id, started_at))
    return sorted(rows, key=lambda row: (began[row.run_id], row.run_id or ""))


def _row(row: dict[str, object]) -> dict[str, object]:
    del row["call_figures"]
    return row
