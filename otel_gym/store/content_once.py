"""Bodies on their way to a line: media goes to blobs, a request that grew is stored as what is new in it.

    call 1   {"model":…,"messages":[A,B],"tools":…}          whole
    call 2   {"model":…,"messages":[A,B,C,D],"tools":…}      base = call 1, its head up to B, ",C,D", its tail

A base is an earlier call of the same rollout in the same file, and only one whose line was really
written: what ``stored`` gives out is pending until ``committed`` or ``failed`` says what became of it.
One thread calls, right before it encodes and writes the line; there is one ``ContentOnce`` a writer.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_gym.conventions import (
    BODY_BASE,
    BODY_BLOBS,
    BODY_CHARACTERS,
    BODY_ENCODING,
    BODY_KEPT_BLOCKS,
    BODY_KEPT_HEAD,
    BODY_KEPT_TAIL,
    BODY_SHA256,
    REQUEST_BODY,
    RESPONSE_BODY,
)
from otel_gym.store.blobs import BlobStore
from otel_gym.store.media import extract_media
from otel_gym.store.text_delta import TextDelta, common_ends, text_delta

# What the attributes of the grown form cost on disk. A base that saves no more is not used.
MIN_SAVED = 512
CANDIDATES = 8
ROLLOUT_BYTES = 16 * 1024 * 1024
ALL_BYTES = 64 * 1024 * 1024

# A text that keeps this share of its base takes the base's place: the conversation went on.
_CONTINUES = 0.9
# Head and tail decide in two comparisons whether a base can save MIN_SAVED.
_PROBE = MIN_SAVED // 2
# A text of which head and tail keep less than half is searched for blocks of this many of the latest bases.
_SEARCHED = 2
_MIN_SEARCHED = 16 * 1024


class ContentOnce:
    """Turns the body attributes of a line into those that are stored."""

    def __init__(self, blobs: BlobStore, history: RequestHistory | None = None) -> None:
        self.blobs = blobs
        self.history = history or RequestHistory()

    def stored(self, attributes: Mapping[str, Any], rollout_id: str, span_id: str) -> dict[str, Any]:
        """``attributes`` with the bodies that are plain text in their stored form; the rest as it is."""
        stored = dict(attributes)
        for name in (REQUEST_BODY, RESPONSE_BODY):
            if isinstance(stored.get(name), str) and name + BODY_ENCODING not in stored:
                stored[name], blobs = extract_media(stored[name], self.blobs.put)
                if blobs:
                    stored[name + BODY_BLOBS] = blobs
        text = stored.get(REQUEST_BODY)
        is_cut = REQUEST_BODY + BODY_SHA256 in stored
        if isinstance(text, str) and REQUEST_BODY + BODY_ENCODING not in stored and not is_cut:
            stored |= self.history.encode(rollout_id, span_id, text)
        return stored

    def committed(self, rollout_id: str) -> None:
        self.history.committed(rollout_id)

    def failed(self, rollout_id: str | None = None) -> None:
        self.history.failed(rollout_id)

    def forget(self, rollout_id: str) -> None:
        self.history.forget(rollout_id)


@dataclass(slots=True, eq=False)
class _Request:
    span_id: str
    text: str
    size: int
    replaces: _Request | None = None


@dataclass(slots=True)
class _Conversations:
    """Of one rollout: texts that may be a base, the last used last; ``pending`` are not known to be written."""

    written: list[_Request] = field(default_factory=list)
    pending: list[_Request] = field(default_factory=list)
    size: int = 0


class RequestHistory:
    """The last request texts of each rollout, within bounds of memory."""

    def __init__(self, rollout_bytes: int = ROLLOUT_BYTES, all_bytes: int = ALL_BYTES) -> None:
        self._rollout_bytes = rollout_bytes
        self._all_bytes = all_bytes
        self._rollouts: OrderedDict[str, _Conversations] = OrderedDict()
        self.size = 0

    def encode(self, rollout_id: str, span_id: str, text: str) -> dict[str, Any]:
        """The attributes that stand for a request's text: whole, or grown out of an earlier one."""
        if len(text) <= MIN_SAVED:
            return {REQUEST_BODY: text}
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError:  # the line would not hold it as it is
            return {REQUEST_BODY: text}
        known = self._rollouts.setdefault(rollout_id, _Conversations())
        self._rollouts.move_to_end(rollout_id)
        base, delta = _best_base([*known.written, *known.pending], text)
        if base is None or delta is None:
            self._remember(known, _Request(span_id, text, sys.getsizeof(text)))
            return {REQUEST_BODY: text}
        if delta.new or len(base.text) != len(text):
            self._remember(known, _Request(span_id, text, sys.getsizeof(text)), base, delta)
        return _grown(base.span_id, delta, hashlib.sha256(content).hexdigest())

    def committed(self, rollout_id: str) -> None:
        """What was encoded for the rollout since the last word is written."""
        known = self._rollouts.get(rollout_id)
        if known is None or not known.pending:
            return
        for request in known.pending:
            if request.replaces in known.written:
                self._drop(known, known.written, request.replaces)
            request.replaces = None
            known.written.append(request)
        known.pending = []
        while len(known.written) > CANDIDATES:
            self._drop(known, known.written, known.written[0])

    def failed(self, rollout_id: str | None = None) -> None:
        """What was encoded for the rollout (None: for any) since the last word may be lost."""
        rollouts = self._rollouts.values() if rollout_id is None else [self._rollouts.get(rollout_id)]
        for known in rollouts:
            for request in list(known.pending) if known else ():
                assert known is not None
                self._drop(known, known.pending, request)

    def forget(self, rollout_id: str) -> None:
        """The rollout's file is closed, sealed or gone: what follows may not build on it."""
        known = self._rollouts.pop(rollout_id, None)
        if known is not None:
            self.size -= known.size

    def _remember(
        self, known: _Conversations, request: _Request, base: _Request | None = None, delta: TextDelta | None = None
    ) -> None:
        if base is not None and delta is not None:
            if delta.kept < _CONTINUES * len(base.text):
                _touch(known, base)
            elif base in known.pending:
                request.replaces = base.replaces
                self._drop(known, known.pending, base)
            else:
                request.replaces = base
        if request.size > self._rollout_bytes:
            return
        known.pending.append(request)
        known.size += request.size
        self.size += request.size
        self._make_room(known)

    def _make_room(self, known: _Conversations) -> None:
        while known.size > self._rollout_bytes or len(known.pending) > CANDIDATES:
            if known.written and known.size > self._rollout_bytes:
                self._drop(known, known.written, known.written[0])
            else:
                self._drop(known, known.pending, known.pending[0])
        while self.size > self._all_bytes:
            self.forget(next(iter(self._rollouts)))

    def _drop(self, known: _Conversations, requests: list[_Request], request: _Request | None) -> None:
        if request is not None:
            requests.remove(request)
            known.size -= request.size
            self.size -= request.size


def _touch(known: _Conversations, request: _Request) -> None:
    if request in known.written:
        known.written.remove(request)
        known.written.append(request)


def _best_base(candidates: list[_Request], text: str) -> tuple[_Request | None, TextDelta | None]:
    """The candidate of which ``text`` keeps most, and the delta; None where none pays."""
    best, ends = None, (0, 0)
    for candidate in reversed(candidates):
        if sum(ends) == len(text):
            break
        if _may_pay(candidate.text, text):
            here = common_ends(candidate.text, text)
            if sum(here) > sum(ends):
                best, ends = candidate, here
    deltas = [] if best is None else [(best, text_delta(best.text, text, ends))]
    if len(text) >= _MIN_SEARCHED and 2 * sum(ends) < len(text):
        others = (candidate for candidate in candidates[-_SEARCHED:] if candidate is not best)
        deltas += [(candidate, text_delta(candidate.text, text)) for candidate in others]
    base, delta = max(deltas, key=lambda pair: pair[1].kept, default=(None, None))
    return (base, delta) if delta is not None and delta.kept > MIN_SAVED else (None, None)


def _may_pay(base: str, text: str) -> bool:
    return base[:_PROBE] == text[:_PROBE] or base[-_PROBE:] == text[-_PROBE:]


def _grown(base: str, delta: TextDelta, sha256: str) -> dict[str, Any]:
    attributes = {
        REQUEST_BODY: delta.new,
        REQUEST_BODY + BODY_BASE: base,
        REQUEST_BODY + BODY_KEPT_HEAD: delta.head,
        REQUEST_BODY + BODY_KEPT_TAIL: delta.tail,
        REQUEST_BODY + BODY_SHA256: sha256,
        REQUEST_BODY + BODY_CHARACTERS: delta.characters,
    }
    if delta.blocks:
        attributes[REQUEST_BODY + BODY_KEPT_BLOCKS] = [number for block in delta.blocks for number in block]
    return attributes
