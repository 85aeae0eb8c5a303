"""Appends encoded lines to the live files of a store.

No thread and no queue here: whoever calls decides when. One writer belongs to one process, and its
files to it alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from otel_gym.store.content_once import ContentOnce
from otel_gym.store.folders import FILE_MODE, make_folder, sync
from otel_gym.store.layout import COUNTS, LIVE_SUFFIX, NOTES, OPEN, new_writer_name, rollout_folder
from otel_gym.store.otlp_json import encode_json


class StoreWriter:
    """Writes whole lines by rollout.

    ``sync`` True: what ``append`` returns for is on the disk, not in its cache. A failure (disk full,
    no permission, folder gone) is raised as OSError after the file was cut back to its last whole line,
    so that writing can go on later without a torn line in the middle. ``content`` gives the bodies of a
    line their stored form, and is told here what became of the line. ``notes``: what readers should know
    of how the spans come here, written before the first of them.
    """

    def __init__(
        self,
        directory: Path,
        service: str = "unknown",
        *,
        sync: bool = False,
        content: ContentOnce | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.content = content
        self.name = new_writer_name(service)
        self.sync = sync
        self._paths: dict[str, Path] = {}
        self._notes = notes

    def append(self, rollout_id: str, lines: bytes | bytearray) -> None:
        """Appends lines, each with its newline, by one system call where the kernel takes them whole."""
        try:
            self._append(rollout_id, lines)
        except BaseException:
            if self.content is not None:
                self.content.failed(rollout_id)
            raise
        if self.content is not None:
            self.content.committed(rollout_id)

    def content_for(self, rollout_id: str) -> ContentOnce | None:
        """What gives the bodies of the rollout's next line their stored form.

        A file may have been sealed and removed since the last line: the next one builds on nothing in it.
        """
        path = self._paths.get(rollout_id)
        if self.content is not None and path is not None and not path.exists():
            self._begin_anew(rollout_id)
        return self.content

    def _begin_anew(self, rollout_id: str) -> None:
        del self._paths[rollout_id]
        if self.content is not None:
            self.content.forget(rollout_id)

    def _append(self, rollout_id: str, lines: bytes | bytearray) -> None:
        descriptor = self._open(rollout_id)
        try:
            _append_whole(descriptor, lines)
            if self.sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, rollout_id: str) -> int:
        path = self._paths.get(rollout_id)
        if path is not None:
            try:
                return os.open(path, os.O_WRONLY | os.O_APPEND)
            except FileNotFoundError:  # it was removed since the lines were made
                self._begin_anew(rollout_id)
        self._write_notes()
        path = rollout_folder(self.directory, rollout_id) / f"{self.name}{LIVE_SUFFIX}"
        make_folder(path.parent, synced=self.sync)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE)
        if self.sync:
            sync(path.parent)
        self._paths[rollout_id] = path
        return descriptor

    def append_open(self, lines: bytes | bytearray) -> None:
        """Appends start records of spans that are still open."""
        self._write_notes()
        path = self._open_spans_path()
        make_folder(path.parent, synced=self.sync)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            _append_whole(descriptor, lines)
        finally:
            os.close(descriptor)

    def replace_open(self, lines: bytes | bytearray) -> None:
        """Replaces all start records of this writer; without any the file goes."""
        path = self._open_spans_path()
        if lines:
            self._replace(path, lines)
        else:
            path.unlink(missing_ok=True)

    def write_counts(self, counts: Mapping[str, int]) -> None:
        """Replaces this process's counters (``uncaptured_calls``, ``lost_spans``) beside the spans."""
        self._write_notes()
        self._replace(self.directory / COUNTS / f"{self.name}.json", encode_json(dict(counts)))

    def _write_notes(self) -> None:
        """Never at the cost of a span: what cannot be written now is tried again before the next file."""
        if self._notes:
            with suppress(Exception):
                self._replace(self.directory / NOTES / f"{self.name}.json", encode_json(dict(self._notes)))
                self._notes = None

    def _open_spans_path(self) -> Path:
        return self.directory / OPEN / f"{self.name}{LIVE_SUFFIX}"

    def _replace(self, path: Path, content: bytes | bytearray) -> None:
        make_folder(path.parent, synced=self.sync)
        temporary = path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            _write_all(descriptor, content)
        finally:
            os.close(descriptor)
        temporary.replace(path)


def _append_whole(descriptor: int, lines: bytes | bytearray) -> None:
    start = os.fstat(descriptor).st_size
    try:
        _write_all(descriptor, lines)
    except OSError:
        os.ftruncate(descriptor, start)
        raise


def _write_all(descriptor: int, content: bytes | bytearray) -> None:
    view = memoryview(content)
    while view:
        written = os.write(descriptor, view)
        view = view[written:]
