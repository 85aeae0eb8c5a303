"""What one message of OTLP brought."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_gym.ingest.dynamo.reading import Row
from otel_gym.store.span import StoredSpan

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_NO_ID = "0" * 32


class MalformedError(ValueError):
    """A message that is no OTLP at all; the text says what is wrong with it."""


class LogRecord(NamedTuple):
    """A trace record of Dynamo's: ``line`` is what ``row`` was read from."""

    line: bytes
    row: Row


@dataclass(slots=True)
class Received:
    """``refused`` counts spans, or records, that cannot be taken, ``problem`` says what the first is refused for.

    ``left_out`` counts tags that spans were taken without, and ``left_out_problem`` is that of the first.
    ``other_signals`` counts messages of metrics, logs and profiles.
    """

    spans: list[StoredSpan] = field(default_factory=list)
    refused: int = 0
    problem: str | None = None
    left_out: int = 0
    left_out_problem: str | None = None
    other_signals: int = 0
    records: list[LogRecord] = field(default_factory=list)

    def add(self, span: StoredSpan) -> None:
        """Takes the span if its ids are some."""
        problem = _problem_of_ids(span)
        if problem is None:
            self.spans.append(_without_odd_parts(span))
        else:
            self.refuse(problem)

    def refuse(self, problem: str) -> None:
        self.refused += 1
        self.problem = self.problem or problem

    def leave_out(self, problem: str) -> None:
        self.left_out += 1
        self.left_out_problem = self.left_out_problem or problem


def has_plain_ids(span: StoredSpan) -> bool:
    """Whether every id in the span is one, so that nothing of it is refused or changed."""
    return _problem_of_ids(span) is None and span.parent_span_id != _NO_ID[:16] and _links_are_plain(span)


def _links_are_plain(span: StoredSpan) -> bool:
    return all(_TRACE_ID.fullmatch(link.trace_id) and _SPAN_ID.fullmatch(link.span_id) for link in span.links)


def _problem_of_ids(span: StoredSpan) -> str | None:
    if _TRACE_ID.fullmatch(span.trace_id) is None or span.trace_id == _NO_ID:
        return f"traceId {span.trace_id[:40]!r} is none: 32 hex digits, not all of them 0"
    if _SPAN_ID.fullmatch(span.span_id) is None or span.span_id == _NO_ID[:16]:
        return f"spanId {span.span_id[:40]!r} is none: 16 hex digits, not all of them 0"
    if span.parent_span_id is not None and _SPAN_ID.fullmatch(span.parent_span_id) is None:
        return f"parentSpanId {span.parent_span_id[:40]!r} is none: 16 hex digits, or empty"
    return None


def _without_odd_parts(span: StoredSpan) -> StoredSpan:
    """A parent of zeros is none; a link that leads to no span is counted as dropped."""
    if span.parent_span_id == _NO_ID[:16]:
        span.parent_span_id = None
    if not _links_are_plain(span):
        kept = [link for link in span.links if _TRACE_ID.fullmatch(link.trace_id) and _SPAN_ID.fullmatch(link.span_id)]
        lost = len(span.links) - len(kept)
        span.links, span.dropped_links, span.dropped = kept, span.dropped_links + lost, span.dropped + lost
    return span
