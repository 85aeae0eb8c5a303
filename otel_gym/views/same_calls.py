"""Which spans of clients' own instrumentations tell of one call of a model.

Two do if they name the same answer (or the same request), at one time, and one stands below the other or is another
instrumentation's that does not contradict it. So do two of which one stands below the other, alone, at one time, with
the same model and no figures that differ: a framework's span around a client's; and two of two instrumentations of
one client, of which one encloses the other in time, when nothing else of theirs runs. What may be one call by less
than that is ``doubtful``, and counts as two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, takewhile
from typing import Any

from otel_gym.conventions import (
    DIALECT,
    DYNAMO_PREFIX,
    ERROR_CATEGORY,
    FIRST_CONTENT_NS,
    REQUEST_ID,
    RESPONSE_HEADER,
    SAME_CALL,
    SOURCE,
)
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.span import SpanLink, StoredSpan

RESPONSE_ID = "gen_ai.response.id"
# Dynamo's own id of a request, which its spans, its trace records and its answers name.
DYNAMO_REQUEST_ID = DYNAMO_PREFIX + "request_id"
_NAMES = (RESPONSE_ID, REQUEST_ID, DYNAMO_REQUEST_ID)
# What a call is told by.
_FIELDS = (DIALECT, FIRST_CONTENT_NS, REQUEST_ID, "gen_ai.system_instructions", "gen_ai.tool.definitions")
_FIELDS_BELOW = (
    "gen_ai.usage.",
    "gen_ai.request.",
    "gen_ai.response.",
    "gen_ai.input.",
    "gen_ai.output.",
    DYNAMO_PREFIX,
)
_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_REQUEST_ID_HEADERS = tuple(RESPONSE_HEADER + name for name in ("request-id", "x-request-id"))


@dataclass(slots=True)
class SameCall:
    """``counting`` has what it lacked from the others, and links to them."""

    counting: StoredSpan
    others: list[StoredSpan]


@dataclass(slots=True)
class SameCalls:
    calls: list[SameCall] = field(default_factory=list)
    doubtful: list[tuple[StoredSpan, StoredSpan]] = field(default_factory=list)


def request_id_of(span: StoredSpan) -> str | None:
    """The provider's id of the request: as its client says, or of a captured call by its response's header."""
    said = span.attributes.get(REQUEST_ID)
    if isinstance(said, str):
        return said
    for header in _REQUEST_ID_HEADERS:
        values: Any = span.attributes.get(header)
        if isinstance(values, list) and values and isinstance(values[0], str):
            return values[0]
    return None


def linked_to(span: StoredSpan, others: Sequence[SpanIds]) -> StoredSpan:
    """A copy with a link to each of the spans that tell of the same call."""
    links = [SpanLink(trace_id, span_id, {SAME_CALL: True}) for trace_id, span_id in others]
    return replace(span, links=[*span.links, *links])


def same_calls(calls: Sequence[StoredSpan], spans: Sequence[StoredSpan]) -> SameCalls:
    """Of model calls that nobody captured. ``spans`` are all of the rollout; what an import tells stays as it is."""
    if len(calls) < 2 or all(SOURCE in span.attributes for span in calls):
        return SameCalls()
    return _Groups(calls, spans).found()


class _Groups:
    def __init__(self, calls: Sequence[StoredSpan], spans: Sequence[StoredSpan]) -> None:
        self._calls = calls
        self._parents = {ids_of(span): (span.trace_id, span.parent_span_id or "") for span in spans}
        self._group: dict[SpanIds, list[StoredSpan]] = {ids_of(span): [span] for span in calls}
        self._doubtful: list[tuple[StoredSpan, StoredSpan]] = []

    def found(self) -> SameCalls:
        nearest = {ids_of(span): self._nearest_above(span) for span in self._calls}
        self._join_named()
        self._join_of_one_client(nearest)
        self._join_nested(nearest)
        groups = {id(group): group for group in self._group.values() if len(group) > 1}
        doubtful = [pair for pair in self._doubtful if not self._are_joined(*pair)]
        return SameCalls([_merged(group, nearest) for group in groups.values()], doubtful)

    def _nearest_above(self, span: StoredSpan) -> SpanIds | None:
        seen = {ids_of(span)}
        above = self._parents.get(ids_of(span))
        while above in self._parents and above not in seen:
            if above in self._group:
                return above
            seen.add(above)
            above = self._parents[above]
        return None

    def _join_nested(self, nearest: dict[SpanIds, SpanIds | None]) -> None:
        below: dict[SpanIds, list[StoredSpan]] = {}
        for span in self._calls:
            above = nearest[ids_of(span)]
            if above is not None:
                below.setdefault(above, []).append(span)
        by_id = {ids_of(span): span for span in self._calls}
        for ids, inner in below.items():
            outer = by_id[ids]
            alike = [span for span in inner if _failed(span) == _failed(outer)]
            named = [span for span in alike if _names_agree(outer, span) is True]
            likely = [span for span in alike if _may_be_same(outer, span)]
            if self._are_one(named):
                self._join(outer, named[0])
            elif not named and self._are_one(likely) and self._are_one(alike):
                self._join(outer, likely[0])
            else:
                self._doubtful += [(outer, span) for span in named or likely or _of_same_model(outer, inner)]

    def _join_named(self) -> None:
        """Siblings, of two instrumentations of one client."""
        for kind in _NAMES:
            by_name: dict[str, list[StoredSpan]] = {}
            for span in self._calls:
                name = _name_of(span, kind)
                if name is not None:
                    by_name.setdefault(name, []).append(span)
            for named in by_name.values():
                self._join_pairs(named)

    def _join_pairs(self, named: Sequence[StoredSpan]) -> None:
        """A server may give one name to many answers."""
        if len(set(map(_scope, named))) < 2:
            return
        for one, other in combinations(named, 2):
            if self._are_apart(one, other) and _overlap(one, other):
                self._join_if_only(one, other, named, not _contradict(one, other))

    def _join_if_only(self, one: StoredSpan, other: StoredSpan, among: Sequence[StoredSpan], is_likely: bool) -> None:
        """Where at their time none of ``among`` could stand for one of them."""
        if is_likely and _partners(one, other, among) == [other] and _partners(other, one, among) == [one]:
            self._join(one, other)
        else:
            self._doubtful.append((one, other))

    def _are_one(self, spans: Sequence[StoredSpan]) -> bool:
        return len({id(self._group[ids_of(span)]) for span in spans}) == 1

    def _join_of_one_client(self, nearest: dict[SpanIds, SpanIds | None]) -> None:
        """Failures, and answers without names: what two instrumentations of one client tell of its only call then."""
        if len(set(map(_scope, self._calls))) < 2:
            return
        ordered = sorted(self._calls, key=lambda span: (span.start_ns, -(span.end_ns or span.start_ns)))
        for place, outer in enumerate(ordered):
            for inner in takewhile(partial(_begins_within, outer), ordered[place + 1 :]):
                if nearest[ids_of(inner)] == ids_of(outer) or not self._are_apart(outer, inner):
                    continue
                if not (_encloses(outer, inner) and _may_be_same(outer, inner)):
                    continue
                self._join_if_only(outer, inner, self._calls, _are_of_one_client(outer, inner))

    def _are_apart(self, one: StoredSpan, other: StoredSpan) -> bool:
        """Of two instrumentations, and in no call together yet."""
        return _scope(one) != _scope(other) and not self._are_joined(one, other)

    def _are_joined(self, one: StoredSpan, other: StoredSpan) -> bool:
        return self._group[ids_of(one)] is self._group[ids_of(other)]

    def _join(self, one: StoredSpan, other: StoredSpan) -> None:
        joined, added = self._group[ids_of(one)], self._group[ids_of(other)]
        if joined is added or sum(SOURCE in span.attributes for span in joined + added) > 1:
            return
        joined += added
        for span in added:
            self._group[ids_of(span)] = joined


def _of_same_model(outer: StoredSpan, inner: Sequence[StoredSpan]) -> list[StoredSpan]:
    return [span for span in inner if _model_of(span) == _model_of(outer) is not None]


def _partners(span: StoredSpan, other: StoredSpan, named: Sequence[StoredSpan]) -> list[StoredSpan]:
    """The spans of the other's instrumentation that are at the same time as this one."""
    return [each for each in named if _scope(each) == _scope(other) and _overlap(span, each)]


def _failed(span: StoredSpan) -> bool:
    return ERROR_CATEGORY in span.attributes


def _scope(span: StoredSpan) -> str | None:
    return span.scope_name


def _name_of(span: StoredSpan, kind: str) -> str | None:
    name = request_id_of(span) if kind == REQUEST_ID else span.attributes.get(kind)
    return name if isinstance(name, str) else None


def _names_agree(one: StoredSpan, other: StoredSpan) -> bool | None:
    """Of the answer, else of the request, else Dynamo's; None: one of them does not tell."""
    for kind in _NAMES:
        names = _name_of(one, kind), _name_of(other, kind)
        if None not in names:
            return names[0] == names[1]
    return None


def _may_be_same(outer: StoredSpan, inner: StoredSpan) -> bool:
    """The same model at one time, and no name and no count that differs."""
    return (
        _names_agree(outer, inner) is None
        and _overlap(outer, inner)
        and _model_of(outer) == _model_of(inner) is not None
        and not any(_differ(outer, inner, name) for name in _TOKENS)
    )


def _contradict(one: StoredSpan, other: StoredSpan) -> bool:
    """Of another model, or with no count of tokens in common. One count alone may be wrong: instrumentations err."""
    if any(_are_other_models(one.attributes.get(name), other.attributes.get(name)) for name in _MODELS):
        return True
    return all(_differ(one, other, name) for name in _TOKENS)


def _are_other_models(one: Any, other: Any) -> bool:
    """``openai/m`` and ``m-2026-10-01`` may be ``m``."""
    return isinstance(one, str) and isinstance(other, str) and one not in other and other not in one


def _differ(one: StoredSpan, other: StoredSpan, name: str) -> bool:
    return not _agree(one.attributes.get(name), other.attributes.get(name))


def _begins_within(outer: StoredSpan, inner: StoredSpan) -> bool:
    return outer.end_ns is not None and inner.start_ns <= outer.end_ns


def _are_of_one_client(one: StoredSpan, other: StoredSpan) -> bool:
    """Made in one process and at one place of its tree; without a span above, each is a trace of its own."""
    places = [(span.trace_id, span.parent_span_id) if span.parent_span_id else None for span in (one, other)]
    return places[0] == places[1] and one.resource == other.resource and _failed(one) == _failed(other)


def _agree(one: Any, other: Any) -> bool:
    return one is None or other is None or one == other


def _model_of(span: StoredSpan) -> str | None:
    models = (span.attributes.get(name) for name in _MODELS)
    return next((model for model in models if isinstance(model, str)), None)


def _overlap(one: StoredSpan, other: StoredSpan) -> bool:
    first, second = sorted((one, other), key=lambda span: span.start_ns)
    return first.end_ns is None or second.start_ns <= first.end_ns


def _encloses(outer: StoredSpan, inner: StoredSpan) -> bool:
    return outer.end_ns is not None and inner.end_ns is not None and inner.end_ns <= outer.end_ns


def _merged(group: Sequence[StoredSpan], nearest: dict[SpanIds, SpanIds | None]) -> SameCall:
    """What an import tells counts, else the span with most fields, of several the innermost."""
    ranked = sorted(
        group, key=lambda span: (SOURCE in span.attributes, sum(1 for _ in _fields(span)), _depth(span, nearest))
    )
    counting, others = ranked[-1], ranked[-2::-1]
    told: dict[str, Any] = {}
    if SOURCE not in counting.attributes:
        told = {name: value for span in reversed(others) for name, value in _fields(span)}
    filled = replace(counting, attributes={**told, **counting.attributes})
    return SameCall(linked_to(filled, list(map(ids_of, others))), others)


def _depth(span: StoredSpan, nearest: dict[SpanIds, SpanIds | None]) -> int:
    depth, above = 0, nearest[ids_of(span)]
    while above is not None and depth < len(nearest):
        depth, above = depth + 1, nearest[above]
    return depth


def _fields(span: StoredSpan) -> Iterator[tuple[str, Any]]:
    return (
        (name, value) for name, value in span.attributes.items() if name in _FIELDS or name.startswith(_FIELDS_BELOW)
    )
