"""Follows a store that is being written: the spans that were added since the last look.

A look costs a stat of each live file and reads only what was added. A last line that is not finished is left for the
next look; one without its newline that is a whole record is taken, since a Collector writes the newline late. Start
records and sealed files are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from otel_gym.conventions import UNASSIGNED
from otel_gym.store.decode import decode_line
from otel_gym.store.layout import LIVE_SUFFIX, SPANS, rollout_id_of_folder
from otel_gym.store.lines import Line, Report, spans_of
from otel_gym.store.otlp_json import MalformedLineError
from otel_gym.store.span import StoredSpan

_CHUNK = 64 * 1024


@dataclass(slots=True)
class _Position:
    """How far a file was read: ``line`` lines, ``offset`` bytes."""

    inode: int
    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class FollowedSpan:
    rollout_id: str
    span: StoredSpan


class Follower:
    """``look`` gives the spans that were added to the live files of ``rollout_id``, or of all rollouts."""

    def __init__(self, directory: Path, report: Report, rollout_id: str | None = None) -> None:
        self._folder = directory / SPANS
        self._report = report
        self._rollout_id = rollout_id
        self._positions: dict[str, _Position] = {}

    def skip_what_is_there(self) -> None:
        """The next look begins behind the lines that are finished now."""
        for _, entry in self._live_files():
            with suppress(OSError), open(entry.path, "rb") as content:
                self._positions[entry.path] = _end_of_lines(content)

    def look(self) -> Iterator[FollowedSpan]:
        for rollout_id, entry in self._live_files():
            try:
                status = entry.stat()
            except FileNotFoundError:  # sealed and removed
                continue
            known = self._positions.get(entry.path)
            if known is None or known.inode != status.st_ino or known.offset > status.st_size:
                known = self._positions[entry.path] = _Position(status.st_ino)
            if known.offset < status.st_size:
                for span in self._added_to(Path(entry.path), known):
                    yield FollowedSpan(span.rollout_id if rollout_id == UNASSIGNED else rollout_id, span)

    def _live_files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        for folder in _entries(self._folder):
            rollout_id = rollout_id_of_folder(Path(folder.path))
            if rollout_id is None or self._rollout_id not in (None, rollout_id):
                continue
            for entry in _entries(folder.path):
                if entry.name.endswith(LIVE_SUFFIX) and entry.is_file():
                    yield rollout_id, entry

    def _added_to(self, path: Path, position: _Position) -> Iterator[StoredSpan]:
        try:
            content = path.open("rb")
        except OSError:
            return
        with content:
            content.seek(position.offset)
            for text in content:
                line = Line(path, position.line + 1, position.offset, text)
                if text.endswith(b"\n"):
                    spans = spans_of(line, self._report)
                else:
                    whole = _whole(text)
                    if whole is None:
                        return
                    spans = whole
                position.offset += len(text)
                position.line += text.endswith(b"\n")
                yield from spans


def _end_of_lines(content: IO[bytes]) -> _Position:
    """Behind the last newline; the lines before it are not counted, so damage is then told by its byte alone."""
    offset = content.seek(0, os.SEEK_END)
    while offset > 0:
        start = max(0, offset - _CHUNK)
        content.seek(start)
        newline = content.read(offset - start).rfind(b"\n")
        if newline >= 0:
            offset = start + newline + 1
            break
        offset = start
    return _Position(os.fstat(content.fileno()).st_ino, offset)


def _whole(text: bytes) -> list[StoredSpan] | None:
    """The spans of an unfinished line that is a record all the same; None: look again later."""
    if not text.endswith(b"}"):
        return None
    try:
        return decode_line(text)
    except MalformedLineError:
        return None


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
