"""``otel-gym stats``: figures a run."""

from __future__ import annotations

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
from otel_gym.cli.tables import is_terminal, run_lines, run_table
from otel_gym.store.reader import Store
from otel_gym.views.selection import selected_rollouts
from otel_gym.views.summary import RunStatistics, mark_superseded, run_statistics, summarize_rollout


@reader
def stats(directory: Directory = None, run: Run = None, json: AsJson = False) -> Store:
    """Figures of each run: calls, tokens, latencies, errors by category, retries.

    Only what counts is summed up: superseded attempts and unassigned calls stand apart. Latencies are those of calls
    that did not fail, first tokens those of streams. Tokens of a call that was retried are those of its last attempt.
    What was counted but not stored (uncaptured_calls, lost_spans) holds for the whole store.

    \b
    Example:
        otel-gym stats --run latest
        otel-gym stats --json
    """
    store = open_store(directory)
    with progress("reading") as advancing:
        summaries = [summarize_rollout(rollout) for rollout in selected_rollouts(store, run=run, steps=advancing)]
    runs = run_statistics(mark_superseded(summaries))
    counts = {"uncaptured_calls": 0, "lost_spans": 0, **store.counts()}
    with early_leaving():
        if json:
            print_json({**asdict(figures), "store": counts} for figures in runs)
        else:
            _print_tables(runs, counts)
    return store


def _print_tables(runs: list[RunStatistics], counts: dict[str, int]) -> None:
    if is_terminal():
        console().print(run_table(runs))
    else:
        print_lines(run_lines(runs))
    print_lines(["whole store: " + "; ".join(f"{name}: {number:,}" for name, number in counts.items())])
