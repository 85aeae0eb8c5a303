"""What a store holds, in numbers: a row a rollout, and figures a run.

Tokens are those of logical calls: of several attempts at one call only the last one's count. None means unknown.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from otel_gym.conventions import MODEL_CALL_ID, REQUEST_HEADER, TIME_KNOWN, UNASSIGNED
from otel_gym.identity import indices_from_rollout_id
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.records.retries import Attempt, logical_calls
from otel_gym.store.executions import Execution
from otel_gym.store.reader import RolloutSpans, natural_key
from otel_gym.store.span import StoredSpan
from otel_gym.views.agent_tree import text_of
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.views.model_calls import model_call_records
from otel_gym.views.rewards import reward_of
from otel_gym.wire.usage import sum_of_known


@dataclass(frozen=True, slots=True)
class CallFigures:
    """One model call as it arrived at the server; times in milliseconds, None if unknown.

    ``ttft_ms`` is that of a stream: an answer in one piece has no first token.
    """

    latency_ms: float | None
    ttft_ms: float | None
    error_category: str | None
    failed: bool


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """``calls`` counts every attempt, ``retries`` those of them that repeated a failed one.

    ``status`` is ok, error or unfinished, by the rollout's root span; without one unfinished if a span is, else None.
    ``unfinished`` counts the spans that never ended, of which start records tell, ``unfinished_calls`` the model calls
    among them. ``started_at`` is UTC epoch seconds.
    ``executions`` > 1: the rollout ran again under the same id; the newest finished one is
    counted, ``other_calls`` are those of the rest.
    ``ambiguous`` counts the spans that belong to none of them for certain; they are in no other figure.
    ``superseded_by`` is the later attempt that counts instead of this one. ``run_is_ambiguous``: several runs have the
    rollout, and these spans do not say of which they are.
    """

    run_id: str | None
    rollout_id: str
    calls: int
    retries: int
    errors: int
    tokens_in: int | None
    tokens_out: int | None
    cached_tokens: int | None
    started_at: float | None
    duration_ms: float | None
    status: str | None
    reward: float | None
    executions: int
    unfinished: int = 0
    unfinished_calls: int = 0
    ambiguous: int = 0
    run_is_ambiguous: bool = False
    superseded_by: str | None = None
    call_figures: tuple[CallFigures, ...] = field(default=(), repr=False)
    other_calls: int = 0

    @property
    def superseded_calls(self) -> int:
        """Of its calls those that do not count: another execution or attempt does, or they are of no certain run."""
        return self.other_calls + (0 if self.counts or self.is_unassigned else self.calls)

    @property
    def is_unassigned(self) -> bool:
        return self.rollout_id == UNASSIGNED

    @property
    def counts(self) -> bool:
        """Whether means over rollouts include it."""
        return not (self.is_unassigned or self.run_is_ambiguous) and self.superseded_by is None


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Figures of one run, over the rollouts that count; latencies are those of calls that did not fail."""

    run_id: str | None
    rollouts: int
    superseded: int
    calls: int
    retries: int
    tokens_in: int | None
    tokens_out: int | None
    cached_tokens: int | None
    cached_share: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    errors: dict[str, int]
    mean_reward: float | None
    unassigned_calls: int
    superseded_calls: int
    unfinished_calls: int = 0


def summarize_rollout(rollout: RolloutSpans) -> RolloutSummary:
    executions = rollout.executions()
    root = executions.counting.root
    execution = without_client_layer(rollout.with_spans(executions.counting.spans))
    records = model_call_records(execution)
    attempts = attempts_of(execution, records)
    calls = logical_calls(attempts)
    streamed = {text_of(span, MODEL_CALL_ID) for span in execution.spans if is_streamed(span)}
    answers = [call.record for call in calls]
    return RolloutSummary(
        run_id=rollout.run_id,
        rollout_id=rollout.rollout_id,
        calls=len(records),
        retries=sum(call.retries for call in calls),
        errors=sum(attempt.failed for attempt in attempts),
        tokens_in=sum_of_known(record.tokens_in for record in answers),
        tokens_out=sum_of_known(record.tokens_out for record in answers),
        cached_tokens=sum_of_known(record.cached_tokens for record in answers),
        started_at=_started_at(root or execution.spans[0]),
        duration_ms=_duration_ms(root, execution.spans),
        status=Execution(root, execution.spans).status,
        reward=reward_of(executions, executions.counting),
        executions=len(executions.all),
        unfinished=sum(span.end_ns is None for span in execution.spans),
        unfinished_calls=sum(is_model_call(span) for span in execution.spans if span.end_ns is None),
        ambiguous=len(executions.ambiguous),
        run_is_ambiguous=rollout.is_ambiguous,
        call_figures=tuple(_figures(attempt, streamed) for attempt in attempts),
        other_calls=sum(map(is_model_call, without_client_layer(rollout).spans)) - len(records),
    )


def attempts_of(rollout: RolloutSpans, records: Iterable[ModelCallRecord]) -> list[Attempt]:
    """Records with the request headers that their spans kept, by which retries are told."""
    headers = {
        span.attributes[MODEL_CALL_ID]: _request_headers(span)
        for span in rollout.spans
        if isinstance(span.attributes.get(MODEL_CALL_ID), str)
    }
    return [
        Attempt(record, headers.get(record.model_call_id or "", {}), record.model_call_id is not None)
        for record in records
    ]


def mark_superseded(summaries: Iterable[RolloutSummary]) -> list[RolloutSummary]:
    """Of the attempts of one task and rollout in one run the highest counts, the others name it."""
    rows = list(summaries)
    newest: dict[tuple[str | None, int, int], tuple[int, str]] = {}
    for row in rows:
        indices = indices_from_rollout_id(row.rollout_id)
        if indices is not None:
            key = (row.run_id, indices.task_index, indices.rollout_index)
            newest[key] = max(newest.get(key, (-1, "")), (indices.attempt, row.rollout_id))
    marked = []
    for row in rows:
        indices = indices_from_rollout_id(row.rollout_id)
        latest = newest[row.run_id, indices.task_index, indices.rollout_index][1] if indices else row.rollout_id
        marked.append(row if latest == row.rollout_id else replace(row, superseded_by=latest))
    return marked


def superseded_marked(summaries: Iterable[RolloutSummary]) -> Iterator[RolloutSummary]:
    """The same for rows in the store's order, each as soon as it is known: attempts of one task stand together."""
    for _, rows in groupby(summaries, key=lambda row: natural_key(row.rollout_id)[1][:2]):
        yield from mark_superseded(rows)


def run_statistics(summaries: Sequence[RolloutSummary]) -> list[RunStatistics]:
    """Figures of each run, in the order in which the runs began; takes rows from ``mark_superseded``."""
    runs: dict[str | None, list[RolloutSummary]] = {}
    for summary in sorted(summaries, key=lambda row: row.started_at or 0.0):
        runs.setdefault(summary.run_id, []).append(summary)
    return [_statistics(run_id, rows) for run_id, rows in runs.items()]


def _statistics(run_id: str | None, rows: Sequence[RolloutSummary]) -> RunStatistics:
    counted = [row for row in rows if row.counts]
    figures = [call for row in counted for call in row.call_figures]
    answered = [call for call in figures if not call.failed]
    latencies = _known(call.latency_ms for call in answered)
    first_tokens = _known(call.ttft_ms for call in answered)
    tokens_in, cached = (
        sum_of_known(row.tokens_in for row in counted),
        sum_of_known(row.cached_tokens for row in counted),
    )
    rewards = _known(row.reward for row in counted)
    return RunStatistics(
        run_id=run_id,
        rollouts=len(counted),
        superseded=sum(row.superseded_by is not None for row in rows),
        calls=len(figures),
        retries=sum(row.retries for row in counted),
        tokens_in=tokens_in,
        tokens_out=sum_of_known(row.tokens_out for row in counted),
        cached_tokens=cached,
        cached_share=cached / tokens_in if tokens_in and cached is not None else None,
        latency_p50_ms=percentile(latencies, 50),
        latency_p95_ms=percentile(latencies, 95),
        ttft_p50_ms=percentile(first_tokens, 50),
        ttft_p95_ms=percentile(first_tokens, 95),
        errors=dict(Counter(call.error_category or "unknown" for call in figures if call.failed).most_common()),
        mean_reward=statistics.fmean(rewards) if rewards else None,
        unassigned_calls=sum(row.calls for row in rows if row.is_unassigned),
        superseded_calls=sum(row.superseded_calls for row in rows),
        unfinished_calls=sum(row.unfinished_calls for row in counted),
    )


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Linear interpolation between the closest ranks; None of nothing.

    Not ``statistics.quantiles``, whose rounding can put the 95th of equal values below their 50th.
    """
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return min(ordered[low] + (ordered[high] - ordered[low]) * (position - low), ordered[high])


def is_streamed(span: StoredSpan) -> bool:
    return span.attributes.get("gen_ai.request.stream") is True


def _figures(attempt: Attempt, streamed: Container[str | None]) -> CallFigures:
    record = attempt.record
    first_token_ms = record.latency_ttft_ms if record.model_call_id in streamed else None
    return CallFigures(record.latency_total_ms, first_token_ms, record.error_category, attempt.failed)


def _request_headers(span: StoredSpan) -> dict[str, list[str]]:
    return {
        name.removeprefix(REQUEST_HEADER): [str(value) for value in values]
        for name, values in span.attributes.items()
        if name.startswith(REQUEST_HEADER) and isinstance(values, list)
    }


def _started_at(span: StoredSpan) -> float | None:
    return None if span.attributes.get(TIME_KNOWN) is False else span.start_ns / 10**9


def _duration_ms(root: StoredSpan | None, spans: Sequence[StoredSpan]) -> float | None:
    """Of the root span; without one, first start to last end. None while the root is open, or without times."""
    if (root or spans[0]).attributes.get(TIME_KNOWN) is False:
        return None
    if root is not None:
        return None if root.end_ns is None else (root.end_ns - root.start_ns) / 10**6
    ends = [span.end_ns for span in spans if span.end_ns is not None]
    return (max(ends) - spans[0].start_ns) / 10**6 if ends else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
