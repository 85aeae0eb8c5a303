"""The queue between traced code and the OTLP endpoint, and the one thread that drains it.

It knows nothing of the store, and the store nothing of it: what an endpoint does to it (down, hanging, refusing) costs
the copy only, and is counted. Nothing here raises into traced code or makes it wait.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import plain_attributes
from otel_gym.tracing.otlp.exporters import HEADERS_SPEAKER, SPEAKERS, OnRejected
from otel_gym.tracing.otlp.slim import SlimForm, SlimSpan, group_size, slim_span, span_size
from otel_gym.tracing.payloads import Payload
from otel_gym.tracing.recorder import Recorder
from otel_gym.tracing.worker_end import close_when_a_worker_ends

LOST = "otlp_lost_spans"
REFUSED = "otlp_refused_spans"

DEFAULT_DELAY_S = 1.0
DEFAULT_BATCH_SPANS = 512
# About what a span holds in memory beside its long texts.
_SPAN_MEMORY_BYTES = 4096
_REQUEST_BYTES = 64
# Of the exit's time limit, for what the exporter says when it is told to stop.
_LAST_WORD_S = 0.2
_NO_TIME = "there was no time for more"
# Of URLs that an exporter repeats: user and password, and what is asked for.
_SECRET_PARTS = re.compile(r"[^\s/]+@|\?[^\s'\")]*")


class _Waiting(NamedTuple):
    span: ReadableSpan
    payload: Payload | None
    identity: Mapping[str, Any] | None
    size: int


@dataclass(frozen=True, slots=True)
class LegLimits:
    """``queue_bytes``: about what may wait; ``batch_bytes``, ``batch_spans``: of one message; ``delay_s``: how long
    spans wait for others; ``exit_timeout_s``: how long the end of the process may wait, all in all."""

    queue_bytes: int
    batch_bytes: int
    batch_spans: int = DEFAULT_BATCH_SPANS
    delay_s: float = DEFAULT_DELAY_S
    exit_timeout_s: float = 2.0


@dataclass(slots=True)
class _Batch:
    spans: list[SlimSpan] = field(default_factory=list)
    size: int = _REQUEST_BYTES
    waiting_bytes: int = 0
    groups: set[tuple[int, int]] = field(default_factory=set)

    def size_with(self, span: SlimSpan) -> int:
        group = 0 if _group(span) in self.groups else group_size(span)
        return self.size + span_size(span) + group

    def add(self, span: SlimSpan, size: int, waiting_bytes: int) -> None:
        self.spans.append(span)
        self.size = size
        self.waiting_bytes += waiting_bytes
        self.groups.add(_group(span))


def _group(span: SlimSpan) -> tuple[int, int]:
    return id(span.resource), id(span.instrumentation_scope)


class OtlpLeg:
    """Sends every sampled span that it is given.

    new_exporter  makes the SDK's exporter, on the thread, once in each process; it hears what the receiver refuses
    recorder_of   gives the recorder of the store beside which is counted what is not sent
    endpoint      as it may be said
    """

    def __init__(
        self,
        new_exporter: Callable[[OnRejected], SpanExporter],
        form: SlimForm,
        limits: LegLimits,
        recorder_of: Callable[[], Recorder],
        endpoint: str,
    ) -> None:
        self.form = form
        self.limits = limits
        self.endpoint = endpoint
        self._new_exporter = new_exporter
        self._recorder_of = recorder_of
        self._left_behind: list[object] = []
        self._reset()
        _legs.add(self)

    def _reset(self) -> None:
        # Reentrant, since a signal handler flushes.
        self._condition = threading.Condition(threading.RLock())
        self._waiting: deque[_Waiting] = deque()
        self._exporter: SpanExporter | None = None
        self._thread: threading.Thread | None = None
        self._hurry = False
        self._is_over = False
        self._added = 0
        self._done = 0
        self._in_flight = 0
        self._counted_ahead = 0
        self._exit_time_left = self.limits.exit_timeout_s
        self._reason = ""
        self._uncounted: Counter[str] = Counter()
        self.pending_bytes = 0

    def _reset_after_fork(self) -> None:
        # An exporter of the parent's threads and connections: kept, so that nothing here closes them.
        self._left_behind.append(self._exporter)
        self._reset()

    def start(self) -> None:
        """Early: a process that ends can start no thread any more."""
        if self._thread is not None or self._is_over:
            return
        with self._condition:
            if self._thread is not None:
                return
            try:
                close_when_a_worker_ends(close_all_legs, priority=-1)
                thread = threading.Thread(target=self._run, name="otel-gym-otlp", daemon=True)
                thread.start()
                self._thread = thread
            except RuntimeError:  # no new threads: the interpreter ends
                log_once("the OTLP copy could not be begun", with_traceback=False)

    def add(self, span: ReadableSpan, payload: Payload | None, identity: Mapping[str, Any] | None) -> None:
        """Sends the span, if it is sampled; ``payload`` and ``identity`` as in the store's ``encode_span``."""
        if not span.context.trace_flags.sampled:
            return
        self.start()
        if payload is not None and not self.form.content.messages:
            payload = payload.without_bodies()  # they would be kept as long as the span waits
        size = _memory_of(span, payload)
        with self._condition:
            if self._is_over or self.pending_bytes + size > self.limits.queue_bytes:
                self._lose(1, "they came after its end" if self._is_over else "its queue is full")
                return
            self.pending_bytes += size
            self._added += 1
            self._waiting.append(_Waiting(span, payload, identity, size))
            is_enough = len(self._waiting) >= self.limits.batch_spans or self.pending_bytes >= self.limits.batch_bytes
            if is_enough and not self._hurry:
                self._hurry = True
                self._condition.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was added was sent, or lost; False if the time ran out first."""
        with self._condition:
            target = self._added
            if self._done >= target:
                return True
            self._hurry = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: self._done >= target, max(0.0, timeout_s))

    def close(self, timeout_s: float | None = None) -> bool:
        """``flush`` within what is left of the exit's time limit: an endpoint that takes nothing is not waited for
        again and again. What is added later is still sent."""
        left = self._exit_time_left if timeout_s is None else min(timeout_s, self._exit_time_left)
        began = time.monotonic()
        flushed = self.flush(left)
        waited = time.monotonic() - began
        self._exit_time_left = self.limits.exit_timeout_s if flushed else max(0.0, self._exit_time_left - waited)
        if not flushed:
            self._count_ahead()
        return flushed

    def _count_ahead(self) -> None:
        """What is not sent counts as lost until it is: a server that is told to stop may end without a further word."""
        with self._condition:
            unsent = self._added - self._done - self._counted_ahead
            self._counted_ahead += unsent
        if unsent:
            self._lose(unsent, self._reason or _NO_TIME)
            self._write_counts()

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Sends what it can within the exit's time limit, and counts the rest as lost."""
        left = max(0.0, self._exit_time_left if timeout_s is None else min(timeout_s, self._exit_time_left))
        last_word_s = min(_LAST_WORD_S, left / 4)
        self.close(left - last_word_s)
        with self._condition:
            if self._is_over:
                return
            self._is_over = True
            unsent, self._done = len(self._waiting), self._added
            self._waiting.clear()
            self._hurry = True
            self._condition.notify_all()
        self._stop_exporter()
        with self._condition:
            self._condition.wait_for(lambda: not self._in_flight, last_word_s)
            unanswered, self._in_flight = self._in_flight, 0
            lost, self._counted_ahead = unsent + unanswered - self._counted_ahead, 0
        if lost > 0:
            self._lose(lost, self._reason or _NO_TIME)
        self._write_counts()

    def _write_counts(self) -> None:
        recorder = self._recorder_of()
        if recorder.has_begun:
            recorder.flush(_LAST_WORD_S)

    def _stop_exporter(self) -> None:
        try:
            if self._exporter is not None:
                self._exporter.shutdown()
        except Exception:
            log_once("the OTLP exporter could not be stopped")

    # ── on the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # its own requests are no spans
        _leg_of_thread[threading.get_ident()] = self
        for name in SPEAKERS:
            logging.getLogger(name).addFilter(_hears)
        logging.getLogger(HEADERS_SPEAKER).addFilter(_says_without_text)
        while not self._is_over:
            with self._condition:
                self._condition.wait_for(lambda: self._hurry, self.limits.delay_s)
                self._hurry = False
            try:
                self._drain()
            except Exception:
                log_once("spans could not be sent over OTLP")

    def _drain(self) -> None:
        batch = _Batch()
        while (waiting := self._next()) is not None:
            try:
                slim = slim_span(waiting.span, waiting.payload, waiting.identity, self.form)
                size = batch.size_with(slim)
                if batch.spans and (size > self.limits.batch_bytes or len(batch.spans) >= self.limits.batch_spans):
                    self._send(batch)
                    batch = _Batch()
                    size = batch.size_with(slim)
                batch.add(slim, size, waiting.size)
            except Exception:
                log_once("a span could not be made ready for OTLP")
                self._lose(1, "it could not be made ready")
                self._finish(1, waiting.size)
        if batch.spans:
            self._send(batch)

    def _next(self) -> _Waiting | None:
        with self._condition:
            if not self._waiting:
                return None
            self._in_flight += 1
            return self._waiting.popleft()

    def _send(self, batch: _Batch) -> None:
        self._reason = ""
        try:
            if self._exporter is None:
                self._exporter = self._new_exporter(self._refused)
            is_taken = not self._is_over and self._exporter.export(batch.spans) is SpanExportResult.SUCCESS
        except Exception as error:
            is_taken = False
            self._reason = self._reason or f"{type(error).__name__}: {error}"
        with self._condition:
            count = len(batch.spans)
            ahead = min(count, self._counted_ahead)
            self._counted_ahead -= ahead
            if is_taken and ahead:
                self._count(LOST, -ahead)
            # At its end those that nobody answers for are counted there.
            elif not is_taken and self._in_flight and count > ahead:
                self._lose(count - ahead, self._reason or "it did not take them")
            self._finish(count, batch.waiting_bytes)

    def _finish(self, count: int, waiting_bytes: int) -> None:
        with self._condition:
            self._in_flight = max(0, self._in_flight - count)
            self._done += count
            self.pending_bytes -= waiting_bytes
            self._condition.notify_all()

    def _refused(self, count: int, message: str) -> None:
        self._count(REFUSED, count)
        self._say("the OTLP endpoint {} refuses spans, which are counted", REFUSED, message)

    def _lose(self, count: int, reason: str) -> None:
        self._count(LOST, count)
        self._say("spans do not reach the OTLP endpoint {} and are counted; the store is not affected", LOST, reason)

    def _count(self, name: str, number: int) -> None:
        """Beside the store, once there is one: a process that makes no gym span opens no file."""
        with self._condition:
            self._uncounted[name] += number
            recorder = self._recorder_of()
            counts, self._uncounted = (self._uncounted, Counter()) if recorder.has_begun else ({}, self._uncounted)
        for each, count in counts.items():
            recorder.count(each, count)

    def _say(self, problem: str, kind: str, reason: str) -> None:
        reason = self.form.content.text(_SECRET_PARTS.sub("", reason))
        log_once(f"{problem.format(self.endpoint)}: {reason}", kind=f"{kind} {self.endpoint}", with_traceback=False)

    def hear(self, reason: str) -> None:
        """What the SDK's exporter says went wrong; not that it was told to stop."""
        if not self._is_over:
            self._reason = reason


def _memory_of(span: ReadableSpan, payload: Payload | None) -> int:
    size = _SPAN_MEMORY_BYTES
    for value in plain_attributes(span).values():
        if type(value) is str:
            size += len(value)
    if payload is not None:
        size += sum(len(body.content) for body in (payload.request, payload.response) if body is not None)
    return size


class _Hears(logging.Filter):
    """What the SDK's exporters say while they work for a leg is said by the leg: once, with what it means."""

    def filter(self, record: logging.LogRecord) -> bool:
        leg = _leg_of_thread.get(threading.get_ident())
        if leg is None:
            return True
        leg.hear(record.getMessage())
        return False


class _SaysWithoutText(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() not in _leg_of_thread:
            return True
        log_once("an entry of OTEL_EXPORTER_OTLP_HEADERS is no name=value, and is left out", with_traceback=False)
        return False


_hears = _Hears()
_says_without_text = _SaysWithoutText()
_leg_of_thread: dict[int, OtlpLeg] = {}
_legs: weakref.WeakSet[OtlpLeg] = weakref.WeakSet()


def close_all_legs() -> None:
    for leg in list(_legs):
        leg.shutdown()


def _reset_after_fork() -> None:
    _leg_of_thread.clear()
    for leg in list(_legs):
        leg._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
