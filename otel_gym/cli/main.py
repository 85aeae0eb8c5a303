"""The ``otel-gym`` command: one file a command group, joined here."""

from __future__ import annotations

from typing import Annotated

import typer

from otel_gym.cli import compact, demo, doctor, export, imports, ls, proxy, show, stats, tail
from otel_gym.cli.common import AddressCommand, ArgumentCommand
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
app.command("demo", short_help="Run real clients against a scripted model, traced.")(demo.demo)
app.command("proxy", short_help="Stand before a model server and capture every call.")(proxy.proxy)
app.command("ls", short_help="List the rollouts of a store.")(ls.ls)
app.command("show", cls=AddressCommand, short_help="Show the spans of one rollout as a tree.")(show.show)
app.command("stats", short_help="Figures of each run.")(stats.stats)
app.command("tail", cls=AddressCommand, short_help="Follow a store while it grows.")(tail.tail)
app.command("doctor", cls=ArgumentCommand, short_help="Say what is wrong with a store, and what to do.")(doctor.doctor)
app.command("compact", short_help="Seal what ended processes wrote in Parquet.")(compact.compact)
app.add_typer(imports.app, name="import")
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
