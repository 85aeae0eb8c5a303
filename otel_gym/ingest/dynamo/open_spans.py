"""Rollouts and agents of which more may be told: each stands open in the store, and is ended at the end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from otel_gym.ingest.otlp.filing import Filed
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.layout import is_store
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan

# The one that nothing was told of for longest is ended for a new one.
MOST_OPEN = 50_000


class OpenSpans:
    """From the first that was told of a span to the last, also by an earlier relay or import."""

    def __init__(self, directory: Path, most_open: int = MOST_OPEN) -> None:
        self._earlier = Store(directory) if is_store(directory) else None
        self._most_open = most_open
        self._open: OrderedDict[SpanIds, Filed] = OrderedDict()
        self._earlier_spans: OrderedDict[str, dict[SpanIds, StoredSpan]] = OrderedDict()

    def extend(self, filed: Filed) -> list[Filed]:
        """What is to be written now: the span, open, where it is met first, and one that was ended for it."""
        written = []
        known = self._open.get(ids_of(filed.span))
        if known is None:
            written.append(Filed(filed.rollout_id, replace(filed.span, end_ns=None)))
        before = self._before(filed) if known is None else known.span
        span = filed.span if before is None else _joined(filed.span, before)
        self._open[ids_of(span)] = Filed(filed.rollout_id, span)
        self._open.move_to_end(ids_of(span))
        if len(self._open) > self._most_open:
            written.append(self._open.popitem(last=False)[1])
        return written

    def ended(self) -> Iterator[Filed]:
        while self._open:
            yield self._open.popitem(last=False)[1]

    def _before(self, filed: Filed) -> StoredSpan | None:
        if self._earlier is None:
            return None
        known = self._earlier_spans.get(filed.rollout_id)
        if known is None:
            spans = self._earlier.spans(filed.rollout_id)
            known = {ids_of(span): span for span in spans if span.trace_id == filed.span.trace_id}
            self._earlier_spans[filed.rollout_id] = known
            if len(self._earlier_spans) > self._most_open:
                self._earlier_spans.popitem(last=False)
        return known.get(ids_of(filed.span))


def _joined(span: StoredSpan, before: StoredSpan) -> StoredSpan:
    """From the earlier start to the later end."""
    ends = [each.end_ns for each in (span, before) if each.end_ns is not None]
    return replace(span, start_ns=min(span.start_ns, before.start_ns), end_ns=max(ends, default=None))
