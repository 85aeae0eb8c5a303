"""Which runs and rollouts of a store a reader asks for: ``--run ID|latest`` and ``[RUN/]ROLLOUT``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator

from otel_gym.content import printable
from otel_gym.id_rules import LATEST
from otel_gym.store.reader import RolloutSpans, Store

# How the run of spans that name none is addressed; no id begins so.
NO_RUN = "-"
NEAREST = 5


class SelectionError(Exception):
    """What was asked for is not in the store, or is there more than once; the text says what is."""


def selected_rollouts(
    store: Store,
    addresses: Iterable[str] = (),
    run: str | None = None,
    steps: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Iterator[RolloutSpans]:
    """The rollouts at the given addresses, or all; of one run only, if ``run`` names it.

    An address stands for one rollout: SelectionError if none has it, or several runs have it. ``steps`` is what the
    store's rollout ids are drawn through.
    """
    wanted = list(addresses)
    runs = None if run is None else {resolve_run(store, run)}
    if wanted:
        for rollout in [find_rollout(store, address, run) for address in wanted]:
            yield rollout
            rollout.let_go()
        return
    for rollout_id in steps(store.rollout_ids()):
        for rollout in store.rollouts(rollout_id):
            if runs is None or rollout.run_id in runs:
                yield rollout


def resolve_run(store: Store, run: str) -> str | None:
    """The run id that ``--run`` means: ``latest`` is the run that began last, ``-`` are the spans that name none.

    These are no run, so they are the latest only where no run is named at all.
    """
    started = run_starts(store)
    if run == LATEST and started:
        return max(started, key=lambda name: (name is not None, started[name]))
    if run == NO_RUN and None in started:
        return None
    if run in started:
        return run
    known = sorted(name or NO_RUN for name in started)
    raise SelectionError(f"no run {run!r} in {store.directory}; {_said('runs', run, known)}")


def run_starts(store: Store) -> dict[str | None, int]:
    """Start of the first span of each run, UTC nanoseconds."""
    starts: dict[str | None, int] = {}
    for rollout in store.rollouts():
        start = rollout.spans[0].start_ns
        starts[rollout.run_id] = min(start, starts.get(rollout.run_id, start))
    return starts


def find_rollout(store: Store, address: str, run: str | None = None) -> RolloutSpans:
    """The one rollout at ``[RUN/]ROLLOUT``; ``-/ROLLOUT`` where its spans name no run."""
    found = find_rollouts(store, address, run)
    if len(found) == 1:
        return found[0]
    choices = "".join(f"\n  {_full_address(rollout)}" for rollout in found)
    rollout_id = found[0].rollout_id
    raise SelectionError(
        f"{len(found)} runs have a rollout {rollout_id!r}; say which with --run, or as one of:{choices}"
    )


def find_rollouts(store: Store, address: str, run: str | None = None) -> list[RolloutSpans]:
    """The rollouts at an address, of every run if it names none; SelectionError if there is none."""
    address_run, _, rollout_id = address.rpartition("/")
    if "/" in address_run:
        raise SelectionError(f"{address!r} is no address: give ROLLOUT or RUN/ROLLOUT, as `otel-gym ls` lists them")
    if address_run and run is not None:
        _check_same_run(store, address, address_run, run)
    run_id = _named_run(address_run) if address_run else (None if run is None else resolve_run(store, run))
    anywhere = not address_run and run is None
    in_all_runs = list(store.rollouts(rollout_id))
    found = [rollout for rollout in in_all_runs if anywhere or rollout.run_id == run_id]
    if found:
        return found
    if in_all_runs:
        others = ", ".join(map(_full_address, in_all_runs))
        raise SelectionError(f"run {run_id or NO_RUN!r} has no rollout {rollout_id!r}; there is {others}")
    raise SelectionError(
        f"no rollout {rollout_id!r} in {store.directory}; {_said('rollouts', rollout_id, store.rollout_ids())}"
    )


def _check_same_run(store: Store, address: str, address_run: str, run: str) -> None:
    run_id = resolve_run(store, run)
    if run_id != _named_run(address_run):
        is_named = "" if run == (run_id or NO_RUN) else f", which is {run_id or NO_RUN}"
        raise SelectionError(f"{address} is of another run than --run {run}{is_named}; give one of them")


def _named_run(address_run: str) -> str | None:
    return None if address_run == NO_RUN else address_run


def _full_address(rollout: RolloutSpans) -> str:
    return printable(f"{rollout.run_id or NO_RUN}/{rollout.rollout_id}")


def _said(what: str, wanted: str, known: list[str]) -> str:
    if not known:
        return f"it holds no {what}"
    nearest = difflib.get_close_matches(wanted, known, NEAREST, 0.4) or known[:NEAREST]
    rest = "" if len(known) <= len(nearest) else f" (of {len(known)}; otel-gym ls lists all)"
    return f"the nearest {what}: {', '.join(map(printable, nearest))}{rest}"
