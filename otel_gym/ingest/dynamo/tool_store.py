"""Tool events, taken one by one → spans in the store's live files, under the ids that an import gives them."""

from __future__ import annotations

from pathlib import Path

from otel_gym.ingest.dynamo.open_spans import OpenSpans
from otel_gym.ingest.dynamo.tool_calls import ToolCalls
from otel_gym.ingest.dynamo.tool_rollouts import rollouts_of_tools
from otel_gym.ingest.otlp.filing import Filed
from otel_gym.ingest.otlp.lines import Lines
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.dynamo import DynamoRecord
from otel_gym.settings import Settings
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.content_policy import content_policy_from
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.sealing import Sealer

SERVICE = "otel-gym-relay"
_OPERATION, _EXECUTE_TOOL = "gen_ai.operation.name", "execute_tool"


class ToolStore:
    """``add`` events, then ``write`` them. Rollouts and agents stand open in the store until ``close``."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._run_id = settings.run_id
        self._policy = content_policy_from(settings, messages=True)
        self._writer = StoreWriter(directory, SERVICE, sync=settings.syncs)
        self._lines = Lines(self._writer)
        self._sealer = Sealer(directory, settings.seal_after_s) if settings.format == "parquet" else None
        self._calls = ToolCalls()
        self._open = OpenSpans(directory)
        self._refused = 0

    @property
    def spans(self) -> int:
        """Tools that were told of."""
        return self._calls.number

    def add(self, record: DynamoRecord) -> None:
        """RefusedError for a duplicate."""
        self._calls.take(record)

    def write(self) -> OSError | None:
        """What was added since. What cannot be written is tried again the next time."""
        changed = self._calls.changed()
        for rollout in rollouts_of_tools(changed.values()):
            for span in stored_spans(rollout, self._run_id, self._policy):
                self._add(Filed(rollout.identity_id, span))
        failed = self._written()
        if failed is not None:
            self._calls.again(changed)
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
        for filed in self._open.ended():
            self._lines.add(filed)
        failed = self._written() or failed
        self.keep_house(refused)
        if self._sealer is not None:
            self._sealer.finish(self._writer.name)
        return failed

    def _written(self) -> OSError | None:
        return next(iter(self._lines.write().values()), None)

    def _add(self, filed: Filed) -> None:
        if self._sealer is not None:
            self._sealer.written(filed.rollout_id)
        if filed.span.attributes.get(_OPERATION) == _EXECUTE_TOOL:
            self._lines.add(filed)
            return
        for line in self._open.extend(filed):
            self._lines.add(line)
