"""Which rollout a trace is of, by a glance at a store that is being written.

Where a process's traces stand is seen at the beginning of its files, and of rollouts that are open in their start
records. Sealed files are not looked at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from otel_gym.conventions import ROLLOUT_ID, UNASSIGNED
from otel_gym.id_rules import is_valid_id
from otel_gym.store.decode import decode_line
from otel_gym.store.foreign import dynamo
from otel_gym.store.layout import LIVE_SUFFIX, OPEN, SPANS, rollout_id_of_folder
from otel_gym.store.otlp_json import MalformedLineError
from otel_gym.store.span import StoredSpan

_TRACE_ID = re.compile(rb'"traceId":"([0-9a-f]{32})"')
_HEAD_BYTES = 64 * 1024
# The store is looked at so often at most.
_EVERY_S = 1.0


class StoredTraces:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rollouts: dict[str, set[str]] = {}
        self._seen: set[str] = set()
        self._looked_at = float("-inf")

    def rollout_of_served(self, span: StoredSpan) -> str | None:
        """Of a span of Dynamo's, which stands below a client's in its trace. Of others, a trace may hold several."""
        return self.rollout_of(span.trace_id) if dynamo.DIALECT.is_made(span) else None

    def rollout_of(self, trace_id: str) -> str | None:
        """None where the store has no span of the trace that names a rollout, or spans of several rollouts."""
        if trace_id not in self._rollouts and time.monotonic() - self._looked_at >= _EVERY_S:
            self._looked_at = time.monotonic()
            for found, rollout_id in (*self._of_files(), *self._of_open()):
                self._rollouts.setdefault(found, set()).add(rollout_id)
        rollouts = self._rollouts.get(trace_id, set())
        return next(iter(rollouts)) if len(rollouts) == 1 else None

    def _of_files(self) -> Iterator[tuple[str, str]]:
        for folder in _folders(self._directory / SPANS):
            rollout_id = rollout_id_of_folder(folder)
            if rollout_id is None or rollout_id == UNASSIGNED:
                continue
            with suppress(OSError):
                for file in os.scandir(folder):
                    if file.name.endswith(LIVE_SUFFIX) and file.path not in self._seen:
                        trace_ids = set(_TRACE_ID.findall(_head(file.path)))
                        if trace_ids:
                            self._seen.add(file.path)
                        yield from ((trace_id.decode(), rollout_id) for trace_id in trace_ids)

    def _of_open(self) -> Iterator[tuple[str, str]]:
        with suppress(OSError):
            for file in (self._directory / OPEN).glob(f"*{LIVE_SUFFIX}"):
                for line in file.read_bytes().splitlines():
                    with suppress(MalformedLineError):
                        for span in decode_line(line):
                            rollout_id = span.attributes.get(ROLLOUT_ID)
                            if isinstance(rollout_id, str) and is_valid_id(rollout_id) and rollout_id != UNASSIGNED:
                                yield span.trace_id, rollout_id


def _folders(spans: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(spans) if entry.is_dir()]
    except OSError:
        return []


def _head(path: str) -> bytes:
    with open(path, "rb") as content:
        return content.read(_HEAD_BYTES)
