"""Spans that came in files → a store that may have them already: what is there as it is, is not written again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from otel_gym.content_policy import content_policy_from
from otel_gym.conventions import (
    BODY_BASE,
    BODY_BLOBS,
    BODY_BYTES,
    BODY_ENCODING,
    NEMO_ROLLOUT_ID,
    REQUEST_BODY,
    RESPONSE_BODY,
    ROLLOUT_ID,
    RUN_ID,
    UNASSIGNED,
)
from otel_gym.ingest.dynamo.reading import trace_of
from otel_gym.ingest.dynamo.spans import REQUESTS, rollouts_of
from otel_gym.ingest.otlp.cleaning import Cleaner
from otel_gym.ingest.otlp.filing import Filed, Filing
from otel_gym.ingest.otlp.lines import Lines
from otel_gym.ingest.otlp.received import LogRecord
from otel_gym.ingest.spans import Written, write_rollout
from otel_gym.settings import Settings
from otel_gym.store.blobs import BlobError
from otel_gym.store.layout import is_store
from otel_gym.store.reader import Store, completeness
from otel_gym.store.span import NO_ORIGIN, SpanLink, StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.traces import StoredTraces
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import content_of

_BATCH_BYTES = 4 * 1024 * 1024
# Spans of the store that are remembered at a time, those of the rollouts met last.
_MOST_KNOWN = 300_000
# Spans that wait for the span above them.
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_BODIES = (REQUEST_BODY, RESPONSE_BODY)
# What else stands beside a body says how it is stored.
_BODY_FORMS = frozenset(body + form for body in _BODIES for form in (BODY_ENCODING, BODY_BYTES))


class _State(NamedTuple):
    """How a span stands in the store: a hash of what it says, and how complete it is."""

    digest: bytes
    completeness: tuple[bool, bool, int]


@dataclass(slots=True)
class _Counted:
    new: int = 0
    changed: int = 0
    same: int = 0


@dataclass(slots=True)
class _Known:
    """The spans of the store's rollouts, read when the first of a rollout comes."""

    directory: Path
    by_rollout: OrderedDict[str, dict[tuple[str, str], _State]] = field(default_factory=OrderedDict)
    number: int = 0
    _store: Store | None = None

    def of(self, rollout_id: str) -> dict[tuple[str, str], _State] | None:
        known = self.by_rollout.get(rollout_id)
        if known is not None:
            self.by_rollout.move_to_end(rollout_id)
        return known

    def read(self, rollout_id: str) -> dict[tuple[str, str], _State]:
        if self._store is None and is_store(self.directory):
            self._store = Store(self.directory)
        spans = self._store.spans(rollout_id) if self._store is not None else ()
        known = self.by_rollout[rollout_id] = {(span.trace_id, span.span_id): _state(span) for span in spans}
        self.number += len(known)
        while self.number > _MOST_KNOWN and len(self.by_rollout) > 1:
            _, oldest = self.by_rollout.popitem(last=False)
            self.number -= len(oldest)
        return known


class OtlpImport:
    """``rollout_id`` and ``run_id`` are of spans that name none. ``finish`` when all was taken; ``damage`` is then what
    Dynamo's records lack."""

    def __init__(self, directory: Path, settings: Settings, rollout_id: str | None, run_id: str | None) -> None:
        self._rollout_id = rollout_id
        self._run_id = run_id
        writer = StoreWriter(directory, "import", sync=settings.syncs, content=content_of(settings, directory))
        self._lines = Lines(writer)
        self._policy = content_policy_from(settings, messages=True)
        self._cleaner = Cleaner(self._policy)
        self._content_once = settings.content_once
        self._records: list[LogRecord] = []
        self.damage: list[str] = []
        self._filing = Filing(_MOST_KNOWN, _MOST_WAITING_BYTES)
        self._traces = StoredTraces(directory)
        self._known = _Known(directory)
        self._counted: dict[str, _Counted] = {}

    def take(self, spans: Iterable[StoredSpan]) -> None:
        """Raises OSError where the store cannot be written."""
        for filed in self._filing.file(map(self._cleaner.clean, spans)):
            self._add(filed)

    def take_records(self, records: Iterable[LogRecord]) -> None:
        """Dynamo's, of logs; they become spans together, at the end."""
        self._records += records

    def finish(self) -> dict[str, Written]:
        """By rollout what became of its spans."""
        for filed in self._filing.give_up():
            rollout_id = self._traces.rollout_of_served(filed.span) or filed.rollout_id
            self._add(Filed(rollout_id, filed.span))
        self._write()
        self._finish_records()
        return {name: Written(each.new, each.changed, each.same) for name, each in self._counted.items()}

    def _finish_records(self) -> None:
        for rollout in rollouts_of(trace_of(record.row for record in self._records)):
            if rollout.session_id == REQUESTS:
                rollout.rollout_id = self._rollout_id
            written = write_rollout(
                self._known.directory, rollout, self._run_id, self._policy, content_once=self._content_once
            )
            counted = self._counted.setdefault(rollout.identity_id, _Counted())
            counted.new += written.new
            counted.changed += written.changed
            counted.same += written.same
            self.damage += rollout.damage

    def _add(self, filed: Filed) -> None:
        rollout_id, span = filed
        if rollout_id == UNASSIGNED and self._rollout_id is not None:
            rollout_id = self._rollout_id
            span.attributes |= {ROLLOUT_ID: rollout_id, NEMO_ROLLOUT_ID: rollout_id}
        if self._run_id is not None and span.run_id is None:
            span.attributes[RUN_ID] = self._run_id
        counted = self._counted.setdefault(rollout_id, _Counted())
        known = self._known.of(rollout_id)
        if known is None:
            if self._lines.holds(rollout_id):
                self._write()
            known = self._known.read(rollout_id)
        ids, state = (span.trace_id, span.span_id), _state(span)
        there = known.get(ids)
        if there is not None and (there.digest == state.digest or there.completeness > state.completeness):
            counted.same += 1
            return
        if there is None:
            counted.new += 1
            self._known.number += 1
        else:
            counted.changed += 1
        known[ids] = state
        self._lines.add(Filed(rollout_id, span))
        if self._lines.size > _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        for error in self._lines.write().values():
            raise error


def grew_out_of_another(span: StoredSpan) -> bool:
    """Whether its request is stored as what is new in it: it is whole only beside the span that it grew out of."""
    return REQUEST_BODY + BODY_BASE in span.attributes


def with_whole_bodies(span: StoredSpan) -> StoredSpan:
    """A span of a store, on its way to another: media lies in the bodies again."""
    attributes = dict(span.attributes)
    for name in _BODIES:
        if name + BODY_BLOBS in attributes and name in attributes:
            try:
                attributes[name] = span.body(name)
                del attributes[name + BODY_BLOBS]
            except BlobError:  # the store's damage says so
                pass
    return replace(span, attributes=attributes, blobs=None)


def _state(span: StoredSpan) -> _State:
    """By what both forms of a store keep: neither Parquet's order of attributes nor how a body is stored matters."""
    core = replace(
        span,
        attributes=dict(sorted(_whole_attributes(span).items())),
        events=[replace(event, dropped=0) for event in span.events],
        links=[SpanLink(link.trace_id, link.span_id, link.attributes) for link in span.links],
        resource={},
        origin=NO_ORIGIN,
        trace_state="",
        flags=0,
        dropped=0,
        dropped_events=0,
        dropped_links=0,
    )
    return _State(hashlib.blake2b(line_of_span(core), digest_size=12).digest(), completeness(span))


def _whole_attributes(span: StoredSpan) -> dict[str, Any]:
    whole = {
        name: value
        for name, value in span.attributes.items()
        if not name.startswith(_BODIES) or name in _BODIES or name in _BODY_FORMS
    }
    for name in _BODIES:
        if isinstance(whole.get(name), str):
            try:
                whole[name] = span.body(name)
            except BlobError:  # its media is missing: another copy of the span may have it
                del whole[name]
    return whole
