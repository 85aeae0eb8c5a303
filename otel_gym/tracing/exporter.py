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
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.content_policy import content_policy_from
from otel_gym.tracing.encode import encode_span
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
        self._content = content_policy_from(settings, messages=False)
        self._lock = Lock()
        self._writer = StoreWriter(self._directory, "exporter")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            lines = [self._line(span) for span in spans if _is_ours(span)]
        except Exception:
            log_once("a batch of spans could not be encoded")
            return SpanExportResult.FAILURE
        with self._lock:
            lost = self._writer.lines_lost
            self._writer.write(lines)
            return SpanExportResult.SUCCESS if self._writer.lines_lost == lost else SpanExportResult.FAILURE

    def _line(self, span: ReadableSpan) -> tuple[str, bytes]:
        rollout_id = storable_rollout_id((span.attributes or {}).get(ROLLOUT_ID))
        return rollout_id, encode_span(span, slots.take(span.context), self._content)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is buffered: every export has been written when it returns."""


def _is_ours(span: ReadableSpan) -> bool:
    return is_gym_span(span.attributes, identity_of_start(span.attributes, None))
