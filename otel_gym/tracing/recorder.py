"""The queue between traced code and the store, and the one thread that drains it.

Traced code hands over ended spans, or jobs that end spans (parsing an exchange); the thread runs them
and appends their lines, grouped. Nothing here raises into traced code or makes it wait; what
cannot be kept is counted.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable

from otel_gym.settings import DEFAULT_EXIT_TIMEOUT_S
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.writer import StoreWriter

logger = logging.getLogger("otel_gym")

# How long the thread gathers lines before it writes them. Far below the promised 100 ms.
LINGER_S = 0.02
# Rounds without work after which it sleeps until it is woken. Waking a thread costs traced code more
# than all else that it does here, so while there is traffic nobody wakes anybody.
_ROUNDS_BEFORE_SLEEP = 50

Job = Callable[[], None]
Line = tuple[str, bytes]
# Makes a line; bodies get their stored form from what the writer keeps of earlier ones.
Encode = Callable[[ContentOnce | None], bytes]

# What a finished span costs while it waits, beyond its texts.
_SPAN_BYTES = 4096


class Recorder:
    """``pending_bytes`` is what waits; ``spans_lost`` counts lines that found no room or no disk."""

    def __init__(
        self, new_writer: Callable[[], StoreWriter], queue_bytes: int, exit_timeout_s: float = DEFAULT_EXIT_TIMEOUT_S
    ) -> None:
        self._new_writer = new_writer
        self._queue_bytes = queue_bytes
        self._exit_timeout_s = exit_timeout_s
        self._reset()
        _recorders.add(self)

    def _reset(self) -> None:
        self._writer: StoreWriter | None = None
        self._condition = threading.Condition()
        self._items: deque[tuple[Job, int]] = deque()
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._asleep = False
        self._flush_wanted = False
        self._batch: list[Line] = []
        self._submitted = 0
        self._finished = 0
        self._counts: dict[str, int] = {}
        self._counts_written: dict[str, int] = {}
        self.pending_bytes = 0
        self.spans_lost = 0

    def count(self, name: str) -> None:
        """Adds one to a counter that is kept beside the spans (``uncaptured_calls`` …)."""
        with self._condition:
            self._counts[name] = self._counts.get(name, 0) + 1
        self._submit(_nothing, 0, 0)

    def hold(self, size: int) -> bool:
        """Books ``size`` bytes of an exchange that is still under way; False where there is no room."""
        with self._condition:
            if self.pending_bytes + size > self._queue_bytes:
                return False
            self.pending_bytes += size
            return True

    def add_span(self, rollout_id: str, encode: Encode) -> None:
        """Writes the line that ``encode`` makes, on the thread: traced code pays for the hand-over only."""
        if threading.get_ident() == self._thread_id:  # made by a job: part of the batch at hand
            self._add_line(rollout_id, encode)
        elif not self._submit(lambda: self._add_line(rollout_id, encode), _SPAN_BYTES, _SPAN_BYTES):
            self.spans_lost += 1

    def _add_line(self, rollout_id: str, encode: Encode) -> None:
        if self._writer is None:
            self._writer = self._new_writer()
        self._batch.append((rollout_id, encode(self._writer.content)))

    def add_job(self, job: Job, size: int, held: int = 0) -> bool:
        """Runs ``job`` on the thread; its ``size`` bytes, ``held`` of them booked before, count until it is written.

        False, and nothing is run, where there is no room.
        """
        return self._submit(job, size, size - held)

    def _submit(self, item: Job, size: int, more: int) -> bool:
        with self._condition:
            if more > 0 and self.pending_bytes + more > self._queue_bytes:
                return False
            self.pending_bytes += more
            self._items.append((item, size))
            self._submitted += 1
            if self._thread is None:
                self._start()
            elif self._asleep:
                self._condition.notify_all()
            return True

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="otel-gym-recorder", daemon=True)
        self._thread.start()

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was handed over is written; False if the time ran out first."""
        if threading.get_ident() == self._thread_id:
            return False
        with self._condition:
            target = self._submitted
            if self._finished >= target:
                return True
            self._flush_wanted = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: self._finished >= target, timeout_s)

    def close(self) -> None:
        """Writes what waits, within the exit's time limit; what is handed over later is still written."""
        self.flush(self._exit_timeout_s)

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        empty_rounds = 0
        while True:
            items = self._next_items(empty_rounds > _ROUNDS_BEFORE_SLEEP)
            empty_rounds = 0 if items else empty_rounds + 1
            for item, _ in items:
                self._take(item)
            self._write()
            with self._condition:
                self._finished += len(items)
                self.pending_bytes -= sum(size for _, size in items)
                self._condition.notify_all()

    def _next_items(self, may_sleep: bool) -> list[tuple[Job, int]]:
        with self._condition:
            if may_sleep:
                self._asleep = True
                self._condition.wait_for(lambda: self._items)
                self._asleep = False
            if not self._flush_wanted:
                self._condition.wait_for(lambda: self._flush_wanted, LINGER_S)
            self._flush_wanted = False
            items = list(self._items)
            self._items.clear()
            return items

    def _take(self, item: Job) -> None:
        try:
            item()
        except Exception:
            self.spans_lost += 1
            log_once("a span could not be made")

    def _write(self) -> None:
        batch, self._batch = self._batch, []
        try:
            writer = self._writer
            if writer is None:
                if not batch and not self._counts:
                    return
                writer = self._writer = self._new_writer()
            writer.write(batch)
            self._write_counts(writer)
        except Exception:
            self.spans_lost += len(batch)
            log_once("the store could not be written")
            return
        if writer.last_error is not None:
            log_once(f"spans are lost, the store cannot be written: {writer.last_error}", with_traceback=False)

    def _write_counts(self, writer: StoreWriter) -> None:
        with self._condition:
            counts = dict(self._counts)
        lost = self.spans_lost + writer.lines_lost
        if lost:
            counts["lost_spans"] = lost
        if counts == self._counts_written:
            return
        writer.write_counts(counts)
        self._counts_written = counts


def _nothing() -> None:
    """A job that only wakes the thread."""


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_said: set[str] = set()


def log_once(problem: str, *, with_traceback: bool = True) -> None:
    """Says a failure of ours once per kind; must never raise into the traced program."""
    if problem in _said:
        return
    _said.add(problem)
    logger.warning("otel_gym: %s", problem, exc_info=with_traceback)


def _reset_after_fork() -> None:
    """The child starts with an empty queue, no thread and its own file: nothing is written twice."""
    for recorder in list(_recorders):
        recorder._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
