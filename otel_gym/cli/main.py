"""The ``otel-gym`` command: one file a command group, joined here."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from otel_gym.cli import (
    compact,
    convert,
    demo,
    doctor,
    dynamo,
    export,
    imports,
    join,
    ls,
    perfetto,
    proxy,
    query,
    receive,
    run,
    send,
    show,
    stats,
    tail,
)
from otel_gym.cli.common import AddressCommand, ArgumentCommand, open_closed_streams, output_code
from otel_gym.version import __version__


class Program(TyperGroup):
    """Ends with 2 also where what is wrong with the arguments, or the help, cannot be written."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        open_closed_streams()
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            code_of_arguments = getattr(error.__context__, "exit_code", None)
            sys.exit(code_of_arguments or output_code(error))


app = typer.Typer(
    name="otel-gym",
    cls=Program,
    help="Traces of LLM rollouts: capture them, look at them, hand them on. `otel-gym demo` shows it all.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", short_help="Run real clients against a scripted model, traced.")(demo.demo)
app.command("proxy", short_help="Stand before a model server and capture every call.")(proxy.proxy)
app.command("receive", short_help="Take spans over OTLP into a store.")(receive.receive)
app.command(
    "run",
    cls=ArgumentCommand,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command, traced without a change.",
)(run.run)
app.command("ls", short_help="List the rollouts of a store.")(ls.ls)
app.command("show", cls=AddressCommand, short_help="Show the spans of one rollout as a tree.")(show.show)
app.command("stats", short_help="Figures of each run.")(stats.stats)
app.command("tail", cls=AddressCommand, short_help="Follow a store while it grows.")(tail.tail)
app.command("perfetto", cls=AddressCommand, short_help="Open rollouts in Perfetto's UI.")(perfetto.perfetto)
app.command("doctor", cls=ArgumentCommand, short_help="Say what is wrong with a store, and what to do.")(doctor.doctor)
app.command("compact", short_help="Seal what ended processes wrote in Parquet.")(compact.compact)
app.command("join", cls=ArgumentCommand, short_help="Attach model calls to rollout rows.")(join.join)
app.command("query", cls=ArgumentCommand, short_help="Ask a store in SQL.")(query.query)
app.command("send", cls=AddressCommand, short_help="Send rollouts to an OTLP endpoint.")(send.send)
app.add_typer(imports.app, name="import")
app.add_typer(export.app, name="export")
app.add_typer(convert.app, name="convert")
app.add_typer(dynamo.app, name="dynamo")


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
