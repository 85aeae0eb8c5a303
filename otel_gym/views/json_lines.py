"""Rows as JSON lines, in a file that appears under its name when it is whole, or to be read as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from otel_gym.content import safe_json

Row = dict[str, Any]


def json_line(row: Row) -> str:
    """Strict JSON of one row, without its newline."""
    return safe_json({name: plain(value) for name, value in row.items()})


def plain(value: Any) -> Any:
    """Pydantic models inside a record as dicts."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return dict(value) if hasattr(value, "model_fields_set") else value


def write_json_lines(rows: Iterable[Row], path: Path) -> int:
    """Writes the file whole or not at all; returns the number of rows. Raises OSError."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as lines:
        return print_json_lines(rows, lines)


def print_json_lines(rows: Iterable[Row], output: IO[str]) -> int:
    count = 0
    for row in rows:
        output.write(json_line(row) + "\n")
        count += 1
    return count


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the file; renamed to it at the end, removed if anything failed.

    A link is followed, and what is no regular file (a FIFO, a device) is written into.
    """
    if is_stream(path) or (path.exists() and _is_device_path(path)):
        yield path
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """What is there is no regular file, but a FIFO or a device: it is written once, from beginning to end."""
    return path.exists() and not path.is_file()


def _is_device_path(path: Path) -> bool:
    """``/dev/stdout`` may lead to a regular file, which its opener, not we, would want replaced."""
    return Path(os.path.abspath(path)).parts[1:2] in (("dev",), ("proc",))
