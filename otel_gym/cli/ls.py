"""``otel-gym ls``: a row a rollout."""

from __future__ import annotations

from dataclasses import asdict

import typer

from otel_gym.cli.common import AsJson, Directory, Run, console, open_store, print_json, progress, reader
from otel_gym.cli.tables import footer, rollout_table
from otel_gym.store.reader import Store
from otel_gym.views.selection import selected_rollouts
from otel_gym.views.summary import mark_superseded, summarize_rollout


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
    with progress("reading", len(store.rollout_ids())) as advancing:
        summaries = [summarize_rollout(rollout) for rollout in advancing(selected_rollouts(store, run=run))]
    rows = sorted(mark_superseded(summaries), key=lambda row: row.is_unassigned)
    if json:
        print_json(_row(row) for row in map(asdict, rows))
        return store
    assigned = [row for row in rows if not row.is_unassigned]
    output = console()
    output.print(rollout_table(assigned))
    unassigned = [row for row in rows if row.is_unassigned]
    if unassigned:
        output.print(rollout_table(unassigned))
    typer.echo(footer(rows, store.counts()))
    return store


def _row(row: dict[str, object]) -> dict[str, object]:
    del row["call_figures"]
    return row
