"""``otel-gym tail``: the spans of a store as they are written."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import (
    AsJson,
    CommandError,
    Directory,
    chosen_directory,
    early_leaving,
    open_folder,
    print_json,
    print_lines,
    said_failures,
    say,
    say_damage,
)
from otel_gym.cli.formats import UNKNOWN, count, milliseconds, utc_milliseconds
from otel_gym.conventions import UNASSIGNED
from otel_gym.store.follow import Follower
from otel_gym.store.layout import is_sealed, is_store
from otel_gym.store.reader import Store
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
    that is only half written is shown when it is whole. A store that does not exist yet is waited for. Files, Parquet,
    and what was sealed into it, do not grow span by span: --once shows them.

    \b
    Example:
        otel-gym tail
        otel-gym tail 2-0 --from-start
        otel-gym tail --once --json | head
    """
    with said_failures():
        folder = chosen_directory(directory)
        run_id, _, rollout_id = (rollout or "").rpartition("/")
        if once:
            store = open_folder(folder)
            with early_leaving():
                _print(_rows_of(store, rollout), run_id, json)
            say_damage(store)
            return
        with suppress(KeyboardInterrupt):
            follower = _follower(folder, rollout_id or None, from_start)
            while True:
                started = time.monotonic()
                _print([tail_row(each.rollout_id, each.span) for each in follower.look()], run_id, json)
                time.sleep(max(interval, (time.monotonic() - started) / GREATEST_SHARE))


def _rows_of(store: Store, rollout: str | None) -> list[TailRow]:
    if rollout is None:
        rollout_ids = store.rollout_ids()
    else:
        # Spans that name no run may belong to one for a reader, and are shown here as they were written.
        rollout_ids = [find_rollouts(store, rollout.removeprefix(f"{NO_RUN}/"))[0].rollout_id]
    return [
        tail_row(span.rollout_id if rollout_id == UNASSIGNED else rollout_id, span)
        for rollout_id in rollout_ids
        for span in store.spans(rollout_id)
    ]


def _follower(folder: Path, rollout_id: str | None, from_start: bool) -> Follower:
    if not _holds_something(folder):
        say(f"waiting for spans in {folder}")
    elif not is_store(folder):
        Store(folder)  # says what is wrong with what cannot be read at all
        raise CommandError(f"{folder}: only a store's folder can be followed; --once shows what is there")
    elif from_start and is_sealed(folder):
        say(f"{folder}: what was sealed into Parquet is left out; --once shows it")
    follower = Follower(folder, say, rollout_id)
    if not from_start:
        follower.skip_what_is_there()
    return follower


def _holds_something(folder: Path) -> bool:
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def _print(rows: list[TailRow], run_id: str, json: bool) -> None:
    wanted = [row for row in rows if run_id in ("", row.run_id or NO_RUN)]
    wanted.sort(key=lambda row: row.time_ns)
    if json:
        print_json(map(asdict, wanted))
    else:
        print_lines(map(_line, wanted))
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
