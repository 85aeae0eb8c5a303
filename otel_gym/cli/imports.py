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
from otel_gym.settings import Settings

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
Places = Annotated[
    list[str],
    typer.Argument(metavar="PATH|URL...", help="Files, folders with such files, or URLs.", show_default=False),
]
RolloutOfRest = Annotated[
    str | None,
    typer.Option("--rollout", help="Rollout id of spans that name none.", metavar="ID", show_default=False),
]
RunOfRest = Annotated[
    str | None,
    typer.Option("--run", help="Run id of spans that name none.", metavar="ID", show_default=False),
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


@app.command("dynamo", cls=ArgumentCommand, short_help="Traces of NVIDIA Dynamo: requests, tools, agents.")
def dynamo(
    paths: Paths, rollout: Rollout = None, run: RunId = None, follow: Follow = False, directory: Directory = None
) -> None:
    """Import Dynamo's agent and request traces: jsonl and jsonl.gz, all of their segments, and the audit files beside.

    All paths are one trace: files, folders (at any depth), globs, or Dynamo's own OUTPUT_PATH. Each root session is a
    rollout; requests without a session are in `dynamo-requests`. Importing again, or files that have grown, adds
    nothing twice.

    \b
    Example:
        otel-gym import dynamo /tmp/dynamo-agent-trace
        otel-gym import dynamo 'traces/trace.*.jsonl.gz' --run eval-7
    """
    _import("dynamo", paths, rollout, run, follow, directory)


@app.command("otlp", cls=ArgumentCommand, short_help="Spans in OTLP: a Collector's files, Tempo's API.")
def otlp(places: Places, rollout: RolloutOfRest = None, run: RunOfRest = None, directory: Directory = None) -> None:
    """Import spans in OTLP: files of a Collector's file exporter (json, proto, zstd), answers of Tempo's API.

    Read are JSON, as a document or a line each, and protobuf; plain, or packed by gzip or zstd. Spans keep their ids,
    so importing again adds nothing twice.

    \b
    Example:
        otel-gym import otlp traces.json traces.pb.zst
        otel-gym import otlp http://127.0.0.1:3200/api/traces/5b8efff798038103d269b633813fc60c
    """
    _import_otlp("otlp", places, rollout, run, directory)


@app.command("jaeger", cls=ArgumentCommand, short_help="Traces of Jaeger's query API, or saved from its UI.")
def jaeger(places: Places, rollout: RolloutOfRest = None, run: RunOfRest = None, directory: Directory = None) -> None:
    """Import traces in Jaeger's JSON: an answer of /api/traces or /api/v3/traces, or a file that its UI saved.

    Jaeger keeps microseconds, and of lists and maps their JSON. Ask with raw=true: else it moves spans to make up for
    clocks that differ.

    \b
    Example:
        otel-gym import jaeger 'http://127.0.0.1:16686/api/traces?service=policy&limit=100&raw=true'
    """
    _import_otlp("jaeger", places, rollout, run, directory)


def _import_otlp(source: str, places: list[str], rollout: str | None, run: str | None, directory: Path | None) -> None:
    with said_failures():
        rollout, run, settings, store = _checked(rollout, run, directory)
        from otel_gym.cli.importing_otlp import ImportOtlp  # protobuf is slow to load

        _say_damage(ImportOtlp(source, store, rollout, run, settings).take(places))


def _checked(
    rollout: str | None, run: str | None, directory: Path | None
) -> tuple[str | None, str | None, Settings, Path]:
    """The options, and the settings and the store with which they are to be used."""
    try:
        rollout = checked_id(rollout) if rollout else None
        run = checked_id(run, "run id") if run else None
        settings = said_settings()
        store = directory or settings.directory
        check_store_folder(store)
    except (InvalidIdError, StoreFolderError) as error:
        raise CommandError(str(error)) from None
    return rollout, run, settings, store


def _say_damage(damage: list[str]) -> None:
    for text in damage:
        say(text)
    if damage:
        raise typer.Exit(DAMAGED)


def _import(
    source: str, paths: list[Path], rollout: str | None, run: str | None, follow: bool, directory: Path | None
) -> None:
    with said_failures():
        rollout, run, settings, store = _checked(rollout, run, directory)
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
        _say_damage(damage)
