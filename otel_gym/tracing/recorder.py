"""The queue between traced code and the store, and the one thread that drains it.

Traced code hands over ended spans, or jobs that end spans (parsing an exchange); the thread runs them
and appends their lines, grouped by rollout. Nothing here raises into traced code or makes it wait;
what cannot be kept is counted.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from otel_gym.settings import DEFAULT_EXIT_TIMEOUT_S
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.open_spans import OpenSpans
from otel_gym.tracing.sealing import Sealer
from otel_gym.tracing.worker_end import close_when_a_worker_ends

# How long the thread gathers spans before it makes lines of them, and how long a line waits for others before all are
# written. Far below the promised 100 ms, since the thread may get the interpreter late.
LINGER_S = 0.02
# Rounds without work after which it sleeps until it is woken. Waking a thread costs traced code more
# than all else that it does here, so while there is traffic nobody wakes anybody.
_ROUNDS_BEFORE_SLEEP = 50
# Lines that are gathered before they are written without waiting for the end of the round.
_BATCH_BYTES = 4 * 1024 * 1024

Job = Callable[[], None]
# Makes a line; bodies get their stored form from what the writer keeps of earlier ones.
Encode = Callable[[ContentOnce | None], bytes]


class _Item(NamedTuple):
    """What waits: a job (``run``), the line of a span, or a span whose line ``encode`` makes.

    ``written`` hears what became of it.
    """

    size: int
    rollout_id: str | None = None
    line: bytes = b""
    encode: Encode | None = None
    run: Job | None = None
    written: Callable[[bool], None] | None = None


class Recorder:
    """``pending_bytes`` is what waits; ``spans_lost`` counts spans that found no room or no disk."""

    def __init__(
        self,
        new_writer: Callable[[], StoreWriter],
        queue_bytes: int,
        exit_timeout_s: float = DEFAULT_EXIT_TIMEOUT_S,
        *,
        write_each: bool = False,
        new_sealer: Callable[[], Sealer] | None = None,
    ) -> None:
        self._new_writer = new_writer
        self._queue_bytes = queue_bytes
        self.exit_timeout_s = exit_timeout_s
        self._write_each = write_each
        self._new_sealer = new_sealer
        self._reset()
        _recorders.add(self)

    def _reset(self) -> None:
        self._writer: StoreWriter | None = None
        # Reentrant, since a signal handler flushes. Taken by itself where nobody waits: that costs less.
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._items: deque[_Item] = deque()
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._asleep = False
        self._hurry = False
        self._is_closing = False
        self._batches: dict[str, list[bytes]] = {}
        self._batch_bytes = 0
        self._batch_began = 0.0
        self._submitted = 0
        self._finished = 0
        self._counts: dict[str, int] = {}
        self._counts_written: dict[str, int] = {}
        self._sealer = self._new_sealer() if self._new_sealer else None
        self.open_spans = OpenSpans()
        self.pending_bytes = 0
        self.spans_lost = 0

    @property
    def has_begun(self) -> bool:
        """Whether anything was handed over in this process."""
        return self._thread is not None

    def count(self, name: str, number: int = 1) -> None:
        """Adds to a counter that is kept beside the spans (``uncaptured_calls`` …)."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + number
        self.wake()

    def hold(self, size: int) -> bool:
        """Books ``size`` bytes of an exchange that is still under way; False where there is no room."""
        with self._lock:
            if self.pending_bytes + size > self._queue_bytes:
                return False
            self.pending_bytes += size
            return True

    def release(self, size: int) -> None:
        """Gives back what was booked by ``hold``."""
        with self._lock:
            self.pending_bytes -= size

    def add_line(self, rollout_id: str, line: bytes) -> None:
        """Writes the line of a span, newline included."""
        if threading.get_ident() == self._thread_id:  # made by a job: part of the batch at hand
            self._keep(rollout_id, line)
        elif not self._submit(_Item(len(line), rollout_id, line), len(line)):
            self._no_room()
        elif self.pending_bytes * 2 > self._queue_bytes:
            time.sleep(0)  # let the thread have the interpreter: slower, but nothing is lost

    def add_span(self, rollout_id: str, encode: Encode, size: int) -> None:
        """Writes the line that ``encode`` makes, on the thread; ``size`` is about what waits until then."""
        if threading.get_ident() == self._thread_id:
            self._keep(rollout_id, encode(self._content_for(rollout_id)))
        elif not self._submit(_Item(size, rollout_id, b"", encode), size):
            self._no_room()

    def _no_room(self) -> None:
        self.spans_lost += 1
        time.sleep(0)

    def rollout_ended(self, rollout_id: str) -> None:
        """The root span of a rollout was handed over: its files may be sealed."""
        if self._sealer is not None:
            self._sealer.ended(rollout_id)

    def add_job(self, job: Job, size: int, held: int = 0, written: Callable[[bool], None] | None = None) -> bool:
        """Runs ``job`` on the thread; its ``size`` bytes, ``held`` of them booked before, count until it is written.

        False, and nothing is run, where there is no room. With ``written`` it is done at once, and
        ``written(True)`` is called on the thread when its spans are in the file (synced, if the writer syncs).
        """
        return self._submit(_Item(size, run=job, written=written), size - held)

    def _submit(self, item: _Item, more: int) -> bool:
        with self._lock:
            if more > 0 and self.pending_bytes + more > self._queue_bytes:
                return False
            self.pending_bytes += more
            self._items.append(item)
            self._submitted += 1
            if self._thread is None:
                self._start()
            elif self._asleep or item.written is not None:
                self._hurry = self._hurry or item.written is not None
                self._condition.notify_all()
            return True

    def wake(self) -> None:
        """Makes the thread look within its next round, where it may be asleep."""
        if self._asleep or self._thread is None:
            self._submit(_Item(0), 0)

    def _start(self) -> None:
        close_when_a_worker_ends(_close_all)
        self._thread = threading.Thread(target=self._run, name="otel-gym-recorder", daemon=True)
        self._thread.start()

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was handed over is written; False if the time ran out first."""
        if threading.get_ident() == self._thread_id:
            return False
        with self._condition:
            if self._finished >= self._submitted:
                if self._counts == self._counts_written:
                    return True
                self._submit(_Item(0), 0)  # the round that takes it writes the counters
            target = self._submitted
            self._hurry = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: self._finished >= target, timeout_s)

    def give_way(self, seconds: float) -> None:
        """Waits with the queue open to others, also in a signal handler that interrupted what had locked it."""
        with self._condition:
            self._condition.wait(seconds)

    def close(self, timeout_s: float | None = None) -> bool:
        """Writes what waits, and seals it where files are sealed, within the exit's time limit; False if it ran out.

        What is handed over later is still written.
        """
        if self._sealer is not None and self._writer is not None:
            self._is_closing = True
            self._submit(_Item(0), 0)
        return self.flush(self.exit_timeout_s if timeout_s is None else timeout_s)

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        _recorder_of_thread[self._thread_id] = self
        empty_rounds, linger_s = 0, LINGER_S
        while True:
            is_sealing = self._sealer is not None and self._sealer.has_work()
            items = self._next_items(empty_rounds > _ROUNDS_BEFORE_SLEEP and not is_sealing, linger_s)
            began = time.monotonic()
            empty_rounds = 0 if items else empty_rounds + 1
            for item in items:
                self._take(item)
            self._write()
            self._write_rest()
            # What came during a long round has waited long enough.
            linger_s = LINGER_S if time.monotonic() - began < LINGER_S else 0.0
            with self._condition:
                self._finished += len(items)
                self.pending_bytes -= sum(item.size for item in items)
                self._condition.notify_all()

    def _next_items(self, may_sleep: bool, linger_s: float) -> list[_Item]:
        with self._condition:
            if may_sleep:
                self._asleep = True
                self._condition.wait_for(lambda: self._items)
                self._asleep = False
            if linger_s and not self._hurry:
                self._condition.wait_for(lambda: self._hurry, linger_s)
            self._hurry = False
            items = list(self._items)
            self._items.clear()
            return items

    def _take(self, item: _Item) -> None:
        lost = self.spans_lost
        try:
            if item.run is not None:
                item.run()
            elif item.rollout_id is not None:
                line = item.encode(self._content_for(item.rollout_id)) if item.encode else item.line
                self._keep(item.rollout_id, line)
        except Exception:
            self.spans_lost += 1
            log_once("a span could not be made")
        if item.written is not None:
            self._write()
            _tell(item.written, self.spans_lost == lost)
        elif self._write_each or self._batch_bytes > _BATCH_BYTES or self._waits_too_long():
            self._write()

    def _waits_too_long(self) -> bool:
        return bool(self._batches) and time.monotonic() - self._batch_began > LINGER_S

    def _keep(self, rollout_id: str, line: bytes) -> None:
        if not self._batches:
            self._batch_began = time.monotonic()
        batch = self._batches.get(rollout_id)
        if batch is None:
            batch = self._batches[rollout_id] = []
        batch.append(line)
        self._batch_bytes += len(line)

    def _write(self) -> None:
        batches, self._batches, self._batch_bytes = self._batches, {}, 0
        for rollout_id, batch in batches.items():
            try:
                self._current_writer().append(rollout_id, b"".join(batch))
                if self._sealer is not None:
                    self._sealer.written(rollout_id)
            except Exception as error:
                self._lose(len(batch), error)

    def _content_for(self, rollout_id: str) -> ContentOnce | None:
        writer = self._current_writer()
        return writer.content if rollout_id in self._batches else writer.content_for(rollout_id)

    def _current_writer(self) -> StoreWriter:
        if self._writer is None:
            self._writer = self._new_writer()
        return self._writer

    def _write_rest(self) -> None:
        """Start records and counters: small, and never at the cost of a span."""
        try:
            if self.open_spans.has_changed():
                self.open_spans.write(self._current_writer())
            self._write_counts()
            if self._sealer is not None and self._writer is not None:
                if self._is_closing:
                    self._is_closing = False
                    self._sealer.finish(self._writer.name)
                self._sealer.step(self._writer.name)
        except Exception as error:
            self._lose(0, error)

    def _write_counts(self) -> None:
        with self._condition:
            counts = dict(self._counts)
        if self.spans_lost:
            counts["lost_spans"] = self.spans_lost
        if counts != self._counts_written:
            self._current_writer().write_counts(counts)
            self._counts_written = counts

    def _lose(self, count: int, error: Exception) -> None:
        self.spans_lost += count
        if isinstance(error, OSError):
            log_once(f"the store cannot be written, spans are lost and counted: {error}", with_traceback=False)
        else:
            log_once("the store could not be written")


def _tell(written: Callable[[bool], None], success: bool) -> None:
    try:
        written(success)
    except Exception:  # whoever asked is gone; the thread goes on
        log_once("nobody could be told that a span is on disk")


_recorder_of_thread: dict[int, Recorder] = {}


def recorder_of_this_thread() -> Recorder | None:
    """The recorder whose job runs here: its spans go where the job was handed in, also after ``configure``."""
    return _recorder_of_thread.get(threading.get_ident())


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close()


def _reset_after_fork() -> None:
    """The child starts with an empty queue, no thread and its own file: nothing is written twice."""
    _recorder_of_thread.clear()
    for recorder in list(_recorders):
        recorder._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
