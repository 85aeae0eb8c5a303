"""Tool events, taken one by one → spans in the store's live files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from otel_gym.content_policy import content_policy_from
from otel_gym.ingest.dynamo.live_spans import LiveSpans
from otel_gym.ingest.dynamo.reading import row_of
from otel_gym.ingest.dynamo.tool_frames import Refusal, RefusedError
from otel_gym.ingest.otlp.filing import Filed
from otel_gym.ingest.otlp.lines import Lines
from otel_gym.records.dynamo import DynamoRecord
from otel_gym.settings import Settings
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.sealing import Sealer

SERVICE = "otel-gym-relay"


class ToolStore:
    """``add`` events, then ``write`` them. Rollouts and agents stand open in the store until ``close``."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._writer = StoreWriter(directory, SERVICE, sync=settings.syncs)
        self._lines = Lines(self._writer)
        self._sealer = Sealer(directory, settings.seal_after_s) if settings.format == "parquet" else None
        self._spans = LiveSpans(directory, settings.run_id, content_policy_from(settings, messages=True))
        self._refused = 0

    @property
    def tools(self) -> int:
        """How many were told of."""
        return self._spans.tools

    def add(self, record: DynamoRecord) -> None:
        """RefusedError for a duplicate."""
        line = msgspec.json.encode(record)
        if not self._spans.take(line, row_of(line)):
            raise RefusedError(Refusal.DUPLICATE, f"a {record.event_type} says what another one said")

    def write(self) -> OSError | None:
        """What was added since. What cannot be written is tried again the next time."""
        failed = self._write(self._spans.changed())
        if failed is None:
            self._spans.written()
        else:
            self._spans.failed()
        return failed

    def keep_house(self, refused: int) -> None:
        """Seals what is due, where files are sealed, and writes how many events were ``refused``."""
        if self._sealer is not None:
            self._sealer.step(self._writer.name)
        if refused == self._refused:
            return
        try:
            self._writer.write_counts({"refused_tool_events": refused})
            self._refused = refused
        except OSError as error:
            log_once(f"counts cannot be written: {error}", with_traceback=False)

    def close(self, refused: int) -> OSError | None:
        """Ends the rollouts and agents with the last that was told of them."""
        failed = self.write()
        failed = self._write(self._spans.ended()) or failed
        self.keep_house(refused)
        if self._sealer is not None:
            self._sealer.finish(self._writer.name)
        return failed

    def _write(self, spans: list[Filed]) -> OSError | None:
        for filed in spans:
            self._lines.add(filed)
            if self._sealer is not None:
                self._sealer.written(filed.rollout_id)
        return next(iter(self._lines.write().values()), None)
