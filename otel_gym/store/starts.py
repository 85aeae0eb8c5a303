"""When the first span of a store began, by a glance at its files: a fraction of the time that reading it takes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from otel_gym.conventions import TIME_KNOWN
from otel_gym.store.layout import LIVE_SUFFIX, PARQUET, SPANS
from otel_gym.store.lines import LINE_FILES, lines_of_file

_START = re.compile(rb'"startTimeUnixNano":"(\d+)"')
_CHUNK = 1 << 20
_TIME_KNOWN = f'"{TIME_KNOWN}"'


def earliest_start(directory: Path, runs: frozenset[str | None] | None = None) -> int | None:
    """UTC nanoseconds; of spans that name one of these runs only, if given. None if it cannot be told.

    Spans whose times are unknown are left out. A hint: what stands on odd lines, or names no run, may begin earlier.
    """
    return min((*_of_lines(directory, runs), *_of_parts(directory, runs)), default=None)


def _of_lines(directory: Path, runs: frozenset[str | None] | None) -> Iterator[int]:
    wanted = None if runs is None or None in runs else [f'"{run}"'.encode() for run in runs]
    unknown = _TIME_KNOWN.encode()
    for path in _line_files(directory / SPANS):
        for lines in _many_lines(path):
            text = b"".join(lines)
            if wanted is not None and not any(run in text for run in wanted):
                continue
            if unknown in text:
                text = b"".join(line for line in lines if unknown not in line)
            yield from map(int, _START.findall(text))


def _line_files(folder: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as folders:
        for each in folders:
            with suppress(OSError), os.scandir(each.path) as files:
                yield from (file.path for file in files if file.name.endswith(LINE_FILES) and file.is_file())


def _many_lines(path: str) -> Iterator[list[bytes]]:
    """Some at a time, so that a large file is not held."""
    if not path.endswith(LIVE_SUFFIX):
        yield from ([line.content] for line in lines_of_file(Path(path), lambda damage: None))
        return
    with suppress(OSError), open(path, "rb") as file:
        while lines := file.readlines(_CHUNK):
            yield lines


def _of_parts(directory: Path, runs: frozenset[str | None] | None) -> Iterator[int]:
    folder = directory / PARQUET if (directory / PARQUET).is_dir() else directory
    paths = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder] if folder.suffix == ".parquet" else []
    if not paths:
        return
    yield from import_module("otel_gym.store.parquet").earliest_starts(paths, runs, _TIME_KNOWN)  # slow to load
