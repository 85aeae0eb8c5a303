"""Records that come one by one → spans under the ids that an import of the whole trace gives them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from otel_gym.content_policy import ContentPolicy
from otel_gym.ingest.dynamo.live_trace import Key, LiveTrace
from otel_gym.ingest.dynamo.open_spans import OpenSpans
from otel_gym.ingest.dynamo.reading import Row
from otel_gym.ingest.dynamo.spans import rollouts_of
from otel_gym.ingest.otlp.filing import Filed
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.span import StoredSpan

_OPERATION = "gen_ai.operation.name"
# Spans of which is known how they were written last.
_MOST_WRITTEN = 200_000


class LiveSpans:
    """``take`` records, ``changed`` gives the spans to write. Rollouts and agents stand open until ``ended``."""

    def __init__(self, directory: Path, run_id: str | None, policy: ContentPolicy) -> None:
        self._run_id = run_id
        self._policy = policy
        self._trace = LiveTrace()
        self._open = OpenSpans(directory)
        self._keys: list[Key] = []
        self._new: list[SpanIds] = []
        self._written: OrderedDict[SpanIds, int] = OrderedDict()

    @property
    def tools(self) -> int:
        """How many were told of."""
        return self._trace.tools

    def take(self, line: bytes, row: Row) -> bool:
        """False: it tells nothing new. ``line`` is what ``row`` was read from."""
        return self._trace.take(line, row)

    def changed(self) -> list[Filed]:
        """What is new since the last time; bodies of requests wait for their request's own record."""
        self._keys, self._new = self._trace.changed(), []
        return list(self._spans(self._keys))

    def written(self) -> None:
        """What ``changed`` gave last is in the store."""
        self._trace.forget()
        while len(self._written) > _MOST_WRITTEN:
            self._written.popitem(last=False)

    def failed(self) -> None:
        """What ``changed`` gave last could not be written: it is given again."""
        self._trace.again(self._keys)
        for ids in self._new:
            self._written.pop(ids, None)

    def ended(self) -> list[Filed]:
        """Bodies whose request's record did not come; and rollouts and agents, with the last that was told of them."""
        return [*self._spans(self._trace.rest()), *self._open.ended()]

    def _spans(self, keys: list[Key]) -> Iterator[Filed]:
        for rollout in rollouts_of(self._trace.trace_of(keys)):
            for span in stored_spans(rollout, self._run_id, self._policy):
                filed = Filed(rollout.identity_id, span)
                if span.attributes.get(_OPERATION) in (None, "invoke_agent"):
                    yield from self._open.extend(filed)
                elif self._is_new(span):
                    yield filed

    def _is_new(self, span: StoredSpan) -> bool:
        """Not what stands there only so that an agent above is found."""
        said = hash((span.start_ns, span.end_ns, span.parent_span_id, span.status, repr(span.attributes)))
        ids = ids_of(span)
        if self._written.get(ids) == said:
            return False
        self._written[ids] = said
        self._written.move_to_end(ids)
        self._new.append(ids)
        return True
