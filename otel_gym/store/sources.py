"""Where spans are found, as (rollout ids, spans of one rollout): a store's parts, files of lines, Parquet.

A source reads one rollout at a time and holds no spans. ``spans`` gives them as they were written, repeats included.
"""

from __future__ import annotations

import os
import re
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol

from otel_gym.conventions import ROLLOUT_ID
from otel_gym.store.layout import OPEN, SPANS, rollout_folder, rollout_id_of_folder
from otel_gym.store.lines import GZIP, ZSTD, Line, Report, is_line_file, lines_of_file, spans_of, spans_of_file
from otel_gym.store.span import StoredSpan


class Source(Protocol):
    def rollout_ids(self, report: Report) -> Iterable[str]: ...

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]: ...


class StartRecords:
    """``open/``: the spans that had begun when their writer last wrote, each without an end.

    A span ends in ``spans/`` first and leaves ``open/`` then, so whoever reads ``open/`` first misses none.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / OPEN
        self._read: dict[Path, tuple[tuple[int, int, int], dict[str, list[StoredSpan]]]] = {}

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return {rollout_id for by_rollout in self._files(report) for rollout_id in by_rollout}

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        return [span for by_rollout in self._files(report) for span in by_rollout.get(rollout_id, ())]

    def _files(self, report: Report) -> Iterator[dict[str, list[StoredSpan]]]:
        for path in _oldest_first(self._folder):
            state = _state(path)
            if state is None:
                continue
            known = self._read.get(path)
            if known is None or known[0] != state:
                known = self._read[path] = (state, _by_rollout(spans_of_file(path, report)))
            yield known[1]


class LiveFolders:
    """``spans/rollout_id=<id>/``: files of lines, each by one writer. The folder says which rollout."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def rollout_ids(self, report: Report) -> Iterable[str]:
        folders = self._directory / SPANS
        if not folders.is_dir():
            return
        with os.scandir(folders) as entries:
            names = [Path(entry.path) for entry in entries if entry.is_dir()]
        yield from filter(None, map(rollout_id_of_folder, names))

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        try:
            folder = rollout_folder(self._directory, rollout_id)
        except ValueError:
            return
        for path in _oldest_first(folder):
            yield from whole_requests(spans_of_file(path, report))


class LineFiles:
    """Files that hold spans of many rollouts. One pass notes where the lines of each rollout stand, and keeps no span.

    Compressed files are unpacked once, into a temporary file, since a line within them cannot be reached otherwise.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._unpacked: dict[Path, IO[bytes]] = {}
        self._places: dict[str, _Places] | None = None

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return self._indexed(report)

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        places = self._indexed(report).get(rollout_id)
        if places is None:
            return
        for number, path in enumerate(self._paths):
            spans = self._spans_of_file(path, places.in_file(number), rollout_id, report)
            yield from whole_requests(spans)

    def _spans_of_file(
        self, path: Path, places: Iterable[_Place], rollout_id: str, report: Report
    ) -> Iterator[StoredSpan]:
        content: IO[bytes] | None = None
        try:
            for first_line, offset, length in places:
                content = content or self._unpacked.get(path) or path.open("rb")
                content.seek(offset)
                end = offset + length
                while offset < end:
                    text = content.readline(end - offset)
                    if not text:
                        return
                    for span in spans_of(Line(path, first_line, offset, text), report):
                        if span.rollout_id == rollout_id:
                            yield span
                    offset, first_line = offset + len(text), first_line + 1
        except FileNotFoundError:
            return
        finally:
            if content is not None and path not in self._unpacked:
                content.close()

    def _indexed(self, report: Report) -> dict[str, _Places]:
        if self._places is None:
            self._places = {}
            for number, path in enumerate(self._paths):
                packed = path.suffix in (GZIP, ZSTD)
                unpacked = self._unpacked[path] = tempfile.TemporaryFile() if packed else None  # type: ignore[assignment]  # noqa: SIM115
                for line in lines_of_file(path, report):
                    if unpacked is not None:
                        unpacked.write(line.content)
                    for rollout_id in _rollouts_of_line(line, report):
                        places = self._places.setdefault(rollout_id, _Places())
                        places.add(number, line.number, line.offset, len(line.content))
        return self._places


_Place = tuple[int, int, int]


class _Places:
    """Runs of lines: (number of the file, of the first line, offset, length), 32 bytes a run."""

    def __init__(self) -> None:
        self._numbers = array("Q")

    def add(self, file: int, line: int, offset: int, length: int) -> None:
        numbers = self._numbers
        if numbers and numbers[-4] == file and numbers[-2] + numbers[-1] == offset:
            numbers[-1] += length
        else:
            numbers.extend((file, line, offset, length))

    def in_file(self, file: int) -> Iterator[_Place]:
        numbers = self._numbers
        for at in range(0, len(numbers), 4):
            if numbers[at] == file:
                yield numbers[at + 1], numbers[at + 2], numbers[at + 3]


class ParquetFiles:
    """Sealed files: a folder of ``*.parquet``, or one of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[Path, frozenset[str]] = {}

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return {rollout_id for path in self._files() for rollout_id in self._ids_of(path)}

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        for path in self._files():
            if rollout_id in self._ids_of(path):
                parquet_spans = import_module("otel_gym.store.parquet").parquet_spans  # pyarrow is slow to load
                yield from (span for span in parquet_spans(path) if span.rollout_id == rollout_id)

    def _files(self) -> list[Path]:
        return [self._path] if self._path.is_file() else sorted(self._path.glob("*.parquet"))

    def _ids_of(self, path: Path) -> frozenset[str]:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        known = self._ids.get(path)
        if known is None:
            column = pq.read_table(path, columns=["rollout_id"])["rollout_id"]
            known = self._ids[path] = frozenset(pc.unique(column).to_pylist())
        return known


def whole_requests(spans: Iterable[StoredSpan]) -> Iterable[StoredSpan]:
    """The spans of one rollout and writer file, in the order of writing, with request bodies put together.

    Here the parts that ``content_once`` cut a request into come together again.
    """
    return spans


_ID = re.escape(ROLLOUT_ID.encode())
_ROLLOUT_OF_LINE = re.compile(rb'"key":"' + _ID + rb'","value":\{"stringValue":"([A-Za-z0-9._-]+)"')


def _rollouts_of_line(line: Line, report: Report) -> Iterable[str]:
    """The rollouts that a line has spans of; without decoding it if it holds one span that says it plainly.

    Damage is reported when the spans are read, or now if the line has none.
    """
    text = line.content
    if text.count(b'"traceId"') == 1:
        found = _ROLLOUT_OF_LINE.findall(text)
        if len(found) == 1:
            return (found[0].decode("ascii"),)
    return {span.rollout_id for span in spans_of(line, report)}


def _by_rollout(spans: Iterable[StoredSpan]) -> dict[str, list[StoredSpan]]:
    by_rollout: dict[str, list[StoredSpan]] = {}
    for span in spans:
        by_rollout.setdefault(span.rollout_id, []).append(span)
    return by_rollout


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _oldest_first(folder: Path) -> list[Path]:
    """The line files of a folder; what was written last comes last."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.stat().st_mtime_ns, Path(entry.path)) for entry in entries]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found) if is_line_file(path)]


def line_files_below(folder: Path) -> list[Path]:
    """Every line file of a folder and its subfolders, as others lay them out."""
    return sorted(path for path in folder.rglob("*") if is_line_file(path) and path.is_file())
