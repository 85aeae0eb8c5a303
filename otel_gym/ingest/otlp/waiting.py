"""The file of spans that wait for their rollout: on disk under ``unassigned``, and gone from there once it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from otel_gym.conventions import UNASSIGNED
from otel_gym.store.layout import LIVE_SUFFIX, rollout_folder
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.logs import log_once

# It is made anew so often at most.
_EVERY_S = 1.0


class WaitingFile:
    """A file of its own, made anew without the spans that left it. Whoever reads the store meets nothing special."""

    def __init__(self, new_writer: Callable[[], StoreWriter]) -> None:
        self._new_writer = new_writer
        self._writer: StoreWriter | None = None
        self._lines: list[bytes] = []
        self._is_untidy = False
        self._tidied_at = 0.0

    @property
    def tidy_in_s(self) -> float | None:
        """When ``tidy`` has something to do; None: not before spans leave."""
        return max(0.0, self._tidied_at + _EVERY_S - time.monotonic()) if self._is_untidy else None

    def add(self, span: StoredSpan) -> None:
        self._lines.append(line_of_span(span) + b"\n")

    def write(self) -> OSError | None:
        """What was added since the last time."""
        lines, self._lines = self._lines, []
        if not lines:
            return None
        if self._writer is None:
            self._writer = self._new_writer()
        try:
            self._writer.append(UNASSIGNED, b"".join(lines))
        except OSError as error:
            return error
        return None

    def some_left(self) -> None:
        """Spans in it are in the file of their rollout now."""
        self._is_untidy = True

    def keep(self) -> None:
        """Spans that left it could not be written where they belong: it stays as it is, and another is begun."""
        self._writer, self._is_untidy = None, False

    def tidy(self, waiting: Iterable[StoredSpan]) -> None:
        """Leaves in it only those that still wait."""
        old, self._is_untidy, self._tidied_at = self._writer, False, time.monotonic()
        lines = b"".join(line_of_span(span) + b"\n" for span in waiting)
        self._writer = None
        try:
            if lines:
                self._writer = self._new_writer()
                self._writer.append(UNASSIGNED, lines)
            if old is not None:
                (rollout_folder(old.directory, UNASSIGNED) / f"{old.name}{LIVE_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:  # what has left stands twice
            log_once(f"spans whose rollout is known now stay under {UNASSIGNED} too: {error}", with_traceback=False)
