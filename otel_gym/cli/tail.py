"""``otel-gym tail``: the spans of a store as they are written."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import DAMAGED, AsJson, Directory, chosen_directory, print_json, said_failures, say
from otel_gym.cli.formats import UNKNOWN, count, milliseconds, utc_milliseconds
from otel_gym.content import printable
from otel_gym.store.follow import Follower
from otel_gym.store.reader import Damage, Store
from otel_gym.views.selection import NO_RUN, find_rollouts
from otel_gym.views.tail_rows import TailRow, tail_row

# A look may take this share of the time at most, however many files there are.
GREATEST_SHARE = 0.1


def tail(
    rollout: Annotated[
        str | None, typer.Argument(metavar="[[RUN/]ROLLOUT]", help="Only this one.", show_default=False)
    ] = None,
    directory: Directory = None,
    once: Annotated[bool, typer.Option("--once", help="Show what is there, and end.")] = False,
    from_start: Annotated[bool, typer.Option("--from-start", help="Show what is there, then what comes.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Seconds between two looks.", min=0.01)
    ] = 0.5,
    json: AsJson = False,
) -> None:
    """Follow a store that is being written: a line for each span as it ends, until Ctrl-C.

    Shows when it ended, its rollout, its name and how long it took; of model calls also model, tokens and error. A line
    that is only half written is shown when it is whole. A store that does not exist yet is waited for.

    \b
    Example:
        otel-gym tail
        otel-gym tail 2-0 --from-start
        otel-gym tail --once --json | head
    """
    damaged = False

    def report(damage: Damage) -> None:
        nonlocal damaged
        damaged = True
        say(damage)

    with said_failures():
        folder = chosen_directory(directory)
        if once or _holds_something(folder):
            store = Store(folder)  # says what is wrong with a folder that is no store
            if once and rollout is not None:
                # Spans that name no run may belong to one for a reader, and are shown here as they were written.
                find_rollouts(store, rollout.removeprefix(f"{NO_RUN}/"))
        else:
            say(f"waiting for spans in {folder}")
        run_id, _, rollout_id = (rollout or "").rpartition("/")
        follower = Follower(folder, report, rollout_id or None)
        if not (once or from_start):
            follower.skip_what_is_there()
        try:
            while True:
                started = time.monotonic()
                _show(follower, run_id, json)
                if once:
                    break
                time.sleep(max(interval, (time.monotonic() - started) / GREATEST_SHARE))
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
    if damaged:
        raise typer.Exit(DAMAGED)


def _holds_something(folder: Path) -> bool:
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def _show(follower: Follower, run_id: str, json: bool) -> None:
    found = follower.look()
    rows = [tail_row(each.rollout_id, each.span) for each in found if run_id in ("", each.span.run_id or NO_RUN)]
    rows.sort(key=lambda row: row.time_ns)
    if json:
        print_json(map(asdict, rows))
    else:
        for row in rows:
            print(printable(_line(row)))
    sys.stdout.flush()


def _line(row: TailRow) -> str:
    address = f"{row.run_id}/{row.rollout_id}" if row.run_id else row.rollout_id
    parts = [utc_milliseconds(row.time_ns), address, row.name, milliseconds(row.duration_ms)]
    if row.model is not None and row.model not in row.name:
        parts.append(row.model)
    if row.tokens_in is not None or row.tokens_out is not None:
        parts.append(f"{count(row.tokens_in)} → {count(row.tokens_out)} tokens")
    if row.error is not None:
        parts.append(f"ERROR {row.error}")
    return "  ".join(part or UNKNOWN for part in parts)
