"""Spans whose rollout is known → lines of a writer's files."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY
from otel_gym.ingest.otlp.filing import Filed
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.writer import StoreWriter

_MOST_MET = 200_000


class Lines:
    """Gathers lines by rollout; ``write`` appends them, those of a rollout at once. ``size``: bytes that wait."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._lines: dict[str, list[bytes]] = {}
        self._met = _Met()
        self.size = 0

    def holds(self, rollout_id: str) -> bool:
        return rollout_id in self._lines

    def add(self, filed: Filed) -> None:
        rollout_id, span = filed
        of_rollout = self._lines.get(rollout_id)
        if of_rollout is None:
            once = self._writer.content_for(rollout_id)
            of_rollout = self._lines[rollout_id] = []
        else:
            once = self._writer.content
        has_body = REQUEST_BODY in span.attributes or RESPONSE_BODY in span.attributes
        grows = has_body and self._met.is_first(rollout_id, span.span_id)
        line = _line(span, rollout_id, once if grows else None)
        of_rollout.append(line)
        self.size += len(line)

    def write(self) -> dict[str, OSError]:
        """By rollout what was in the way; the lines of these are in no file."""
        lines, self._lines, self.size = self._lines, {}, 0
        failed: dict[str, OSError] = {}
        for rollout_id, of_rollout in lines.items():
            try:
                self._writer.append(rollout_id, b"".join(of_rollout))
            except OSError as error:
                failed[rollout_id] = error
        return failed


class _Met:
    """Which spans with bodies were written. A sender that got no answer sends again: what grew out of a span may not
    be what its second copy is stored as grown from, so that copy is stored whole.
    """

    def __init__(self, most: int = _MOST_MET) -> None:
        self._most = most
        self._number = 0
        self._by_rollout: OrderedDict[str, set[str]] = OrderedDict()
        self._forgotten: set[str] = set()

    def is_first(self, rollout_id: str, span_id: str) -> bool:
        """False also where that is forgotten."""
        if rollout_id in self._forgotten:
            return False
        spans = self._by_rollout.setdefault(rollout_id, set())
        self._by_rollout.move_to_end(rollout_id)
        if span_id in spans:
            return False
        spans.add(span_id)
        self._number += 1
        while self._number > self._most:
            oldest, of_oldest = self._by_rollout.popitem(last=False)
            self._number -= len(of_oldest)
            self._forgotten.add(oldest)
        return True


def _line(span: StoredSpan, rollout_id: str, once: ContentOnce | None) -> bytes:
    if once is None:
        return line_of_span(span) + b"\n"
    try:
        attributes = once.stored(span.attributes, rollout_id, span.span_id)
        return line_of_span(replace(span, attributes=attributes)) + b"\n"
    except BaseException:
        once.failed(rollout_id)  # there is no line that a later one could build on
        raise
