"""The ``otel-gym`` command: one file a command group, joined here."""

from __future__ import annotations

from typing import Annotated

import typer

from otel_gym.cli import compact, demo, export, ls, proxy, show, stats
from otel_gym.version import __version__

app = typer.Typer(
    name="otel-gym",
    help="Traces of LLM rollouts: capture them, look at them, hand them on. `otel-gym demo` shows it all.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("proxy")(proxy.proxy)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("stats")(stats.stats)
app.command("compact")(compact.compact)
app.add_typer(export.app, name="export")


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"otel-gym {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and exit.")
    ] = False,
) -> None:
    pass
