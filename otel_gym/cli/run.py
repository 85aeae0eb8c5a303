"""``otel-gym run``: a command of yours, traced without a change."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from otel_gym.bootstrap.launch import LaunchError, execute, launch_of
from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import CommandError, Directory, said_failures, said_settings, say
from otel_gym.id_rules import InvalidIdError
from otel_gym.settings import sdk_is_disabled


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What to run.", show_default=False)],
    directory: Directory = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            help="Names the launch.  [default: OTEL_GYM_RUN_ID, else <UTC>-<4 hex>]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a command with tracing on, in it and in every Python that it starts, without a change to any.

    Model servers on FastAPI or Starlette capture their calls; httpx, aiohttp and requests tell them of rollout and
    span. The programs' own environments need nothing installed: what is needed stands behind their packages (Python
    3.11 or newer). Installers and Ray's own processes and workers are left alone.

    The command takes this one's place: its output, signals and exit code are its own. OTEL_GYM=0 runs it untraced.

    \b
    Example:
        otel-gym run --dir ./otel_gym_store -- python agent.py --tasks 10
    """
    with said_failures():
        settings = said_settings()
        try:
            if settings.enabled is False or sdk_is_disabled(os.environ):
                say("run untraced: OTEL_GYM=0 or OTEL_SDK_DISABLED=true is set")
                execute(command, os.environ)
            launch = launch_of(directory, run, os.environ)
            check_store_folder(launch.directory)
            say(f"run {launch.run_id}, spans go to {launch.directory}")
            execute(command, launch.environment)
        except (LaunchError, InvalidIdError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
