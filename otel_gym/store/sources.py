"""Where spans are found, as (rollout ids, spans of one rollout): a store's parts, files of lines, Parquet.

A source reads one rollout at a time and holds no spans. ``spans`` gives them as they were written, repeats included.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from otel_gym.conventions import BODY_GAP, REQUEST_BODY, ROLLOUT_ID
from otel_gym.store.blobs import BlobStore
from otel_gym.store.layout import OPEN, SPANS, holds_rollouts, rollout_folder, rollout_id_of_folder
from otel_gym.store.lines import GZIP, ZSTD, Line, Report, is_line_file, lines_of_file, spans_of, spans_of_file
from otel_gym.store.repair import Damage
from otel_gym.store.span import StoredSpan
from otel_gym.store.whole_requests import Gap, media_at_hand, whole_requests

# Of a request that could not be rebuilt when it was sealed.
_GAP = REQUEST_BODY + BODY_GAP


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
            yield from with_whole_requests(spans_of_file(path, report), path, self._directory, report)


class LineFiles:
    """Files that hold spans of many rollouts. One pass notes where the lines of each rollout stand, and keeps no span.

    Compressed files are unpacked once, into a temporary file, since a line within them cannot be reached otherwise.
    ``left_out``: files beside them that do not begin as such files do.
    """

    def __init__(self, paths: Sequence[Path], left_out: Sequence[Path] = ()) -> None:
        self.left_out = left_out
        self._paths = paths
        self._unpacked: dict[Path, IO[bytes]] = {}
        self._places: _Places | None = None

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return self._indexed(report)

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        places = self._indexed(report).of(rollout_id)
        for number, of_file in groupby(places, key=attrgetter("file")):
            path = self._paths[number]
            spans = (
                span
                for line in self._lines_of_file(path, of_file)
                for span in spans_of(line, report)
                if span.rollout_id == rollout_id
            )
            yield from with_whole_requests(spans, path, None, report)

    def _lines_of_file(self, path: Path, places: Iterable[_Place]) -> Iterator[Line]:
        unpacked = self._unpacked.get(path)
        try:
            content = path.open("rb", _SEEKING_BUFFER) if unpacked is None else unpacked
        except OSError:  # what cannot be read was reported when it was indexed
            return
        try:
            for _, number, offset, length in places:
                for text in _lines_at(content, offset, length):
                    yield Line(path, number, offset, text)
                    number, offset = number + 1, offset + len(text)
        finally:
            if content is not unpacked:
                content.close()

    def _indexed(self, report: Report) -> _Places:
        if self._places is None:
            self._places = _Places()
            for number, path in enumerate(self._paths):
                unpacked = tempfile.TemporaryFile() if path.suffix in (GZIP, ZSTD) else None  # noqa: SIM115
                if unpacked is not None:
                    self._unpacked[path] = unpacked
                for line in lines_of_file(path, report):
                    if unpacked is not None:
                        unpacked.write(line.content)
                    for rollout_id in _rollouts_of_line(line, report):
                        self._places.add(rollout_id, number, line.number, line.offset, len(line.content))
            self._places.finish()
        return self._places


# Lines of one rollout stand apart: reading ahead of them is wasted.
_SEEKING_BUFFER = 4096
_CHUNK = 1 << 20


def _lines_at(content: IO[bytes], offset: int, length: int) -> Iterator[bytes]:
    content.seek(offset)
    while length > 0:
        text = content.read(min(length, _CHUNK))
        if len(text) < length and not text.endswith(b"\n"):
            text += content.readline(length - len(text))
        if not text:
            return
        length -= len(text)
        yield from BytesIO(text)


class _Place(NamedTuple):
    """Lines of one rollout that follow each other."""

    file: int
    line: int
    offset: int
    length: int


class _Places:
    """Where the lines of each rollout stand. The places lie in a temporary file, each with the rollout's one before it;
    in memory is only, of each rollout, which is the last.
    """

    _ENTRY = struct.Struct("<5Q")

    def __init__(self) -> None:
        self._entries = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._entries.close)
        self._number = 0
        self._last: dict[str, int] = {}
        self._growing: tuple[str, _Place] | None = None

    def add(self, rollout_id: str, file: int, line: int, offset: int, length: int) -> None:
        if self._growing is not None:
            known_id, known = self._growing
            if known_id == rollout_id and known.file == file and known.offset + known.length == offset:
                self._growing = (rollout_id, known._replace(length=known.length + length))
                return
            self._write(known_id, known)
        self._growing = (rollout_id, _Place(file, line, offset, length))

    def _write(self, rollout_id: str, place: _Place) -> None:
        self._entries.write(self._ENTRY.pack(self._last.get(rollout_id, 0), *place))
        self._number += 1
        self._last[rollout_id] = self._number

    def finish(self) -> None:
        if self._growing is not None:
            self._write(*self._growing)
            self._growing = None
        self._entries.flush()

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def of(self, rollout_id: str) -> list[_Place]:
        places = []
        number = self._last.get(rollout_id, 0)
        while number:
            entry = os.pread(self._entries.fileno(), self._ENTRY.size, (number - 1) * self._ENTRY.size)
            number, *place = self._ENTRY.unpack(entry)
            places.append(_Place(*place))
        return places[::-1]


class ParquetFiles:
    """Sealed files: a folder of ``*.parquet``, or one of them. Bodies are whole in them; their media lies in the store
    that the folder is part of.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        folder = path.parent if path.is_file() else path
        self._blobs = BlobStore(folder.absolute().parent)
        self._ids: dict[Path, tuple[tuple[int, int, int], frozenset[str]]] = {}
        self._groups: Any = None  # the row groups that were read last

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return {rollout_id for path in self._files() for rollout_id in self._ids_of(path, report)}

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        for path in self._files():
            if rollout_id in self._ids_of(path, report):
                parquet = import_module("otel_gym.store.parquet")  # pyarrow is slow to load
                try:
                    if self._groups is None:
                        self._groups = parquet.RowGroups()
                    spans = parquet.parquet_spans(path, rollout_id, self._groups)
                    yield from sealed_spans(spans, path, self._blobs, report)
                except parquet.PartError as error:
                    report(damaged_part(path, error))

    def _files(self) -> list[Path]:
        if self._path.is_file():
            return [self._path]
        try:
            names = os.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        paths = [self._path / name for name in sorted(names) if name.endswith(".parquet")]
        return [path for path in paths if path.is_file()]

    def _ids_of(self, path: Path, report: Report) -> frozenset[str]:
        state = _state(path)
        if state is None:
            return frozenset()
        known = self._ids.get(path)
        if known is None or known[0] != state:
            parquet = import_module("otel_gym.store.parquet")
            try:
                ids = frozenset(rollout_id for _, rollout_id in parquet.parquet_rollouts(path))
                with suppress(parquet.PartError):  # Parquet of others
                    for damage in parquet.damage_sealed(path):
                        report(damage)
            except parquet.PartError as error:
                report(damaged_part(path, error))
                ids = frozenset()
            known = self._ids[path] = (state, ids)
        return known[1]


def sealed_spans(spans: Iterable[StoredSpan], path: Path, blobs: BlobStore, report: Report) -> Iterator[StoredSpan]:
    """Spans of the sealed form with their media at hand; what is known to be missing of their bodies is reported."""
    for span in spans:
        report_gaps(media_at_hand(span, blobs), path, report)
        if _GAP in span.attributes:
            report(_body_missing(path, f"span {span.span_id}: {span.attributes[_GAP]}"))
        yield span


def damaged_part(path: Path, error: Exception) -> Damage:
    problem = str(error).removeprefix(f"{path}: ")
    return Damage(path, 0, problem, "its spans are left out; compact again if their live files are there")


def with_whole_requests(
    spans: Iterable[StoredSpan], path: Path, directory: Path | None, report: Report
) -> Iterable[StoredSpan]:
    """The spans of one rollout and writer file, in the order of writing, with request bodies put together.

    The one place where the parts that ``content_once`` cut a request into come together again. ``directory`` is the
    store in which media may lie; what cannot be put together is reported.
    """
    spans = list(spans)
    report_gaps(whole_requests(spans, None if directory is None else BlobStore(directory)), path, report)
    return spans


def report_gaps(gaps: Iterable[Gap], path: Path, report: Report) -> None:
    for gap in gaps:
        report(_body_missing(path, str(gap)))


def _body_missing(path: Path, problem: str) -> Damage:
    return Damage(path, 0, problem, "these bodies are absent; all else was read")


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
    """The line files of a folder; what was written last comes last. Whoever opened a FIFO would wait for ever."""
    found: list[tuple[int, Path]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_line_file(Path(entry.path)) and entry.is_file():
                with suppress(FileNotFoundError):  # sealed and removed meanwhile
                    found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [path for _, path in sorted(found)]


def below(folder: Path) -> tuple[list[Path], list[Path]]:
    """The line files of a folder and its subfolders, as others lay them out, and the stores among the subfolders.

    What stands in stores, in hidden folders and in packages is not looked at.
    """
    files: list[Path] = []
    stores: list[Path] = []
    for name, folders, names in os.walk(folder):
        place = Path(name)
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _PACKAGES)
        if place != folder and holds_rollouts(place):
            stores.append(place)
            folders.clear()
            continue
        files += (path for path in map(place.joinpath, names) if is_line_file(path) and path.is_file())
    return sorted(files), sorted(stores, key=lambda store: len(store.parts))


_PACKAGES = frozenset({"node_modules", "site-packages"})
