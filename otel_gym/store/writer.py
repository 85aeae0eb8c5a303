"""Appends encoded lines to the live files of a store.

No thread and no queue here: whoever calls decides when. One writer belongs to one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from otel_gym.store.content_once import ContentOnce
from otel_gym.store.layout import COUNTS, LIVE_SUFFIX, new_writer_name, rollout_folder
from otel_gym.store.otlp_json import encode_json


class StoreWriter:
    """Writes lines by rollout; ``lines_written`` and ``lines_lost`` count what became of them.

    ``content`` gives the bodies of a line their stored form, and is told here what became of the line.
    A line that cannot be written (disk full, no permission) is counted and ``last_error`` says why;
    nothing is raised.
    """

    def __init__(self, directory: Path, service: str = "unknown", content: ContentOnce | None = None) -> None:
        self.directory = directory
        self.content = content
        self.name = new_writer_name(service)
        self.lines_written = 0
        self.lines_lost = 0
        self.last_error: OSError | None = None
        self._paths: dict[str, Path] = {}
        self._torn: set[str] = set()

    def write(self, lines: Iterable[tuple[str, bytes]]) -> None:
        """Appends (rollout id, line without its newline) pairs, one system call per rollout."""
        batches: dict[str, list[bytes]] = {}
        for rollout_id, line in lines:
            batches.setdefault(rollout_id, []).append(line)
        try:
            for rollout_id, batch in batches.items():
                self._append(rollout_id, batch)
        finally:
            if self.content is not None:
                self.content.failed()  # what was not committed

    def _append(self, rollout_id: str, batch: list[bytes]) -> None:
        head = b"\n" if rollout_id in self._torn else b""
        content = head + b"\n".join(batch) + b"\n"
        try:
            descriptor = self._open(rollout_id)
        except OSError as error:
            self._lose(batch, error)
            return
        try:
            _write_all(descriptor, content)
        except OSError as error:
            self._torn.add(rollout_id)
            self._lose(batch, error)
        else:
            self._torn.discard(rollout_id)
            if self.content is not None:
                self.content.committed(rollout_id)
            self.lines_written += len(batch)
        finally:
            os.close(descriptor)

    def _open(self, rollout_id: str) -> int:
        path = self._paths.get(rollout_id)
        if path is not None:
            try:
                return os.open(path, os.O_WRONLY | os.O_APPEND)
            except FileNotFoundError:  # someone cleared the store under us: begin anew
                if self.content is not None:
                    self.content.forget(rollout_id)
        folder = rollout_folder(self.directory, rollout_id)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}{LIVE_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._paths[rollout_id] = path
        return descriptor

    def write_counts(self, counts: Mapping[str, int]) -> None:
        """Replaces this process's counters (``uncaptured_calls``, ``lost_spans``) beside the spans."""
        path = self.directory / COUNTS / f"{self.name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(encode_json(dict(counts)))
            temporary.replace(path)
        except OSError as error:
            self.last_error = error

    def _lose(self, batch: list[bytes], error: OSError) -> None:
        self.lines_lost += len(batch)
        self.last_error = error


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        written = os.write(descriptor, view)
        view = view[written:]
