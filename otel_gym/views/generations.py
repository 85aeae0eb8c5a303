"""Model-call spans → generations: what a model made, what it cost, and from which of a call's spans each is known.

A call that was captured and that a transcript tells of has two spans: they are one generation. Two are the same if they
name the same answer (and, where both say it, the same request).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import known
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.records.retries import Attempt, logical_calls
from otel_gym.records.steps import AgentStep, iso_time
from otel_gym.records.trajectory import Gap
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.json_text import parsed
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.store.tokens import NO_TOKENS, tokens_of_response
from otel_gym.views.agent_tree import text_of
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.views.model_calls import has_lost_answer, kept_headers, record_of
from otel_gym.views.same_calls import RESPONSE_ID, request_id_of
from otel_gym.wire.items import Item, output_items
from otel_gym.wire.items.genai import items_of_messages
from otel_gym.wire.usage import TokenStats, with_thinking

# Codes of gaps, and names in ``extra`` of the steps that have them.
CONTENT_NOT_RECORDED = "content_not_recorded"
CONTENT_CUT = "content_cut"
_MESSAGES = "gen_ai.output.messages"


@dataclass(slots=True, eq=False)
class Call:
    """One call of a model: ``told`` by a transcript or a client's own instrumentation, ``captured``, or both.

    ``record`` is that of the captured one; ``superseded``: its client asked the same again, and that call counts.
    """

    told: StoredSpan | None = None
    captured: StoredSpan | None = None
    record: ModelCallRecord | None = None
    superseded: bool = False

    @property
    def span(self) -> StoredSpan:
        """The one that says where in the agent's run the call stands."""
        span = self.told or self.captured
        assert span is not None
        return span

    @property
    def start_ns(self) -> int:
        return self.span.start_ns


def calls_of(rollout: RolloutSpans) -> list[Call]:
    """The calls of a rollout, oldest first; a client's own span around a captured call is no call (R033)."""
    told = [span for span in rollout.spans if is_told(span)]
    captured: list[StoredSpan] = []
    for span in without_client_layer(rollout).spans:
        if is_model_call(span) and not is_told(span):
            (captured if names.MODEL_CALL_ID in span.attributes else told).append(span)
    answers = _Answers(captured)
    calls = [Call(span, answers.same_as(span)) for span in told]
    joined = {id(call.captured) for call in calls}
    calls += [Call(captured=span) for span in captured if id(span) not in joined]
    _tell_retries([call for call in calls if call.captured is not None])
    return sorted(calls, key=lambda call: (call.start_ns, call.span.span_id))


def _tell_retries(calls: list[Call]) -> None:
    """By the same rule as `ls` and `stats`: of the attempts of one logical call the last one counts."""
    attempts: list[Attempt] = []
    for index, call in enumerate(calls):
        assert call.captured is not None
        call.record = record_of(call.captured, index)
        attempts.append(Attempt(call.record, kept_headers(call.captured.attributes, names.REQUEST_HEADER)))
    answers = {id(logical.record) for logical in logical_calls(attempts)}
    for call in calls:
        call.superseded = id(call.record) not in answers


def is_told(span: StoredSpan) -> bool:
    """A model call of an import, answered or not."""
    return names.SOURCE in span.attributes and span.attributes.get("gen_ai.operation.name") == "chat"


class _Answers:
    """Captured calls by the answer and the request that they name, each given away once."""

    def __init__(self, captured: Sequence[StoredSpan]) -> None:
        self._given: set[int] = set()
        self._by_answer: dict[str, list[StoredSpan]] = {}
        self._by_request: dict[str, list[StoredSpan]] = {}
        # Dynamo's, whose ids are others: which call each tells of was found out already.
        self._by_evidence: dict[SpanIds, list[StoredSpan]] = {}
        for span in captured:
            for link in span.links:
                if names.SAME_CALL in link.attributes:
                    self._by_evidence.setdefault((link.trace_id, link.span_id), []).append(span)
            for of_key, key in ((self._by_answer, text_of(span, RESPONSE_ID)), (self._by_request, request_id_of(span))):
                if key is not None:
                    of_key.setdefault(key, []).append(span)

    def same_as(self, span: StoredSpan) -> StoredSpan | None:
        answer, request = text_of(span, RESPONSE_ID), request_id_of(span)
        if span.attributes.get(names.SOURCE) == "dynamo":
            candidates = self._by_evidence.get(ids_of(span), [])
        elif answer is None:
            candidates = self._by_request.get(request or "", [])
        else:
            candidates = self._by_answer.get(answer, [])
            if request is not None:
                candidates = [found for found in candidates if request_id_of(found) in (request, None)]
        found = next((found for found in candidates if id(found) not in self._given), None)
        if found is not None:
            self._given.add(id(found))
        return found


def step_of(call: Call) -> AgentStep:
    """A step with what the model made; of two spans of one call the captured one is believed."""
    source = call.captured or call.span
    record = call.record or record_of(source, 0)
    told = call.told
    items, lack = _items(call, record)
    return AgentStep(
        items=items,
        model=record.model,
        stop_reason=record.finish_reason or (_stop_reason(told) if told else None),
        response_id=record.response_id,
        request_id=request_id_of(source) or (request_id_of(told) if told else None),
        started_at=_time(call.span, call.span.start_ns),
        ended_at=_time(call.span, call.span.end_ns),
        usage=_usage(record),
        provider_usage=_provider_usage(record, call.span),
        error=_error(source, record),
        is_unfinished=source.end_ns is None,
        extra={**_ids(call, record), **_tokens(call, record), **({lack: True} if lack else {})},
    )


def content_gaps(steps: Iterable[AgentStep], **lost: int) -> list[Gap]:
    """What is not known of what was said: of the answers of ``steps``, and ``lost``, a number of each kind."""
    found = list(steps)
    gaps = []
    for lack in (CONTENT_NOT_RECORDED, CONTENT_CUT):
        lost_of_lack = lost if lack is CONTENT_NOT_RECORDED else {}
        answers = sum(lack in step.extra for step in found)
        said = [f"{answers} of {len(found)} answers"] if answers else []
        said += [f"{count} {kind}" for kind, count in lost_of_lack.items() if count]
        if said:
            gaps.append(Gap(code=lack, detail=", ".join(said)))
    return gaps


def _items(call: Call, record: ModelCallRecord) -> tuple[list[Item], str | None]:
    """What the model made, and what is not known of it: one of the codes of ``content_gaps``."""
    told = call.told
    if told is not None:
        items = _json_list(text_of(told, names.OUTPUT_ITEMS))
        if items is not None:
            return [item for item in items if isinstance(item, dict)], _cut(told, names.OUTPUT_ITEMS)
    if record.response is not None and record.dialect is not None and not _is_error(record):
        return output_items(record.dialect, record.response), None
    messages = _json_list(call.span.attributes.get(_MESSAGES))
    if messages is not None:
        return items_of_messages(messages), _cut(call.span, _MESSAGES)
    return [], CONTENT_NOT_RECORDED if _had_answer(call.captured or call.span, record) else None


def _cut(span: StoredSpan, name: str) -> str | None:
    cut = span.attributes.get(names.OTLP_CUT)
    is_cut = isinstance(cut, list) and any(str(each).startswith(f"{name}=") for each in cut)
    return CONTENT_CUT if is_cut else None


def _had_answer(span: StoredSpan, record: ModelCallRecord) -> bool:
    """Whether the model said something that is not here."""
    if span.end_ns is None or (names.MODEL_CALL_ID in span.attributes and not has_lost_answer(span)):
        return False
    return _error(span, record) is None or record.response_id is not None


def _is_error(record: ModelCallRecord) -> bool:
    return record.status_code is not None and record.status_code >= 400


def _json_list(text: Any) -> list[Any] | None:
    value = text if isinstance(text, list) else parsed(text)
    return value if isinstance(value, list) else None


def _usage(record: ModelCallRecord) -> TokenStats:
    stats = TokenStats(
        record.tokens_in,
        record.tokens_out,
        record.tokens_reasoning,
        record.tokens_total,
        record.cached_tokens,
        record.cache_creation_tokens,
    )
    return with_thinking(stats, (record.response or {}).get("usage"))


def _provider_usage(record: ModelCallRecord, span: StoredSpan) -> dict[str, Any] | None:
    usage = (record.response or {}).get("usage")
    if isinstance(usage, dict):
        return usage
    said = parsed(text_of(span, names.PROVIDER_USAGE))
    return said if isinstance(said, dict) else None


def _stop_reason(span: StoredSpan) -> str | None:
    reasons: Any = span.attributes.get("gen_ai.response.finish_reasons")
    return reasons[0] if isinstance(reasons, list) and reasons and isinstance(reasons[0], str) else None


def _error(span: StoredSpan, record: ModelCallRecord) -> str | None:
    """Why the call was no success; what was cut short by its own limits is one. Of a captured call its record decides,
    as everywhere."""
    if record.error_category == "incomplete":
        return None
    if record.error_category is not None or names.MODEL_CALL_ID in span.attributes:
        return record.error_category
    return text_of(span, "error.type") if span.status == STATUS_ERROR else None


def _ids(call: Call, record: ModelCallRecord) -> dict[str, Any]:
    span = call.span
    return known({"trace_id": span.trace_id, "span_id": span.span_id, "model_call_id": record.model_call_id})


def _tokens(call: Call, record: ModelCallRecord) -> dict[str, Any]:
    """Cost, token ids and log probabilities: those of the answer, else those that an import tells."""
    told = call.told.attributes if call.told is not None else {}
    found = tokens_of_response(record.response) if record.response is not None else NO_TOKENS
    return known(
        {
            "cost_usd": told.get(names.COST_USD),
            "prompt_token_ids": found.prompt_token_ids or told.get(names.PROMPT_TOKEN_IDS),
            "completion_token_ids": found.generation_token_ids or told.get(names.COMPLETION_TOKEN_IDS),
            "logprobs": found.generation_log_probs or told.get(names.LOGPROBS),
        }
    )


def _time(span: StoredSpan, time_ns: int | None) -> str | None:
    return None if span.attributes.get(names.TIME_KNOWN) is False else iso_time(time_ns)
