"""SIGTERM: open spans end as aborted and everything is written, within the exit's time limit.

A handler runs between two steps of the main thread, which may hold a lock there: of a span, of the SDK, of a recorder.
So nothing here waits for a lock without a limit; a span that cannot be ended stays open, and known by its start record.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType

from opentelemetry.sdk.trace import Span
from opentelemetry.trace import StatusCode

from otel_gym.tracing.logs import log_once
from otel_gym.tracing.recorder import Recorder

_PAUSE_S = 0.005
# A thread that ended no span for so long waits for a lock that the interrupted thread holds.
_STUCK_S = 0.25


# Sends what waits within so many seconds; True: the process ends, and what could not be sent is counted.
SendRest = Callable[[float, bool], None]


def handle_sigterm(recorders: Callable[[], Sequence[Recorder]], send_rest: SendRest) -> None:
    """On SIGTERM stops ``recorders``, then lets the signal act. A process that ignores it goes on doing so."""
    previous = signal.getsignal(signal.SIGTERM)
    if previous is signal.SIG_IGN or isinstance(previous, _StopAndPassOn):
        return
    try:
        signal.signal(signal.SIGTERM, _StopAndPassOn(recorders, send_rest, previous))
    except ValueError as error:  # Python takes handlers from the main thread only
        log_once(f"SIGTERM will not end open spans, call configure() in the main thread: {error}", with_traceback=False)


class _StopAndPassOn:
    def __init__(self, recorders: Callable[[], Sequence[Recorder]], send_rest: SendRest, previous: object) -> None:
        self._recorders = recorders
        self._send_rest = send_rest
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        recorders = self._recorders()
        deadline = time.monotonic() + (recorders[-1].exit_timeout_s if recorders else 0.0)
        stop(recorders, "SIGTERM", deadline)
        goes_on = callable(self._previous)  # a server that shuts down makes spans until it has
        self._send_rest(deadline - time.monotonic(), not goes_on)
        if callable(self._previous):
            self._previous(number, frame)
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def stop(recorders: Sequence[Recorder], reason: str, deadline: float) -> None:
    """Ends open spans as aborted, in half of the exit's time limit at most, and writes all in what is left of it."""
    if not recorders:
        return
    try:
        _end_open_spans(recorders, reason, recorders[-1].exit_timeout_s / 2)
    except RuntimeError:  # no new threads: the interpreter ends
        log_once("open spans could not be ended", with_traceback=False)
    for recorder in recorders:
        recorder.close(max(0.0, deadline - time.monotonic()))


def _end_open_spans(recorders: Sequence[Recorder], reason: str, timeout_s: float) -> None:
    spans = [span for recorder in recorders for span in recorder.open_spans.spans()]
    waiting, ended = deque(spans), deque[Span]()

    def end_each() -> None:
        while waiting:
            try:
                span = waiting.pop()  # those inside of others began later
            except IndexError:
                return
            _end(span, reason)
            ended.append(span)

    began = last_ended = time.monotonic()
    count = 0
    if spans:
        _start_thread(end_each)
    while len(ended) < len(spans) and time.monotonic() - began < timeout_s:
        for recorder in recorders:
            recorder.give_way(_PAUSE_S)
        if len(ended) > count:
            count, last_ended = len(ended), time.monotonic()
        elif time.monotonic() - last_ended > _STUCK_S:
            if not waiting:
                return
            last_ended = time.monotonic()
            _start_thread(end_each)


def _start_thread(run: Callable[[], None]) -> None:
    """As ``threading`` does it, less its own locks, which the interrupted thread may hold too."""
    _thread.start_new_thread(run, ())


def _end(span: Span, reason: str) -> None:
    try:
        span.set_attribute("error.type", "aborted")
        span.set_status(StatusCode.ERROR, reason)
        span.end()
    except Exception:  # another processor's
        log_once("an open span could not be ended")
