"""Spans whose rollout is known → lines of a writer's files."""

from __future__ import annotations

from dataclasses import replace

from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY
from otel_gym.ingest.otlp.filing import Filed
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.writer import StoreWriter


class Lines:
    """Gathers lines by rollout; ``write`` appends them, those of a rollout at once. ``size``: bytes that wait."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._lines: dict[str, list[bytes]] = {}
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
        line = _line(span, rollout_id, once)
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


def _line(span: StoredSpan, rollout_id: str, once: ContentOnce | None) -> bytes:
    attributes = span.attributes
    if once is None or (REQUEST_BODY not in attributes and RESPONSE_BODY not in attributes):
        return line_of_span(span) + b"\n"
    try:
        return line_of_span(replace(span, attributes=once.stored(attributes, rollout_id, span.span_id))) + b"\n"
    except BaseException:
        once.failed(rollout_id)  # there is no line that a later one could build on
        raise
