"""Which runs and rollouts of a store a reader asks for: ``--run ID|latest`` and ``[RUN/]ROLLOUT``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from otel_gym.store.reader import RolloutSpans, Store

LATEST = "latest"
NEAREST = 5


class SelectionError(Exception):
    """What was asked for is not in the store, or is there more than once; the text says what is."""


def selected_rollouts(store: Store, addresses: Iterable[str] = (), run: str | None = None) -> Iterator[RolloutSpans]:
    """The rollouts at the given addresses, or all; of one run only, if ``run`` names it.

    An address stands for one rollout: SelectionError if none has it, or several runs have it.
    """
    wanted = list(addresses)
    runs = None if run is None else {resolve_run(store, run)}
    if wanted:
        for rollout in [find_rollout(store, address, run) for address in wanted]:
            yield rollout
            rollout.let_go()
        return
    for rollout in store.rollouts():
        if runs is None or rollout.run_id in runs:
            yield rollout


def resolve_run(store: Store, run: str) -> str | None:
    """The run id that ``--run`` means: ``latest`` is the run that began last (None: it has no id)."""
    started = run_starts(store)
    if run == LATEST and started:
        return max(started, key=lambda name: started[name])
    if run in started:
        return run
    known = sorted(name for name in started if name)
    raise SelectionError(f"no run {run!r} in {store.directory}; {_said('runs', run, known)}")


def run_starts(store: Store) -> dict[str | None, int]:
    """Start of the first span of each run, UTC nanoseconds."""
    starts: dict[str | None, int] = {}
    for rollout in store.rollouts():
        start = rollout.spans[0].start_ns
        starts[rollout.run_id] = min(start, starts.get(rollout.run_id, start))
    return starts


def find_rollout(store: Store, address: str, run: str | None = None) -> RolloutSpans:
    """The one rollout at ``[RUN/]ROLLOUT``."""
    address_run, _, rollout_id = address.rpartition("/")
    run_id = address_run or (None if run is None else resolve_run(store, run))
    anywhere = not address_run and run is None
    in_all_runs = list(store.rollouts(rollout_id))
    found = [rollout for rollout in in_all_runs if anywhere or rollout.run_id == run_id]
    if len(found) == 1:
        return found[0]
    if found:
        choices = "".join(f"\n  {rollout.address}" for rollout in found)
        raise SelectionError(
            f"{len(found)} runs have a rollout {rollout_id!r}; say which with --run, or as one of:{choices}"
        )
    if in_all_runs:
        others = ", ".join(rollout.address for rollout in in_all_runs)
        raise SelectionError(f"run {run_id!r} has no rollout {rollout_id!r}; there is {others}")
    raise SelectionError(
        f"no rollout {rollout_id!r} in {store.directory}; {_said('rollouts', rollout_id, store.rollout_ids())}"
    )


def _said(what: str, wanted: str, known: list[str]) -> str:
    if not known:
        return f"it holds no {what}"
    nearest = difflib.get_close_matches(wanted, known, NEAREST, 0.4) or known[:NEAREST]
    rest = "" if len(known) <= len(nearest) else f" (of {len(known)}; otel-gym ls lists all)"
    return f"the nearest {what}: {', '.join(nearest)}{rest}"
