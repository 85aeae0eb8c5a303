"""When the first span of a store began, by a glance at its files: a fraction of the time that reading it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from otel_gym.conventions import TIME_KNOWN
from otel_gym.store.layout import PARQUET
from otel_gym.store.lines import lines_of_file
from otel_gym.store.live_files import live_files, other_line_files

_START = re.compile(rb'"startTimeUnixNano":"(\d+)"')
_TIME_KNOWN = f'"{TIME_KNOWN}"'


def earliest_start(directory: Path, runs: frozenset[str | None] | None = None) -> int | None:
    """UTC nanoseconds; of spans that name one of these runs only, if given. None if it cannot be told.

    Spans whose times are unknown are left out. A hint: what stands on odd lines, or names no run, may begin earlier.
    """
    return min((*_of_lines(directory, runs), *_of_parts(directory, runs)), default=None)


def _of_lines(directory: Path, runs: frozenset[str | None] | None) -> Iterator[int]:
    wanted = None if runs is None or None in runs else [f'"{run}"'.encode() for run in runs]
    unknown = _TIME_KNOWN.encode()
    for path in (*(file.path for file in live_files(directory)), *other_line_files(directory)):
        for line in lines_of_file(path, lambda damage: None):
            text = line.content
            if unknown not in text and (wanted is None or any(run in text for run in wanted)):
                yield from map(int, _START.findall(text))


def _of_parts(directory: Path, runs: frozenset[str | None] | None) -> Iterator[int]:
    folder = directory / PARQUET if (directory / PARQUET).is_dir() else directory
    paths = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder] if folder.suffix == ".parquet" else []
    if not paths:
        return
    yield from import_module("otel_gym.store.parquet").earliest_starts(paths, runs, _TIME_KNOWN)  # slow to load
