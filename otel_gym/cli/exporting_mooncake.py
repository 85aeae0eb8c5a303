"""What ``otel-gym export mooncake`` does. Apart from the commands: slow to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import typer

from otel_gym.cli.common import DAMAGED, CommandError, progress, say, say_damage
from otel_gym.cli.formats import counted
from otel_gym.cli.writing import write_lines
from otel_gym.store.reader import Store
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.mooncake.export import MooncakeTrace, mooncake_trace
from otel_gym.views.mooncake.reading import Wanted
from otel_gym.views.mooncake.requests import MooncakeError
from otel_gym.views.mooncake.waits import RULES
from otel_gym.views.selection import NO_RUN, selected_rollouts

# More are summed up.
_MOST_SAID = 20


@dataclass(frozen=True, slots=True)
class MooncakeWanted:
    rollouts: Sequence[str]
    run: str | None
    agentic: bool
    rules: str | None
    block_size: int | None
    lenient: bool


def write_mooncake(store: Store, wanted: MooncakeWanted, output: Path | None) -> None:
    """Writes the trace and says what a replay needs to know; ends the command with 1 where a record was left out."""
    if wanted.rules not in (None, *RULES):
        raise CommandError(f"--rules {wanted.rules!r} is none of {', '.join(RULES)}")
    output = None if output == Path("-") else output
    trace = _trace(store, wanted, printing=output is None)
    write_lines(trace.lines(), output)
    _say_what_was_written(trace, wanted, output)
    if trace.left_out:
        say_damage(store)
        raise typer.Exit(DAMAGED)


def _trace(store: Store, wanted: MooncakeWanted, *, printing: bool) -> MooncakeTrace:
    with progress("exporting", printing=printing) as advancing:
        selected = selected_rollouts(store, wanted.rollouts, wanted.run, advancing)
        named = bool(wanted.rollouts) or wanted.run == NO_RUN
        counting = counting_rollouts(selected, LaterAttempts(store), named=named)
        try:
            return mooncake_trace(
                counting, Wanted(wanted.agentic, wanted.block_size), wanted.rules, lenient=wanted.lenient
            )
        except MooncakeError as problem:
            raise CommandError(str(problem)) from None


def _say_what_was_written(trace: MooncakeTrace, wanted: MooncakeWanted, output: Path | None) -> None:
    for text in islice(trace.left_out, _MOST_SAID):
        say(text)
    if len(trace.left_out) > _MOST_SAID:
        say(f"… and {len(trace.left_out) - _MOST_SAID:,} more were left out")
    if trace.failed:
        say(f"{counted(trace.failed, 'call')} failed without an answer: no requests, as for Dynamo")
    if trace.payloads:
        say(f"{counted(trace.payloads, 'payload')} of requests that Dynamo did not record: no requests, as for Dynamo")
    if trace.without_output:
        say(
            f"{counted(trace.without_output, 'request')} made no token: the replay of Dynamo 1.3.1 never ends such a "
            "one, that of 1.4.2 does"
        )
    form = f"agentic_mooncake, rules {trace.rules}" if wanted.agentic else "mooncake"
    written = counted(len(trace), "request") + (" written" if output is None else f" written to {output}")
    say(f"{written} ({form}); replay with --trace-block-size {trace.block_size}")
