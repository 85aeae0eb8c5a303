"""A store read the short way where a rollout is plain, as views of whole stores ask for it.

Plain is a rollout all of whose spans stand, each once, in live files. To look for its other parts, and to put them
together, is more than half of the time that reading it takes otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_gym.id_rules import is_valid_id
from otel_gym.store.blobs import BlobStore
from otel_gym.store.decode import SpanLines
from otel_gym.store.executions import ids_of
from otel_gym.store.layout import LIVE_SUFFIX, OPEN, PARQUET, ROLLOUT_KEY, SPANS, is_store
from otel_gym.store.lines import LINE_FILES, Line, spans_of
from otel_gym.store.otlp_json import MalformedLineError
from otel_gym.store.reader import Store, span_order
from otel_gym.store.sources import report_gaps
from otel_gym.store.span import StoredSpan
from otel_gym.store.whole_requests import whole_requests

_BUFFER = 1 << 18


class PlainReader(Store):
    """Gives what ``Store`` gives."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory)
        self._is_of_live_files = is_store(self.directory)
        self._begun, self._sealed = (os.path.join(self.directory, part) for part in (OPEN, PARQUET))
        self._folders = os.path.join(self.directory, SPANS, ROLLOUT_KEY)
        self._blobs = BlobStore(self.directory)
        self._lines = SpanLines()

    def _merged(self, rollout_id: str) -> list[StoredSpan]:
        spans = self._plain(rollout_id) if self._is_of_live_files and is_valid_id(rollout_id) else None
        return super()._merged(rollout_id) if spans is None else spans

    def _plain(self, rollout_id: str) -> list[StoredSpan] | None:
        """None of a rollout that is not plain. The order of looking is that of ``Store``: what ends moves on."""
        if not _is_empty(self._begun) and any(self._sources[0].spans(rollout_id, self._report)):
            return None
        try:
            paths = _live_files(f"{self._folders}{rollout_id}")
            spans = [span for path in paths for span in self._spans_of_file(path)]
        except OSError:
            return None
        if not paths:
            return None
        if not _is_empty(self._sealed) and any(self._sources[-1].spans(rollout_id, self._report)):
            return None
        return sorted(spans, key=span_order) if len(set(map(ids_of, spans))) == len(spans) else None

    def _spans_of_file(self, path: str) -> list[StoredSpan]:
        spans: list[StoredSpan] = []
        decode, offset = self._lines.decode, 0
        with open(path, "rb", _BUFFER) as lines:
            for number, text in enumerate(lines, 1):
                try:
                    spans += decode(text)
                except MalformedLineError:
                    spans += spans_of(Line(Path(path), number, offset, text), self._report)
                offset += len(text)
        gaps = whole_requests(spans, self._blobs)
        if gaps:
            report_gaps(gaps, Path(path), self._report)
        return spans


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True


def _live_files(folder: str) -> list[str]:
    """As they were written; none if others stand beside them."""
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if entry.name.endswith(LINE_FILES) and entry.is_file()]
        if not all(file.name.endswith(LIVE_SUFFIX) for file in files):
            return []
        if len(files) > 1:
            files.sort(key=lambda file: (file.stat().st_mtime_ns, file.path))
        return [file.path for file in files]
