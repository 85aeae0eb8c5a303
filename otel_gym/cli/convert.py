"""``otel-gym convert``: sessions of harnesses → ATIF, without a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import DAMAGED, ArgumentCommand, CommandError, said_failures, say
from otel_gym.cli.formats import counted

app = typer.Typer(
    help="Write sessions of harnesses in ATIF, without a store between.", no_args_is_help=True, rich_markup_mode=None
)

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Files, or folders with such files.", show_default=False)
]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FOLDER", help="Gets a folder a session.", show_default=False)
]
Version = Annotated[str, typer.Option("--version", help="1.7 or 1.8.", metavar="VERSION")]


@app.callback()
def convert() -> None:
    """Write sessions of harnesses in ATIF, without a store between."""


@app.command("claude-code", cls=ArgumentCommand, short_help="Sessions of Claude Code, or its stream-json output.")
def claude_code(paths: Paths, output: Output, version: Version = "1.7") -> None:
    """Write sessions of Claude Code in ATIF: each becomes FOLDER/SESSION/trajectory.json, with its images beside it.

    The same as `import` and `export atif`, several times faster and in little memory; secrets are taken out as there.

    \b
    Example:
        otel-gym convert claude-code ~/.claude/projects/-workspace -o trajectories
    """
    _convert("claude-code", paths, output, version)


@app.command("codex", cls=ArgumentCommand, short_help="Sessions of Codex, or its `exec --json` output.")
def codex(paths: Paths, output: Output, version: Version = "1.7") -> None:
    """Write sessions of Codex in ATIF: each becomes FOLDER/SESSION/trajectory.json, with its images beside it.

    \b
    Example:
        otel-gym convert codex ~/.codex/sessions -o trajectories
    """
    _convert("codex", paths, output, version)


def _convert(source: str, paths: list[Path], output: Path, version: str) -> None:
    with said_failures():
        from otel_gym.cli.converting import ATIF_VERSIONS, converted  # the sources are slow to load

        if version not in ATIF_VERSIONS:
            raise CommandError(f"--version {version!r} is not written: one of {', '.join(ATIF_VERSIONS)}")
        number, damage = converted(source, paths, output, ATIF_VERSIONS[version])
        say(f"{counted(number, 'session')} written below {output}")
        for text in damage:
            say(text)
        if damage:
            raise typer.Exit(DAMAGED)
