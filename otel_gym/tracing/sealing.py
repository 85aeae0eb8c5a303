"""``OTEL_GYM_FORMAT=parquet``: a process seals its own files of a rollout once the rollout is over.

The work is done on a thread of its own, in batches, and never at the cost of a span: what is not sealed
stays in its live files, for ``otel-gym compact``. Live files are removed by the thread that writes them,
between two writes.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from otel_gym.tracing.logs import log_once

_COMPACT = "otel_gym.store.compact"
# Each sealing makes one part of all rollouts that ended since the last.
EVERY_S = 1.0
# Ended rollouts are remembered, since spans of theirs may come after their root's.
_MOST_ENDED = 100_000


class Sealer:
    """``ended`` and ``written`` are told by the recorder's thread, which also calls ``step`` between writes."""

    def __init__(self, directory: Path, seal_after_s: float) -> None:
        self._directory = directory
        self._seal_after_s = seal_after_s
        self._ended: set[str] = set()
        self._last_write: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._sealed: Any = None
        self._next = 0.0
        # pyarrow is slow to load, and holds up every thread while it does: before there are spans that wait for one.
        with suppress(ImportError):  # which is said when there is something to seal
            import_module(_COMPACT)

    def ended(self, rollout_id: str) -> None:
        """The root span of the rollout ended in this process."""
        if len(self._ended) >= _MOST_ENDED:
            self._ended.clear()  # what comes late of these is sealed when it was silent for long enough
        self._ended.add(rollout_id)

    def written(self, rollout_id: str) -> None:
        self._last_write[rollout_id] = time.monotonic()

    def has_work(self) -> bool:
        """Whether anything is to be sealed or removed, now or when it has been silent for long enough."""
        return self._thread is not None or bool(self._last_write)

    def step(self, writer_name: str) -> None:
        """Removes what was sealed, and begins to seal what is due."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = None
        self._remove_sealed()
        now = time.monotonic()
        due = self._due(now) if now >= self._next else []
        if due:
            self._next = now + EVERY_S
            self._thread = threading.Thread(
                target=self._seal, args=(writer_name, due), name="otel-gym-sealer", daemon=True
            )
            self._thread.start()

    def finish(self, writer_name: str) -> None:
        """Seals all there is, here and now: the process ends, and starts no thread any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._remove_sealed()
        rollout_ids = sorted(self._last_write)
        self._last_write.clear()
        if rollout_ids:
            self._seal(writer_name, rollout_ids)
            self._remove_sealed()

    def _remove_sealed(self) -> None:
        if self._sealed is not None:
            sealed, self._sealed = self._sealed, None
            import_module(_COMPACT).remove_sealed(sealed)

    def _due(self, now: float) -> list[str]:
        silent = {name for name, moment in self._last_write.items() if now - moment >= self._seal_after_s}
        due = sorted((self._ended & self._last_write.keys()) | silent)
        for rollout_id in due:
            self._last_write.pop(rollout_id, None)
        return due

    def _seal(self, writer_name: str, rollout_ids: list[str]) -> None:
        try:
            self._sealed = import_module(_COMPACT).seal(self._directory, writer_name, rollout_ids).sealed
        except Exception:
            log_once("rollouts could not be sealed, they stay in their live files: run otel-gym compact")
