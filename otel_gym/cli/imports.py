"""``otel-gym import``: what others wrote → spans in a store."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import (
    DAMAGED,
    ArgumentCommand,
    CommandError,
    Directory,
    said_failures,
    said_settings,
    say,
)
from otel_gym.id_rules import InvalidIdError, checked_id

FOLLOW_EVERY_S = 1.0

app = typer.Typer(help="Bring what others wrote into a store, as spans.", no_args_is_help=True, rich_markup_mode=None)

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Files, or folders with such files.", show_default=False)
]
Rollout = Annotated[
    str | None,
    typer.Option(
        "--rollout",
        help="Rollout id of the session.  [default: the session's own id]",
        metavar="ID",
        show_default=False,
    ),
]
RunId = Annotated[
    str | None,
    typer.Option("--run", help="Run id that the spans get.  [default: none]", metavar="ID", show_default=False),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on, and take in what is added, until interrupted.")]


@app.callback()
def import_() -> None:
    """Bring what others wrote into a store, as spans."""


@app.command("claude-code", cls=ArgumentCommand, short_help="Sessions of Claude Code, or its stream-json output.")
def claude_code(
    paths: Paths, rollout: Rollout = None, run: RunId = None, follow: Follow = False, directory: Directory = None
) -> None:
    """Import sessions of Claude Code: files of ~/.claude/projects, or what `--output-format stream-json` printed.

    Importing again, or a session that has grown, adds nothing twice.

    \b
    Example:
        otel-gym import claude-code ~/.claude/projects/-workspace
        otel-gym import claude-code session.jsonl --rollout 12-0 --run eval-7
    """
    _import("claude-code", paths, rollout, run, follow, directory)


@app.command("codex", cls=ArgumentCommand, short_help="Sessions of Codex, or its `exec --json` output.")
def codex(
    paths: Paths, rollout: Rollout = None, run: RunId = None, follow: Follow = False, directory: Directory = None
) -> None:
    """Import sessions of Codex: files of ~/.codex/sessions, or what `codex exec --json` printed.

    Importing again, or a session that has grown, adds nothing twice.

    \b
    Example:
        otel-gym import codex ~/.codex/sessions
        otel-gym import codex rollout-2026-11-29T23-32-14-01a2.jsonl --rollout 12-0
    """
    _import("codex", paths, rollout, run, follow, directory)


@app.command("atif", cls=ArgumentCommand, short_help="Trajectories in ATIF, 1.0 to 1.8.")
def atif(
    paths: Paths, rollout: Rollout = None, run: RunId = None, follow: Follow = False, directory: Directory = None
) -> None:
    """Import trajectories in ATIF (Harbor, NeMo Gym, Phoenix …), versions 1.0 to 1.8.

    \b
    Example:
        otel-gym import atif trial/agent/trajectory.json --rollout 12-0
    """
    _import("atif", paths, rollout, run, follow, directory)


@app.command("gym-captures", cls=ArgumentCommand, short_help="NeMo Gym's own captures of model calls.")
def gym_captures(
    paths: Paths, rollout: Rollout = None, run: RunId = None, follow: Follow = False, directory: Directory = None
) -> None:
    """Import what NeMo Gym captured itself: the ID.capture.jsonl and ID.capture.incomplete of model_call_capture_dir.

    The rollout id is in the file's name. What cannot be read is said, file and line, and counted in the gaps that
    `otel-gym join` attaches. Importing again, or files that have grown, adds nothing twice; give each launch a --run.

    \b
    Example:
        otel-gym import gym-captures results/captures --run eval-7
    """
    _import("gym-captures", paths, rollout, run, follow, directory)


def _import(
    source: str, paths: list[Path], rollout: str | None, run: str | None, follow: bool, directory: Path | None
) -> None:
    with said_failures():
        try:
            rollout = checked_id(rollout) if rollout else None
            run = checked_id(run, "run id") if run else None
            settings = said_settings()
            store = directory or settings.directory
            check_store_folder(store)
        except (InvalidIdError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
        from otel_gym.cli.importing import Import  # the sources are slow to load

        importing = Import(source, store, rollout, run, settings, follow=follow)
        damage = importing.take(paths)
        if follow:
            for text in damage:
                say(f"{text}; waiting")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(FOLLOW_EVERY_S)
                    damage = importing.take(paths)
        for text in damage:
            say(text)
        if damage:
            raise typer.Exit(DAMAGED)
