"""What every command shares: options, exit codes, how failures and damage are said, and where output goes.

Exit codes: 0 done; 1 done, but the store has damage, each said in a line on stderr; 2 could not be done.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TextIO, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typer.core import TyperArgument, TyperCommand

from otel_gym.content import printable, safe_json
from otel_gym.settings import Settings, read_settings
from otel_gym.store.reader import Store, StoreError
from otel_gym.views.selection import NO_RUN, SelectionError

DAMAGED = 1
NOT_DONE = 2
# Wider than any row: what goes into a pipe is neither wrapped nor cut.
PIPE_WIDTH = 100_000
_CHUNK = 1 << 20


def named_folder(text: str) -> Path:
    """Path makes the working directory of nothing, which is most often a variable that is not set."""
    if not text:
        raise typer.BadParameter("it names no folder; give . for the working directory")
    return Path(text)


Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        parser=named_folder,
        help="Folder of the store.  [default: OTEL_GYM_DIR, else ./otel_gym_store]",
        metavar="DIR",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="Only this run: its id, `latest`, or `-` for spans that name none.",
        metavar="ID",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines: one object a row.")]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")


class CommandError(Exception):
    """The command cannot be done; the text says why and what to do."""


class ArgumentCommand(TyperCommand):
    """Shows its arguments as their metavars stand; typer would put brackets and types around them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(argument.metavar or "" for argument in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for argument in self._arguments():
            argument.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        super().format_options(ctx, formatter)

    def _arguments(self) -> list[TyperArgument]:
        return [parameter for parameter in self.params if isinstance(parameter, TyperArgument)]


class AddressCommand(ArgumentCommand):
    """A command that takes addresses: ``-/12-0`` is one (spans that name no run), and no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        addresses = [argument for argument in args if argument.startswith(f"{NO_RUN}/")]
        if addresses and "--" not in args:
            args = [*(argument for argument in args if argument not in addresses), "--", *addresses]
        return super().parse_args(ctx, args)


def open_store(directory: Path | None) -> Store:
    """The store at ``directory``, else at the settings' folder; what is wrong with the settings is said."""
    return open_folder(chosen_directory(directory))


def open_folder(path: Path) -> Store:
    """The store there; files beside its own are said, once for all."""
    store = Store(path)
    if store.left_out:
        first, number = store.left_out[0].relative_to(path), len(store.left_out)
        which = str(first) if number == 1 else f"{number:,} files ({first} …)"
        say(f"{path}: left out, no OTLP/JSON lines: {which}")
    return store


def chosen_directory(directory: Path | None) -> Path:
    return said_settings().directory if directory is None else directory


def said_settings() -> Settings:
    """The settings; what is wrong with them is said."""
    settings = read_settings()
    for problem in settings.problems:
        say(problem)
    return settings


def reader(command: Callable[Parameters, Store]) -> Callable[Parameters, None]:
    """A command that reads a store and returns it: says its damage at the end, and its failures as exit codes."""

    @functools.wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        with said_failures():
            store = command(*arguments, **options)
            say_damage(store)

    run.__annotations__ = {**command.__annotations__, "return": None}
    return run


def say_damage(store: Store) -> None:
    """Behind what was printed; and ends the command with 1 if there is any."""
    sys.stdout.flush()
    for damage in store.damage:
        say(damage)
    if store.damage:
        raise typer.Exit(DAMAGED)


def say(text: object) -> None:
    """On stderr; each line is one, whatever a store of another's making put into it. That nobody can read it changes
    no exit code."""
    try:
        print("\n".join(map(printable, f"otel-gym: {text}".split("\n"))), file=sys.stderr)
    except OSError:
        _discard(sys.stderr)


@contextmanager
def said_failures() -> Iterator[None]:
    """Known failures become one line on stderr and exit code 2; a reader that closed the pipe is no failure."""
    code = 0
    try:
        yield
    except typer.Exit as ended:
        code = ended.exit_code
    except (StoreError, SelectionError, CommandError) as error:
        say(error)
        code = NOT_DONE
    except OSError as error:
        code = output_code(error)
    code = max(code, _flush_code())
    if code:
        raise typer.Exit(code)


@contextmanager
def early_leaving() -> Iterator[None]:
    """A reader of the pipe that leaves early ends what is printed in here, and no more: damage met so far is said."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def _flush_code() -> int:
    """Python flushes stdout once more when it ends, where it can say nothing and has exit codes of its own."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return output_code(error)
    return 0


def output_code(error: OSError) -> int:
    """Errors of opening name their file, those of writing do not."""
    _discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    failed = f"{error.filename}: " if error.filename else "stdout cannot be written: "
    say(f"{failed}{error.strerror}; see to space and rights of the disk, or name another place")
    return NOT_DONE


def _discard(stream: TextIO) -> None:
    """What is still to be written to it goes nowhere, and fails no more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Streams that the shell closed (``>&-``) become ones that fail as they would, with OSError: Python has None there,
    and the next file to be opened would take their number. Programs that are started find them closed, as before.
    """
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_RDONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def stdin_chunks() -> Iterator[bytes]:
    """All of standard input; CommandError where it cannot be read."""
    try:
        while chunk := sys.stdin.buffer.read(_CHUNK):
            yield chunk
    except OSError as error:
        raise CommandError(f"stdin cannot be read: {error.strerror}; give it something, or name a file") from None


class OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program with 1, which here means damage."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output: as wide as the terminal, or without bounds and colour in a pipe."""
    if sys.stdout.isatty():
        return OutputConsole(highlight=False)
    return OutputConsole(highlight=False, width=PIPE_WIDTH, no_color=True)


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        sys.stdout.write(safe_json(row) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(printable(line) + "\n")


@contextmanager
def progress(what: str, *, printing: bool = False) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """A bar on stderr while items are drawn from the wrapped iterable; only on a terminal.

    ``printing``: rows go to stdout meanwhile. The terminal may be where they end, unless stdout is a file.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not sys.stderr.isatty() or (printing and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode))
    # Left to itself rich takes what is written to stdout for the bar's terminal, also where it is a file.
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=hidden,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:

        def advancing(items: Iterable[Item]) -> Iterator[Item]:
            known = list(items)
            task = bar.add_task(what, total=len(known))
            for item in known:
                yield item
                bar.advance(task)

        yield advancing
