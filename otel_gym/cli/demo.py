"""``otel-gym demo``: everything once, on real clients and a scripted model."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from otel_gym.cli.common import DAMAGED, NOT_DONE, CommandError, Directory, console, said_failures
from otel_gym.cli.tables import footer, rollout_table
from otel_gym.settings import read_settings

if TYPE_CHECKING:
    from otel_gym.demo.run import DemoResult


def demo(
    directory: Directory = None,
    rollouts: Annotated[int, typer.Option("--rollouts", help="How many rollouts to run.", min=1)] = 8,
) -> None:
    """Run rollouts of the real openai and anthropic clients against a scripted model, through the capturing proxy.

    Three dialects, streaming and plain, parallel tool calls, reasoning, a cache that grows, an error, a retry and a cut
    stream. Takes seconds, and never leaves this machine. What was captured is read back from disk and shown.

    \b
    Example:
        otel-gym demo --dir /tmp/otel-gym-demo
    """
    with said_failures():
        settings = read_settings()
        if settings.enabled is False:
            raise CommandError("OTEL_GYM=0 turns capture off, and the demo is about capture; unset it")
        try:
            from otel_gym.demo.run import DemoError, run_demo  # needs the clients, which are an extra
        except ModuleNotFoundError as error:
            raise CommandError(f"the demo needs the package {error.name}: pip install 'otel_gym[demo]'") from None
        folder = directory if directory is not None else settings.directory
        try:
            with Console(stderr=True).status("running rollouts…") if sys.stderr.isatty() else nullcontext():
                result = run_demo(folder, rollouts)
        except DemoError as error:
            raise CommandError(f"the demo failed: {error}") from None
        _print(result)
        for damage in result.damage:
            print(f"otel-gym: {damage}", file=sys.stderr)
        for problem in result.problems:
            print(f"otel-gym: the demo failed: {problem}", file=sys.stderr)
        if result.problems:
            raise typer.Exit(NOT_DONE)
        if result.damage:
            raise typer.Exit(DAMAGED)


def _print(result: DemoResult) -> None:
    console().print(rollout_table(result.rollouts))
    typer.echo(footer(result.rollouts, {}))
    typer.echo(
        f"run {result.run_id}: {result.records} model calls in {result.seconds:.1f} s, records in {result.records_path}"
    )
    typer.echo("\nNow try:")
    for command in next_commands(result):
        typer.echo(f"  {command}")


def next_commands(result: DemoResult) -> list[str]:
    store = f"--dir {shlex.quote(str(result.directory))}"
    shown = result.rollouts[min(1, len(result.rollouts) - 1)].rollout_id
    return [
        f"otel-gym ls {store} --run {result.run_id}",
        f"otel-gym show {result.run_id}/{shown} {store}",
        f"otel-gym stats {store} --run latest",
        f"otel-gym export model-calls {store} --run latest --format parquet -o model_calls.parquet",
    ]
