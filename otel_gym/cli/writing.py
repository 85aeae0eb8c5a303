"""How commands write files."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from otel_gym.cli.common import CommandError, early_leaving
from otel_gym.views.json_lines import replacing

Files = Mapping[str, Iterable[bytes]]


def write_files(folder: Path, files: Files) -> None:
    """Files by their paths below ``folder``, in pieces."""
    try:
        for name, pieces in files.items():
            path = folder / name
            if ".." in Path(name).parts or not path.is_relative_to(folder):
                raise CommandError(f"{name!r} would lie outside of {folder}: the file it is from names it so")
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                file.writelines(pieces)
    except OSError as error:
        raise not_written(folder, error) from None


def write_lines(lines: Iterable[bytes], output: Path | None) -> None:
    """Lines, which come without their newlines, into a file, whole or not at all; None is stdout."""
    if output is None:
        with early_leaving():
            for line in lines:
                sys.stdout.buffer.write(line + b"\n")
        return
    try:
        with replacing(output) as temporary, temporary.open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise not_written(output, error) from None


def not_written(output: Path, error: OSError) -> Exception:
    """A reader of a FIFO that left is no failure, and goes on as it is."""
    if isinstance(error, BrokenPipeError):
        return error
    return CommandError(f"{output} cannot be written: {error.strerror}; give another -o FILE")


@contextmanager
def tidied_when_ended() -> Iterator[None]:
    """A command that is told to end (SIGTERM), or whose terminal is gone (SIGHUP), leaves nothing of itself behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def without_collector() -> Iterator[None]:
    """Rows, spans and steps are no cycles, and the collector would look at each many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
