"""``ng_model_call_capture``: the model calls of one rollout as NeMo Gym attaches them to its row, with named gaps.

What cannot be told for certain is a gap, and never guessed: a rollout that several runs have, calls of which none can
say whose they are. Of several executions the one that counts is attached, and the others are a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from otel_gym import conventions as names
from otel_gym.records.model_call import SUMMED_FIELDS, ModelCallRecord, aggregate_model_call_records
from otel_gym.store.executions import Executions
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.json_lines import plain
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.views.model_calls import model_calls

NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
INCOMPLETE = "model_call_capture_incomplete"
UNREADABLE = "model_call_capture_unreadable"
# What NeMo Gym has no word for.
AMBIGUOUS_RUN = "model_call_capture_ambiguous_run"
AMBIGUOUS_CALLS = "model_call_capture_ambiguous_calls"
OTHER_EXECUTIONS = "model_call_capture_other_executions"
DUPLICATE_ROWS = "model_call_capture_duplicate_rows"
NO_ROLLOUT_ID = "model_call_capture_no_rollout_id"

_PAYLOADS = ("request", "response", "request_raw", "response_raw")
# In NeMo Gym's order.
_FIELDS = (
    "model_call_id",
    "response_id",
    "client_session_id",
    "call_index",
    "model_ref",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    *_PAYLOADS,
    "tool_calls",
    "reasoning_content",
    "cache_hit",
    "cached_tokens",
    "cache_creation_tokens",
    "error_category",
    "latency_total_ms",
    "latency_ttft_ms",
)

Json = dict[str, Any]


def capture_attachment(
    rollout_id: str, found: Sequence[RolloutSpans], *, damaged: int = 0, include_payloads: bool = False
) -> Json:
    """``found`` is what the store has under the id, each run apart; ``damaged`` counts records of it that were lost."""
    certain = [rollout for rollout in found if not rollout.is_ambiguous] or list(found)
    if len(certain) > 1:
        runs = ", ".join(sorted(rollout.run_id or "-" for rollout in certain))
        return without_calls(rollout_id, _gap(AMBIGUOUS_RUN, f"runs={runs}"))
    if not certain:
        return without_calls(rollout_id, _gap(RECORDS_UNREADABLE, f"count={damaged}") if damaged else _gap(NO_RECORDS))
    [rollout] = certain
    executions = rollout.executions()
    calls = list(model_calls(rollout.with_spans(executions.counting.spans)))
    records = [call.record for call in calls]
    is_open = any(call.span.end_ns is None for call in calls)
    gaps = _gaps(rollout.spans, bool(records), damaged, is_open)
    of_no_run = [span for other in found if other is not rollout for span in other.spans]
    gaps += _uncertain(executions, of_no_run)
    return _attachment(rollout_id, aggregate_model_call_records(records), _calls(records, include_payloads), gaps)


def without_calls(rollout_id: str | None, gap: Json) -> Json:
    """Where it cannot be told which calls there are, their number is unknown too."""
    number = 0 if gap["code"] == NO_RECORDS else None
    return _attachment(rollout_id, {**dict.fromkeys(SUMMED_FIELDS), "num_calls": number}, [], [gap])


def duplicate_rows(rollout_id: str, lines: Iterable[int]) -> Json:
    """Several rows name the rollout: which of them made its calls, none can say."""
    return without_calls(rollout_id, _gap(DUPLICATE_ROWS, f"lines={', '.join(map(str, lines))}"))


def no_rollout_id(problem: str) -> Json:
    return without_calls(None, _gap(NO_ROLLOUT_ID, problem))


def number_of_calls(rollout: RolloutSpans) -> int:
    """Without reading what was said in them."""
    return sum(map(is_model_call, without_client_layer(rollout).spans))


def _attachment(rollout_id: str | None, metrics: Json, calls: list[Json], gaps: list[Json]) -> Json:
    attachment: Json = {"rollout_id": rollout_id, "metrics": metrics, "calls": calls}
    return {**attachment, "gaps": gaps} if gaps else attachment


def _calls(records: Iterable[ModelCallRecord], include_payloads: bool) -> list[Json]:
    fields = [name for name in _FIELDS if include_payloads or name not in _PAYLOADS]
    return [{name: plain(getattr(record, name)) for name in fields} for record in records]


def _gap(code: str, detail: str | None = None) -> Json:
    return {"code": code} if detail is None else {"code": code, "detail": detail}


def _gaps(spans: Iterable[StoredSpan], has_records: bool, damaged: int, is_open: bool) -> list[Json]:
    """In NeMo Gym's words and order."""
    files = _newest_of_files(span for span in spans if span.name == names.CAPTURE_SPAN)
    unreadable = damaged + sum(_count(span.attributes.get(names.CAPTURE_UNREADABLE_RECORDS)) for span in files)
    is_unreadable = any(span.attributes.get(names.CAPTURE_UNREADABLE) is True for span in files)
    gaps = [_gap(RECORDS_UNREADABLE, f"count={unreadable}")] if unreadable else []
    if is_open or any(span.attributes.get(names.CAPTURE_INCOMPLETE) is True for span in files):
        gaps.append(_gap(INCOMPLETE))
    elif not (has_records or unreadable or is_unreadable):
        gaps.append(_gap(NO_RECORDS))
    return [*gaps, _gap(UNREADABLE)] if is_unreadable else gaps


def _newest_of_files(files: Iterable[StoredSpan]) -> list[StoredSpan]:
    """A file that had no call yet when it was imported first is told of anew by a later import."""
    found = list(files)
    with_calls = [span for span in found if "/" in str(span.attributes.get(names.SOURCE_SESSION_ID))]
    return with_calls or found


def _count(value: Any) -> int:
    return value if type(value) is int else 0


def _uncertain(executions: Executions, of_no_run: list[StoredSpan]) -> list[Json]:
    gaps = []
    uncertain = sum(map(is_model_call, [*executions.ambiguous, *of_no_run]))
    if uncertain:
        gaps.append(_gap(AMBIGUOUS_CALLS, f"count={uncertain}"))
    if len(executions.all) > 1:
        gaps.append(_gap(OTHER_EXECUTIONS, f"count={len(executions.all) - 1}"))
    return gaps
