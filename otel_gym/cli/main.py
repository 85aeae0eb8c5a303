"""The ``otel-gym`` command: one file a command group, joined here.

A group is loaded when it is called: most commands need a part of what all need.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from otel_gym.cli.common import AddressCommand, ArgumentCommand, open_closed_streams, output_code
from otel_gym.version import __version__

_LOOK: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Command(NamedTuple):
    """The function of the same name in the module of the same name."""

    short_help: str
    cls: type[TyperCommand] = TyperCommand
    takes_all_arguments: bool = False


COMMANDS = {
    "demo": Command("Run real clients against a scripted model, traced."),
    "proxy": Command("Stand before a model server and capture every call."),
    "receive": Command("Take spans over OTLP into a store."),
    "run": Command("Run a command, traced without a change.", ArgumentCommand, takes_all_arguments=True),
    "ls": Command("List the rollouts of a store."),
    "show": Command("Show the spans of one rollout as a tree.", AddressCommand),
    "stats": Command("Figures of each run."),
    "tail": Command("Follow a store while it grows.", AddressCommand),
    "perfetto": Command("Open rollouts in Perfetto's UI.", AddressCommand),
    "doctor": Command("Say what is wrong with a store, and what to do.", ArgumentCommand),
    "compact": Command("Seal what ended processes wrote in Parquet."),
    "join": Command("Attach model calls to rollout rows.", ArgumentCommand),
    "query": Command("Ask a store in SQL.", ArgumentCommand),
    "send": Command("Send rollouts to an OTLP endpoint.", AddressCommand),
}
# Groups of commands, and the modules whose ``app`` they are.
GROUPS = {"import": "imports", "export": "export", "convert": "convert", "dynamo": "dynamo"}


def loaded(name: str) -> Any:
    """The command, or group of commands, of that name."""
    if name in GROUPS:
        made: Any = typer.main.get_group(_module(GROUPS[name]).app)
    elif name in COMMANDS:
        made = _command(name, COMMANDS[name])
    else:
        return None
    made.name = name
    return made


def _command(name: str, said: Command) -> Any:
    alone = typer.Typer(**_LOOK)
    settings = {"allow_interspersed_args": False} if said.takes_all_arguments else None
    alone.command(name, cls=said.cls, short_help=said.short_help, context_settings=settings)(
        getattr(_module(name), name)
    )
    return typer.main.get_command(alone)


def _module(name: str) -> Any:
    return import_module(f"otel_gym.cli.{name}")


class Program(TyperGroup):
    """Ends with 2 also where what is wrong with the arguments, or the help, cannot be written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: dict[str, Any] = dict.fromkeys((*COMMANDS, *GROUPS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return loaded(cmd_name)

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
    **_LOOK,
)


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
