"""Messages of OTLP → the rollout store: one thread decodes, files and writes, many senders wait for its word.

What waits is written together, one append a rollout, and only then its senders are told: what was acknowledged is in
the files, also if the process is killed the next moment.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from otel_gym.content_policy import content_policy_from
from otel_gym.conventions import UNASSIGNED
from otel_gym.ingest.dynamo.live_spans import LiveSpans
from otel_gym.ingest.otlp.cleaning import Cleaner
from otel_gym.ingest.otlp.filing import Filed, Filing
from otel_gym.ingest.otlp.lines import Lines
from otel_gym.ingest.otlp.received import MalformedError, Received
from otel_gym.ingest.otlp.room import Room
from otel_gym.ingest.otlp.waiting import WaitingFile
from otel_gym.settings import Settings
from otel_gym.store.executions import is_root
from otel_gym.store.traces import StoredTraces
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import content_of
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.sealing import Sealer

SERVICE = "otel-gym-receive"
# Messages that are decoded before what was made of them is written.
_BATCH_BYTES = 4 * 1024 * 1024
# How often is looked for rollouts to seal while nothing comes.
_SEAL_S = 1.0


class Verdict(Enum):
    TAKEN = "taken"
    MALFORMED = "malformed"
    NOT_WRITTEN = "not written"


@dataclass(frozen=True, slots=True)
class Answer:
    """``refused``: spans of a message that was taken which are not; ``problem`` says why, or what else is wrong."""

    verdict: Verdict
    refused: int = 0
    problem: str | None = None


_FAILED = Answer(Verdict.NOT_WRITTEN, problem="the receiver failed, its log says how")

Decode = Callable[[bytes], Received]
Tell = Callable[[Answer], None]


@dataclass(slots=True)
class _Message:
    """``places``: the rollouts of its spans, and of those that waited for them."""

    content: bytes
    decode: Decode
    tell: Tell
    places: set[str] = field(default_factory=set)
    received: Received | None = None
    answer: Answer = field(default=Answer(Verdict.TAKEN))


@dataclass(slots=True)
class Counts:
    """Since the start: spans that are in the store, Dynamo's records in logs that became spans, spans and records that
    were refused, messages of other signals."""

    spans: int = 0
    records: int = 0
    refused: int = 0
    other_signals: int = 0


class Receiver:
    """``room`` is what messages may take in memory: who submits one has taken it, and gives it back when told."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self.room = Room(settings.queue_bytes)
        self.counts = Counts()
        self._writer = StoreWriter(directory, SERVICE, sync=settings.syncs, content=content_of(settings, directory))
        policy = content_policy_from(settings, messages=True)
        self._cleaner = Cleaner(policy)
        self._dynamo = LiveSpans(directory, settings.run_id, policy)
        self._filing = Filing(elsewhere=StoredTraces(directory).rollout_of_served)
        self._lines = Lines(self._writer)
        self._sealer = Sealer(directory, settings.seal_after_s) if settings.format == "parquet" else None
        self._waiting = WaitingFile(lambda: StoreWriter(directory, SERVICE, sync=settings.syncs))
        self._messages: deque[_Message] = deque()
        self._condition = threading.Condition()
        self._is_closing = False
        self._said: set[str] = set()
        self._refused_written = 0
        self._thread = threading.Thread(target=self._run, name="otel-gym-receiver", daemon=True)
        self._thread.start()

    def submit(self, content: bytes, decode: Decode, tell: Tell) -> None:
        """``tell`` is called, on the receiver's thread, when it is certain what became of the message."""
        with self._condition:
            self._messages.append(_Message(content, decode, tell))
            self._condition.notify()

    def pass_over(self, signal: str) -> None:
        """Metrics, and logs that are not Dynamo's, are taken and not kept: who is refused says so at every export. Said
        once of each."""
        self.counts.other_signals += 1
        if signal not in self._said:
            self._said.add(signal)
            print(f"otel-gym receive: {signal} come in too, and are not kept: only traces are", file=sys.stderr)

    def close(self) -> None:
        """Writes what was submitted."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            messages = self._next()
            if messages is None:
                break
            self._take(messages)
            self._keep_house()
        self._end_dynamo()
        if self._waiting.tidy_in_s is not None:
            self._waiting.tidy(self._filing.waiting)
        if self._sealer is not None:
            self._sealer.finish(self._writer.name)

    def _add_found(self) -> None:
        found = self._filing.found_meanwhile()
        for each in found:
            self._add(each)
        if found:
            self._waiting.some_left()

    def _end_dynamo(self) -> None:
        self._add_found()
        for each in self._dynamo.ended():
            self._add(each)
        for error in self._lines.write().values():
            self._waiting.keep()
            log_once(
                f"the store cannot be written, the last of Dynamo's records are lost: {error}", with_traceback=False
            )

    def _keep_house(self) -> None:
        if self._waiting.tidy_in_s == 0.0:
            self._waiting.tidy(self._filing.waiting)
        if self._sealer is not None:
            self._sealer.step(self._writer.name)

    def _house_in_s(self) -> float | None:
        """After which time without messages there is something to do; None: never."""
        seals = self._sealer is not None and self._sealer.has_work()
        return _SEAL_S if seals else self._waiting.tidy_in_s

    def _next(self) -> list[_Message] | None:
        """As many as are decoded before the next write, perhaps none; None: it is closed, and nothing is left."""
        with self._condition:
            self._condition.wait_for(lambda: self._messages or self._is_closing, self._house_in_s())
            if not self._messages and self._is_closing:
                return None
            messages: list[_Message] = []
            size = 0
            while self._messages and size < _BATCH_BYTES:
                messages.append(self._messages.popleft())
                size += len(messages[-1].content)
            return messages

    def _take(self, messages: list[_Message]) -> None:
        try:
            failed = self._stored(messages)
        except Exception:  # whose fault it is nobody knows: all may try again
            log_once("messages could not be written")
            for message in messages:
                message.answer = _FAILED
            failed = {}
        for message in messages:
            self._tell(message, failed)
        self._write_counts()

    def _stored(self, messages: list[_Message]) -> dict[str, OSError]:
        """By rollout what was in the way of writing its spans."""
        for message in messages:
            try:
                self._file(message)
            except MalformedError as error:
                message.answer = Answer(Verdict.MALFORMED, problem=str(error))
            except Exception:
                log_once("a message could not be taken in")
                message.answer = _FAILED
        self._add_found()
        failed = self._written(messages)
        if failed:
            self._waiting.keep()
        waiting_failed = self._waiting.write()
        if waiting_failed is not None:
            failed[UNASSIGNED] = waiting_failed
        return failed

    def _written(self, messages: list[_Message]) -> dict[str, OSError]:
        """What was made of Dynamo's records stands in several rollouts: any fault is one of all messages with some."""
        changed = self._dynamo.changed()
        for each in changed:
            self._add(each)
        failed = self._lines.write()
        places = {each.rollout_id for each in changed}
        if places.isdisjoint(failed):
            self._dynamo.written()
        else:
            self._dynamo.failed()
        for message in messages:
            if message.received is not None and message.received.records:
                message.places |= places
        return failed

    def _add(self, filed: Filed) -> None:
        self._lines.add(filed)
        if self._sealer is not None:
            self._sealer.written(filed.rollout_id)
            if is_root(filed.span):
                self._sealer.ended(filed.rollout_id)

    def _file(self, message: _Message) -> None:
        message.received = message.decode(message.content)
        if message.received.other_signals:
            self.pass_over("logs")
        for record in message.received.records:
            self._dynamo.take(record.line, record.row)
        spans = [self._cleaner.clean(span) for span in message.received.spans]
        filed = self._filing.file(spans)
        for each in filed:
            self._add(each)
            message.places.add(each.rollout_id)
        placed = {id(each.span) for each in filed}
        waiting = [span for span in spans if id(span) not in placed]
        for span in waiting:
            self._waiting.add(span)
            message.places.add(UNASSIGNED)
        if len(filed) > len(spans) - len(waiting):
            self._waiting.some_left()

    def _tell(self, message: _Message, failed: dict[str, OSError]) -> None:
        answer, received = message.answer, message.received
        if answer.verdict is Verdict.TAKEN and received is not None:
            error = next((failed[place] for place in message.places if place in failed), None)
            if error is not None:
                log_once(f"the store cannot be written, senders are told to try again: {error}", with_traceback=False)
                answer = Answer(Verdict.NOT_WRITTEN, problem=f"the store cannot be written: {error.strerror}")
            else:
                answer = Answer(Verdict.TAKEN, received.refused, received.problem)
                self.counts.spans += len(received.spans)
                self.counts.records += len(received.records)
                self.counts.refused += received.refused
        try:
            message.tell(answer)
        except Exception:  # whoever asked is gone
            log_once("a sender could not be told what became of its message")

    def _write_counts(self) -> None:
        if self.counts.refused == self._refused_written:
            return
        try:
            self._writer.write_counts({"refused_spans": self.counts.refused})
            self._refused_written = self.counts.refused
        except OSError as error:
            log_once(f"counts cannot be written: {error}", with_traceback=False)
