"""Of the spans of this process that have not ended: their places, and which calls other spans tell of better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_gym import conventions as names
from otel_gym.tracing.membership import plain_attributes
from otel_gym.views.dynamo.places import OPERATION, Place, place_of, root_place

_RESPONSE_ID = "gen_ai.response.id"

SpanKey = tuple[int, int]


@dataclass(slots=True)
class _Open:
    """``is_covered``: a call was captured below it. ``answers``: those that were told of below it."""

    above: SpanKey | None
    place: Place
    is_covered: bool = False
    answers: set[str] = field(default_factory=set)


class Ended(NamedTuple):
    """``is_told_elsewhere``: the span tells of a call that a span below it tells of."""

    place: Place
    is_told_elsewhere: bool


class OpenSpans:
    """Without a lock: each step is one that no other thread can cut in two."""

    def __init__(self) -> None:
        self._open: dict[SpanKey, _Open] = {}

    def start(self, span: ReadableSpan) -> Place:
        attributes = plain_attributes(span)
        above = None if span.parent is None else (span.parent.trace_id, span.parent.span_id)
        around = None if above is None else self._open.get(above)
        place = place_of(attributes, around.place if around else _root(attributes))
        self._open[_key(span)] = _Open(above, place)
        if _is_capture(span, attributes):
            for each in self._all_above(above):
                each.is_covered = True
        return place

    def end(self, span: ReadableSpan, attributes: Mapping[str, Any]) -> Ended:
        opened = self._open.pop(_key(span), None) or _Open(None, _root(attributes))
        answer = attributes.get(_RESPONSE_ID)
        if isinstance(answer, str):
            for each in self._all_above(opened.above):
                each.answers.add(answer)
        return Ended(place_of(attributes, opened.place), opened.is_covered or answer in opened.answers)

    def _all_above(self, above: SpanKey | None) -> Iterator[_Open]:
        while above is not None and (opened := self._open.get(above)) is not None:
            yield opened
            above = opened.above


def _key(span: ReadableSpan) -> SpanKey:
    return span.context.trace_id, span.context.span_id


def _root(attributes: Mapping[str, Any]) -> Place:
    run_id = attributes.get(names.RUN_ID)
    return root_place(run_id if isinstance(run_id, str) else None, str(attributes.get(names.ROLLOUT_ID)))


def _is_capture(span: ReadableSpan, attributes: Mapping[str, Any]) -> bool:
    scope = span.instrumentation_scope
    is_ours = scope is not None and scope.name == names.SCOPE_NAME
    return is_ours and attributes.get(OPERATION) in names.INFERENCE_OPERATIONS
