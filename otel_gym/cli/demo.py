"""``otel-gym demo``: everything once, on real clients and a scripted model."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from otel_gym.cli.common import (
    DAMAGED,
    NOT_DONE,
    CommandError,
    console,
    early_leaving,
    named_folder,
    print_lines,
    said_failures,
    say,
)
from otel_gym.cli.tables import footer, is_terminal, rollout_lines, rollout_table
from otel_gym.settings import read_settings, sdk_is_disabled

if TYPE_CHECKING:
    from otel_gym.demo.run import DemoResult

FOLDER = "otel_gym_demo"


def demo(
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            parser=named_folder,
            metavar="DIR",
            help=f"Folder of the store.  [default: ./{FOLDER}]",
            show_default=False,
        ),
    ] = Path(FOLDER),
    rollouts: Annotated[int, typer.Option("--rollouts", metavar="N", help="How many rollouts to run.", min=1)] = 8,
    serve: Annotated[
        bool, typer.Option("--serve", help="Run none: serve the scripted model, for clients of your own, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port for --serve; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
) -> None:
    """Run rollouts of the real openai and anthropic clients against a scripted model, through the capturing proxy.

    Three dialects, streaming and plain, parallel tool calls, reasoning, a cache that grows, an error, a retry and a cut
    stream. Takes seconds, and never leaves this machine. What was captured is read back from disk and shown. The store
    is its own, whatever OTEL_GYM_DIR says.

    \b
    Example:
        otel-gym demo --dir /tmp/otel-gym-demo
        otel-gym demo --serve --port 8000
    """
    with said_failures():
        if serve:
            _serve(port)
            return
        if sdk_is_disabled(os.environ):
            raise CommandError("OTEL_SDK_DISABLED=true turns capture off, and the demo is about capture; unset it")
        if read_settings().enabled is False:
            raise CommandError("OTEL_GYM=0 turns capture off, and the demo is about capture; unset it")
        try:
            from otel_gym.demo.run import DemoError, run_demo  # needs the clients, which are an extra
        except ModuleNotFoundError as error:
            raise CommandError(f"the demo needs the package {error.name}: pip install openai anthropic") from None
        try:
            with Console(stderr=True).status("running rollouts…") if sys.stderr.isatty() else nullcontext():
                result = run_demo(directory, rollouts)
        except DemoError as error:
            raise CommandError(f"the demo failed: {error}") from None
        with early_leaving():
            _print(result)
        for damage in result.damage:
            say(damage)
        for problem in result.problems:
            say(f"the demo failed: {problem}")
        if result.problems:
            raise typer.Exit(NOT_DONE)
        if result.damage:
            raise typer.Exit(DAMAGED)


def _serve(port: int) -> None:
    # A web server is slow to load.
    from otel_gym.demo.dialects import DIALECTS
    from otel_gym.demo.model_server import running_model_server
    from otel_gym.listening import ListenError

    try:
        with running_model_server(port) as (_, url):
            print(f"scripted model on {url}: {', '.join(DIALECTS)}; Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    except (ListenError, TimeoutError) as error:
        raise CommandError(str(error)) from None


def _print(result: DemoResult) -> None:
    if is_terminal():
        terminal = console()
        terminal.print(rollout_table(result.rollouts, terminal.width))
    else:
        print_lines(rollout_lines(result.rollouts))
    print_lines(
        [
            footer(result.rollouts, {}),
            f"run {result.run_id} took {result.seconds:.1f} s; the records of its {result.records} calls: "
            f"{result.records_path}",
            f"their trace, to open with `perfetto` as below or at https://ui.perfetto.dev: {result.trace_path}",
            "",
            "Now try:",
            *(f"  {command}" for command in next_commands(result)),
        ]
    )


def next_commands(result: DemoResult) -> list[str]:
    """Commands that work as they stand, from the folder in which the demo was run."""
    program = called_as()
    store = f"--dir {shlex.quote(_shortest(result.directory))}"
    shown = result.rollouts[min(1, len(result.rollouts) - 1)].rollout_id
    return [
        f"{program} ls {store} --run {result.run_id}",
        f"{program} show {result.run_id}/{shown} {store}",
        f"{program} perfetto {result.run_id}/{shown} {store}",
        f"{program} stats {store} --run latest",
        f"{program} export model-calls {store} --run latest -o model_calls.parquet",
    ]


def called_as() -> str:
    """How this command can be called: by name where it is on PATH, else by where it lies."""
    if shutil.which("otel-gym"):
        return "otel-gym"
    script = Path(sys.executable).with_name("otel-gym")
    if script.exists():
        return shlex.quote(_shortest(script))
    return f"{shlex.quote(_shortest(Path(sys.executable)))} -m otel_gym.cli"


def _shortest(path: Path) -> str:
    """Relative to the working directory where it lies below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
