"""The live sink: spans of a traced process as Dynamo's trace files, when they end.

One thread writes; what traced code does is to put a span into a bounded queue. A process knows its own spans only: of a
call that it captured more than once the innermost capture is written; one that two processes capture, by both.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from opentelemetry.sdk.trace import ReadableSpan, Span

from otel_gym.content import body_text
from otel_gym.dynamo_settings import (
    AGENT_TRACE,
    JSONL,
    JSONL_GZ,
    REQUESTS,
    STDERR,
    TOOLS,
    TraceSettings,
    read_trace_settings,
)
from otel_gym.records.replay_hashes import ReplayHashError
from otel_gym.settings import Settings, say_once
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.tracing.live_sinks import Count
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import plain_attributes
from otel_gym.tracing.payloads import Payload
from otel_gym.tracing.worker_end import close_when_a_worker_ends
from otel_gym.views.dynamo.files import LinesFile, SegmentFiles
from otel_gym.views.dynamo.open_spans import OpenSpans
from otel_gym.views.dynamo.places import MOST_ROOTS, Place, learn_root
from otel_gym.views.dynamo.records import event_json, line_of, records_of
from otel_gym.views.dynamo.requests import NO_ANSWER, Answer, answer_of, is_answered
from otel_gym.views.dynamo.tools import is_run

LOST = "dynamo_lost_records"


class TraceFile(Protocol):
    @property
    def waiting(self) -> int: ...

    def add(self, line: bytes) -> None: ...

    def flush(self) -> None: ...


class _Stderr:
    """Each line as Dynamo logs it."""

    waiting = 0

    def __init__(self, log_type: str) -> None:
        self._log_type = log_type

    def add(self, line: bytes) -> None:
        stream = sys.stderr
        if stream is None:
            return
        try:
            stream.write(f'INFO otel_gym: log_type="{self._log_type}" record={line.decode()}\n')
            stream.flush()
        except ValueError as error:  # closed
            raise OSError(str(error)) from None

    def flush(self) -> None:
        """Nothing waits."""


class _Waiting(NamedTuple):
    """``at``: when it ended, by the monotonic clock."""

    at: float
    span: ReadableSpan
    attributes: Mapping[str, Any]
    place: Place
    answer: Answer


def sinks(environ: Mapping[str, str], settings: Settings, count: Count) -> list[DynamoSink]:
    """One for each schema that is switched on; what is asked for and not written is said."""
    made = []
    for each in read_trace_settings(environ):
        for problem in each.problems:
            say_once(problem)
        if each.sinks:
            made.append(DynamoSink(each, settings.trace_block_size, count))
    return made


class DynamoSink:
    """``block_size``: tokens of a block of replay hashes, None: not known. ``count`` hears what is lost."""

    def __init__(self, settings: TraceSettings, block_size: int | None, count: Count) -> None:
        self.settings = settings
        self._block_size = block_size
        self._count = count
        self._open = OpenSpans()
        self._roots: dict[str, str] = {}
        self._reset()
        _sinks.add(self)

    def _reset(self) -> None:
        """Also of a forked child: its queue is empty, its segments are its own."""
        # Reentrant, since a signal handler flushes.
        self._condition = threading.Condition(threading.RLock())
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._asleep = False
        self._hurry = False
        self._added = self._taken = self._done = 0
        self._files = [_file(sink, self.settings) for sink in self.settings.sinks]
        self._began = time.monotonic()

    # ── in traced code ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_start(self, span: Span) -> None:
        self._start()
        self._open.start(span)

    def add(self, span: ReadableSpan, payload: Payload | None) -> None:
        attributes = payload.attributes if payload is not None and payload.attributes else plain_attributes(span)
        ended = self._open.end(span, attributes)
        answer = NO_ANSWER
        if not is_run(attributes):
            if not is_answered(attributes) or ended.is_told_elsewhere:
                return
            answer = self._answer(attributes, payload)
        self._put(_Waiting(time.monotonic(), span, attributes, ended.place, answer))

    def _answer(self, attributes: Mapping[str, Any], payload: Payload | None) -> Answer:
        response = None if payload is None else payload.response
        is_text = response is not None and response.coding is None and response.whole_bytes is None
        return answer_of(attributes, body_text(response)[0] if response is not None and is_text else None)

    def _put(self, item: _Waiting) -> None:
        with self._condition:
            has_room = len(self._waiting) < self.settings.capacity
            if not has_room:
                self._waiting.popleft()
                self._taken += 1
            self._waiting.append(item)
            self._added += 1
            if self._asleep or len(self._waiting) * 2 >= self.settings.capacity:
                self._condition.notify_all()
        if not has_room:
            self._lose(1, f"more than {self._name('CAPACITY')}={self.settings.capacity} waited to be written")

    def _start(self) -> None:
        """Early: a process that ends can start no thread any more."""
        if self._thread is not None:
            return
        with self._condition:
            if self._thread is not None:
                return
            close_when_a_worker_ends(_flush_all, priority=-1)
            thread = threading.Thread(target=self._run, name="otel-gym-dynamo", daemon=True)
            thread.start()
            self._thread = thread

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that ended is written; False if the time ran out first."""
        with self._condition:
            target = self._added
            if self._done >= target:
                return True
            self._hurry = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: self._done >= target, max(0.0, timeout_s))

    # ── on the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while True:
            with self._condition:
                self._asleep = True
                self._condition.wait_for(lambda: self._waiting)
                self._asleep = False
            tick = time.monotonic() + self.settings.flush_interval_ms / 1000
            is_due = False
            while not is_due:
                is_due = self._wait_until(tick)
                self._drain()
            for file in self._files:
                self._into(file, file.flush)
            with self._condition:
                self._done = self._taken
                self._condition.notify_all()

    def _wait_until(self, tick: float) -> bool:
        """For the tick, for who waits, or for half of the queue; whether what waits is due."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._hurry or len(self._waiting) * 2 >= self.settings.capacity,
                max(0.0, tick - time.monotonic()),
            )
            is_due = self._hurry or time.monotonic() >= tick
            self._hurry = False
            return is_due

    def _drain(self) -> None:
        while True:
            with self._condition:
                if not self._waiting:
                    return
                item = self._waiting.popleft()
                self._taken += 1
            try:
                self._write(item)
            except Exception:
                self._lose(1, None)
                log_once("a span could not be made a record of Dynamo's")

    def _write(self, item: _Waiting) -> None:
        learn_root(item.place.context, self._roots, MOST_ROOTS)
        for record in self._records(item):
            if not self._is_wanted(record["event_type"]):
                continue
            timestamp_ms = max(0, int((item.at - self._began) * 1000))
            event = event_json(record).encode()
            for file in self._files:
                line = event if isinstance(file, _Stderr) else line_of(event, timestamp_ms)
                self._into(file, partial(file.add, line))

    def _records(self, item: _Waiting) -> list[dict[str, Any]]:
        span, schema = stored_span(item.span, item.attributes), self.settings.schema
        size = self._block_size if self.settings.replay_hashes else None
        if item.answer.prompt_token_ids is not None and self.settings.replay_hashes and size is None:
            say_once(
                "token ids are known, but Dynamo's replay hashes need the block size: set OTEL_GYM_TRACE_BLOCK_SIZE to "
                f"the tokens of a block, or {self._name('REPLAY_HASHES')}=0"
            )
        try:
            return records_of(span, item.place, schema, answer=item.answer, block_size=size, roots=self._roots)
        except ReplayHashError as error:
            say_once(f"no replay hashes are written: {error}")
            return records_of(span, item.place, schema, answer=item.answer, roots=self._roots)

    def _is_wanted(self, event_type: str) -> bool:
        return (REQUESTS if event_type == REQUESTS else TOOLS) in self.settings.records

    def _into(self, file: TraceFile, write: Callable[[], None]) -> None:
        waiting = file.waiting
        try:
            write()
        except OSError as error:
            self._lose(max(1, waiting - file.waiting), str(error))

    def _lose(self, number: int, reason: str | None) -> None:
        self._count(LOST, number)
        if reason is not None:
            say_once(f"records of {self.settings.schema} are lost and counted; the store is not affected: {reason}")

    def _name(self, name: str) -> str:
        return f"DYN_{'AGENT' if self.settings.schema == AGENT_TRACE else 'REQUEST'}_TRACE_{name}"


def _file(sink: str, settings: TraceSettings) -> TraceFile:
    if sink == STDERR:
        return _Stderr("agent_trace" if settings.schema == AGENT_TRACE else "request_trace")
    if sink == JSONL:
        return LinesFile(settings.path, settings.buffer_bytes)
    assert sink == JSONL_GZ
    return SegmentFiles(settings.path, settings.buffer_bytes, settings.roll_bytes, settings.roll_lines)


def stored_span(span: ReadableSpan, attributes: Mapping[str, Any]) -> StoredSpan:
    """As it would be read back, as far as records need it."""
    has_failed = span.status is not None and span.status.status_code.value == STATUS_ERROR
    return StoredSpan(
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
        None,
        span.name,
        span.kind.value,
        span.start_time or 0,
        span.end_time,
        dict(attributes),
        status=STATUS_ERROR if has_failed else 0,
    )


_sinks: weakref.WeakSet[DynamoSink] = weakref.WeakSet()
_WORKER_WAIT_S = 1.0


def _flush_all() -> None:
    for sink in list(_sinks):
        sink.flush(_WORKER_WAIT_S)


def _reset_after_fork() -> None:
    for sink in list(_sinks):
        sink._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
