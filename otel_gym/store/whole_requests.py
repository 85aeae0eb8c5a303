"""Requests that were stored as what was new in them, made whole again.

Every text that is rebuilt is held against its sha256. Where a part is missing or damaged there is a
``Gap`` that names it, and no body: never a wrong text. The order of the spans does not matter, and a
chain of thousands of calls needs no recursion.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from otel_gym.conventions import (
    BODY_BASE,
    BODY_BLOBS,
    BODY_CHARACTERS,
    BODY_GAP,
    BODY_KEPT_BLOCKS,
    BODY_KEPT_HEAD,
    BODY_KEPT_TAIL,
    BODY_SHA256,
    REQUEST_BODY,
    RESPONSE_BODY,
)
from otel_gym.store.blobs import BlobStore
from otel_gym.store.media import references
from otel_gym.store.span import StoredSpan
from otel_gym.store.text_delta import Block, TextDelta, rebuilt

_GROWN = (BODY_BASE, BODY_KEPT_HEAD, BODY_KEPT_TAIL, BODY_KEPT_BLOCKS, BODY_CHARACTERS, BODY_SHA256)
# A span with none of these has no body that must be put together or needs media.
_BODY_MARKS = frozenset({REQUEST_BODY, RESPONSE_BODY, REQUEST_BODY + BODY_BASE})
# Rebuilt texts that are held for those that build on them.
_CACHE_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a body of the span ``span_id`` cannot be given."""

    span_id: str
    problem: str

    def __str__(self) -> str:
        return f"span {self.span_id}: {self.problem}"


class _Form(NamedTuple):
    """A request as it is stored: ``delta`` None, the text is whole; ``base`` the span that it grew out of."""

    trace_id: str
    span_id: str
    text: str
    base: str | None = None
    delta: TextDelta | None = None
    characters: int = 0
    sha256: str = ""


class HistoryReader:
    """The request texts of a rollout's writer file. ``add`` each span, then ask in any order.

    Held are the stored forms, so as much as was said, and of the rebuilt texts those last asked for. A base lies in the
    file of what grew out of it, so files may be read one by one, or all into one reader.
    """

    def __init__(self, cache_characters: int = _CACHE_CHARACTERS) -> None:
        self._forms: dict[tuple[str, str], _Form | Gap] = {}
        self._by_span_id: dict[str, _Form | Gap] = {}
        self._cache: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._cache_characters = cache_characters
        self._cached = 0

    def add(self, span: StoredSpan) -> None:
        form = _form(span)
        if form is not None:
            self._add(span.trace_id, span.span_id, form)

    def add_whole(self, trace_id: str, span_id: str, text: str) -> None:
        """The request of a span that grew out of no other; nothing else of the span is needed."""
        self._add(trace_id, span_id, _Form(trace_id, span_id, text))

    def _add(self, trace_id: str, span_id: str, form: _Form | Gap) -> None:
        known = self._forms.get((trace_id, span_id))
        if isinstance(known, _Form) and known.delta is None:
            return  # of a span that was written twice the whole one is as good, and needs no base
        self._forms[trace_id, span_id] = self._by_span_id[span_id] = form

    def text_of(self, span: StoredSpan) -> str | Gap | None:
        """The whole text of the span's request, media as references; None where it has none."""
        form = self._forms.get((span.trace_id, span.span_id))
        return None if form is None else self._text(form)

    def make_whole(self, span: StoredSpan) -> Gap | None:
        """Puts the whole text in place of what is new in it; where that cannot be, nothing, and says why."""
        if REQUEST_BODY + BODY_BASE not in span.attributes:
            return None
        text = self.text_of(span)
        _replace(span, text if isinstance(text, str) else None)
        return None if isinstance(text, str) else _gap_of(span, text)

    def _text(self, form: _Form | Gap) -> str | Gap:
        chain: list[_Form] = []
        met: set[str] = set()
        text: str | None = None
        while text is None:
            if isinstance(form, Gap):
                return form
            text = form.text if form.delta is None else self._held(form)
            if text is None:
                if form.span_id in met:
                    return Gap(form.span_id, "its request grew out of itself")
                met.add(form.span_id)
                chain.append(form)
                form = self._base_of(form)
        for grown in reversed(chain):
            next_text = _grown_text(text, grown)
            if isinstance(next_text, Gap):
                return next_text
            text = next_text
            self._hold(grown, text)
        return text

    def _base_of(self, form: _Form) -> _Form | Gap:
        base = form.base or ""
        found = self._forms.get((form.trace_id, base)) or self._by_span_id.get(base)
        return found or Gap(base, "its line is missing or damaged, and requests grew out of it")

    def _held(self, form: _Form) -> str | None:
        text = self._cache.get((form.trace_id, form.span_id))
        if text is not None:
            self._cache.move_to_end((form.trace_id, form.span_id))
        return text

    def _hold(self, form: _Form, text: str) -> None:
        self._cache[form.trace_id, form.span_id] = text
        self._cached += len(text)
        while self._cached > self._cache_characters and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached -= len(oldest)


class RequestsInOrder:
    """Makes requests whole as a writer's file is read from its start, one span after the other.

    ``gaps`` grows with the requests that cannot be; their spans say so too (``gym.request.body.gap``), since whoever
    reads them from a part does not see the damage.
    """

    def __init__(self) -> None:
        self._history = HistoryReader()
        self.gaps: list[Gap] = []

    def begin_file(self) -> None:
        self._history = HistoryReader()

    def note(self, span: StoredSpan) -> None:
        """A span that is not wanted itself; later ones may build on it."""
        self._history.add(span)

    def note_whole(self, trace_id: str, span_id: str, text: str) -> None:
        """The same, where no more is at hand than a request that grew out of no other."""
        self._history.add_whole(trace_id, span_id, text)

    def restored(self, span: StoredSpan) -> StoredSpan:
        """The span itself if its request is whole, else another with the whole text (none where there is a gap)."""
        self._history.add(span)
        if REQUEST_BODY + BODY_BASE not in span.attributes:
            return span
        whole = replace(span, attributes=dict(span.attributes))
        gap = self._history.make_whole(whole)
        if gap is not None:
            whole.attributes[REQUEST_BODY + BODY_GAP] = gap.problem
            self.gaps.append(gap)
        return whole


def whole_requests(spans: Iterable[StoredSpan], blobs: BlobStore | None = None) -> list[Gap]:
    """Puts whole texts in place of those that grew, in the spans of one writer file of one rollout.

    Media stays referenced, with ``blobs`` at hand on the span (``StoredSpan.body``). The gaps say
    which bodies, and which media, cannot be given.
    """
    with_bodies = [span for span in spans if not span.attributes.keys().isdisjoint(_BODY_MARKS)]
    history = HistoryReader()
    for span in with_bodies:
        history.add(span)
    gaps = [gap for span in with_bodies if (gap := history.make_whole(span)) is not None]
    for span in with_bodies:
        gaps += media_at_hand(span, blobs)
    return gaps


def media_at_hand(span: StoredSpan, blobs: BlobStore | None) -> list[Gap]:
    """Tells the span where its media lies, and says which of it is missing there."""
    gaps = []
    for name in (REQUEST_BODY, RESPONSE_BODY):
        text = span.attributes.get(name)
        if name + BODY_BLOBS in span.attributes and isinstance(text, str):
            span.blobs = blobs
            missing = list(references(text)) if blobs is None else blobs.missing(references(text))
            gaps += [Gap(span.span_id, f"the media blobs/{sha256} of its {name} is not there") for sha256 in missing]
    return gaps


def _gap_of(span: StoredSpan, gap: Gap | None) -> Gap:
    because = "" if gap is None or gap.span_id == span.span_id else f" span {gap.span_id}:"
    return Gap(span.span_id, f"its request cannot be rebuilt:{because} {gap.problem if gap else 'it has no text'}")


def _replace(span: StoredSpan, text: str | None) -> None:
    for part in _GROWN:
        span.attributes.pop(REQUEST_BODY + part, None)
    if text is None:
        span.attributes.pop(REQUEST_BODY, None)
        span.attributes.pop(REQUEST_BODY + BODY_BLOBS, None)
    else:
        span.attributes[REQUEST_BODY] = text


def _form(span: StoredSpan) -> _Form | Gap | None:
    attributes, text = span.attributes, span.attributes.get(REQUEST_BODY)
    base = attributes.get(REQUEST_BODY + BODY_BASE)
    if not isinstance(text, str):
        return None if base is None else Gap(span.span_id, "it says what it grew out of, but has no text")
    if base is None:
        return _Form(span.trace_id, span.span_id, text)
    lengths: Any = [attributes.get(REQUEST_BODY + part) for part in (BODY_KEPT_HEAD, BODY_KEPT_TAIL, BODY_CHARACTERS)]
    numbers: Any = attributes.get(REQUEST_BODY + BODY_KEPT_BLOCKS, [])
    sha256 = attributes.get(REQUEST_BODY + BODY_SHA256)
    if not (_is_numbers(lengths) and _is_numbers(numbers) and len(numbers) % 3 == 0 and isinstance(sha256, str)):
        return Gap(span.span_id, "what it kept of its base is damaged")
    head, tail, characters = lengths
    blocks = tuple(Block(*numbers[at : at + 3]) for at in range(0, len(numbers), 3))
    delta = TextDelta(head, tail, blocks, text)
    return _Form(span.trace_id, span.span_id, text, str(base), delta, characters, sha256)


def _is_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _grown_text(base: str, form: _Form) -> str | Gap:
    """The text of ``form`` on that of its base, if it is the one that was recorded."""
    assert form.delta is not None
    try:
        text = rebuilt(base, form.delta) if form.delta.characters == form.characters else ""
    except ValueError:
        text = ""
    if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != form.sha256:
        return Gap(form.span_id, f"it is not what was recorded, it or its base {form.base} was changed")
    return text
