"""The plain exporter: the store under the SDK's own processors, or named in a configuration file.

It is called with what they pass on: ended, sampled spans. The pipeline's own processor also stores
unsampled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_gym.conventions import ROLLOUT_ID
from otel_gym.settings import read_settings
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import content_of, encode_span
from otel_gym.tracing.membership import identity_of_start, is_gym_span
from otel_gym.tracing.payloads import slots
from otel_gym.tracing.processor import storable_rollout_id
from otel_gym.tracing.recorder import log_once


class RolloutSpanExporter(SpanExporter):
    """Appends gym spans to the store at ``directory`` (default: ``OTEL_GYM_DIR``).

    ``export`` returns FAILURE where a line could not be written; it is safe to call from threads.
    """

    def __init__(self, directory: str | None = None) -> None:
        settings = read_settings()
        self._directory = Path(directory) if directory else settings.directory
        self._lock = Lock()
        self._writer = StoreWriter(self._directory, "exporter", content_of(settings, self._directory))

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            with self._lock:
                return self._export([span for span in spans if _is_ours(span)])
        except Exception:
            log_once("a batch of spans could not be encoded")
            return SpanExportResult.FAILURE

    def _export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lost = self._writer.lines_lost
        content = self._writer.content
        try:
            lines = [_line(span, content) for span in spans]
        except Exception:
            if content is not None:
                content.failed()
            raise
        self._writer.write(lines)
        return SpanExportResult.SUCCESS if self._writer.lines_lost == lost else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is buffered: every export has been written when it returns."""


def _is_ours(span: ReadableSpan) -> bool:
    return is_gym_span(span.attributes, identity_of_start(span.attributes, None))


def _line(span: ReadableSpan, content: ContentOnce | None) -> tuple[str, bytes]:
    rollout_id = storable_rollout_id((span.attributes or {}).get(ROLLOUT_ID))
    return rollout_id, encode_span(span, slots.take(span.context), rollout_id, content)
