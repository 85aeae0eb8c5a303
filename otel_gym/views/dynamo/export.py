"""Rollouts of a store → one trace file of Dynamo's, in the order in which Dynamo would have written it.

Records lie in a temporary file until all are known: what is kept of each in memory is its time and its place there.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from otel_gym import conventions as names
from otel_gym.dynamo_settings import AGENT_TRACE
from otel_gym.records.replay_hashes import ReplayHashError
from otel_gym.settings import say_once
from otel_gym.store.blobs import BlobError
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.dynamo.files import gzip_member
from otel_gym.views.dynamo.places import Place, learn_root, place_of, root_place
from otel_gym.views.dynamo.records import Record, event_json, line_of, records_of
from otel_gym.views.dynamo.requests import NO_ANSWER, Answer, answer_of, is_answered
from otel_gym.views.dynamo.tools import is_run
from otel_gym.views.json_lines import replacing
from otel_gym.views.layers import without_client_layer

_MEMBER_BYTES = 1024 * 1024


class BlockSizeUnknownError(ValueError):
    """Token ids are known, and their hashes need the block size. The text names the rollout."""


@dataclass(frozen=True, slots=True)
class TraceForm:
    """``block_size``: tokens of a block of replay hashes. ``replay_hashes`` False: token ids are left out."""

    schema: str = AGENT_TRACE
    block_size: int | None = None
    replay_hashes: bool = True


def records_of_rollout(rollout: RolloutSpans, form: TraceForm) -> Iterator[Record]:
    """Of the execution that counts: each call once, as everywhere. BlockSizeUnknownError, ReplayHashError."""
    counting = rollout.with_spans(rollout.executions().counting.spans)
    spans = without_client_layer(counting).spans
    places = _Places(counting)
    roots: dict[str, str] = {}
    for span in spans:
        learn_root(places.of(span).context, roots)
    for span in spans:
        is_call = is_answered(span.attributes)
        if not is_call and not is_run(span.attributes):
            continue
        answer = _answer(span) if is_call else NO_ANSWER
        size = form.block_size if form.replay_hashes else None
        if answer.prompt_token_ids is not None and form.replay_hashes and size is None:
            raise BlockSizeUnknownError(f"{rollout.address}: token ids of prompts are known")
        try:
            yield from records_of(span, places.of(span), form.schema, answer=answer, block_size=size, roots=roots)
        except ReplayHashError as error:
            raise ReplayHashError(f"{rollout.address}, span {span.span_id}: {error}") from None


def write_trace(rollouts: Iterable[RolloutSpans], form: TraceForm, output: Path | IO[bytes]) -> int:
    """Writes the file whole or not at all; a name that ends in ``.gz`` is compressed. Returns the number of records.

    OSError, BlockSizeUnknownError, ReplayHashError.
    """
    with tempfile.TemporaryFile() as spool:
        sorting = _Sorting(spool)
        for rollout in rollouts:
            for record in records_of_rollout(rollout, form):
                sorting.add(record)
        if not isinstance(output, Path):
            _write(sorting.lines(), output, compressed=False)
            return len(sorting)
        with replacing(output) as temporary, temporary.open("wb") as file:
            _write(sorting.lines(), file, compressed=output.suffix == ".gz")
        return len(sorting)


def _write(lines: Iterable[bytes], file: IO[bytes], *, compressed: bool) -> None:
    """In members of the size that Dynamo makes them of."""
    if not compressed:
        file.writelines(lines)
        return
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= _MEMBER_BYTES:
            file.write(gzip_member(bytes(waiting)))
            waiting.clear()
    if waiting:
        file.write(gzip_member(bytes(waiting)))


class _Sorting:
    """By the times of the records; of one time, as they came."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._times = array("q")
        self._places = array("Q", [0])

    def __len__(self) -> int:
        return len(self._times)

    def add(self, record: Record) -> None:
        text = event_json(record).encode()
        self._spool.write(text)
        self._times.append(record["event_time_unix_ms"])
        self._places.append(self._places[-1] + len(text))

    def lines(self) -> Iterator[bytes]:
        order = sorted(range(len(self)), key=self._times.__getitem__)
        first = self._times[order[0]] if order else 0
        for number in order:
            self._spool.seek(self._places[number])
            text = self._spool.read(self._places[number + 1] - self._places[number])
            yield line_of(text, self._times[number] - first)


class _Places:
    """The places of a rollout's spans, in whichever order they began."""

    def __init__(self, rollout: RolloutSpans) -> None:
        self._by_id = {ids_of(span): span for span in rollout.spans}
        self._known: dict[SpanIds, Place] = {}
        self._root = root_place(rollout.run_id, rollout.rollout_id)

    def of(self, span: StoredSpan) -> Place:
        chain: list[StoredSpan] = []
        seen: set[SpanIds] = set()
        current: StoredSpan | None = span
        while current is not None and ids_of(current) not in self._known and ids_of(current) not in seen:
            chain.append(current)
            seen.add(ids_of(current))
            current = self._by_id.get((current.trace_id, current.parent_span_id or ""))
        place = self._root if current is None else self._known.get(ids_of(current), self._root)
        for each in reversed(chain):
            place = self._known[ids_of(each)] = place_of(each.attributes, place)
        return place


def _answer(span: StoredSpan) -> Answer:
    try:
        body: Any = span.body(names.RESPONSE_BODY)
    except BlobError as problem:
        say_once(str(problem))
        body = None
    is_whole = names.RESPONSE_BODY + names.BODY_BYTES not in span.attributes
    return answer_of(span.attributes, body if is_whole else None)
