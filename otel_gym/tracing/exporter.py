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

from otel_gym.content_policy import content_policy_from
from otel_gym.conventions import ROLLOUT_ID, UNASSIGNED
from otel_gym.settings import read_settings
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import content_of, encode_span
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_of_start, is_gym_span, length_limit
from otel_gym.tracing.payloads import slots
from otel_gym.tracing.pipeline import stores
from otel_gym.tracing.processor import storable_rollout_id
from otel_gym.tracing.setup_notes import EXPORTER_NOTES, say_foreign


class RolloutSpanExporter(SpanExporter):
    """Appends gym spans to the store at ``directory`` (default: ``OTEL_GYM_DIR``).

    Spans that our own processor puts into the same store are left to it. ``export`` returns FAILURE where a line could
    not be written; it is safe to call from threads.
    """

    def __init__(self, directory: str | None = None) -> None:
        settings = read_settings()
        self._directory = Path(directory) if directory else settings.directory
        say_foreign(self._directory)
        self._lock = Lock()
        self._policy = content_policy_from(settings, messages=False)
        content = content_of(settings, self._directory)
        self._writer = StoreWriter(
            self._directory, "exporter", sync=settings.syncs, content=content, notes=EXPORTER_NOTES
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            with self._lock:
                self._export([span for span in spans if _is_ours(span) and not stores(span, self._directory)])
        except Exception:
            log_once("a batch of spans could not be exported")
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def _export(self, spans: Sequence[ReadableSpan]) -> None:
        batches: dict[str, bytearray] = {}
        try:
            for span in spans:
                rollout_id = _rollout_id(span)
                lines = batches.setdefault(rollout_id, bytearray())
                once = self._writer.content_for(rollout_id)
                lines += encode_span(span, slots.take(span.context), self._policy, None, rollout_id, once)
            for rollout_id, lines in batches.items():
                self._writer.append(rollout_id, lines)
        finally:
            if self._writer.content is not None:
                self._writer.content.failed()  # what was not committed

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is buffered: every export has been written when it returns."""


def _is_ours(span: ReadableSpan) -> bool:
    return is_gym_span(span.attributes, identity_of_start(span.attributes, None))


def _rollout_id(span: ReadableSpan) -> str:
    """``unassigned`` also for an id that a limit may have cut: it could be that of many rollouts."""
    rollout_id = (span.attributes or {}).get(ROLLOUT_ID)
    limit = length_limit(span)
    if limit is not None and isinstance(rollout_id, str) and len(rollout_id) >= limit:
        log_once("a rollout id is as long as the limit of attributes and may be cut: unassigned", with_traceback=False)
        return UNASSIGNED
    return storable_rollout_id(rollout_id)
