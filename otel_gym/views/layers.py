"""One physical call, seen by several layers: clients' own instrumentations, and each point of capture on its way.

The Anthropic client, for one, makes a GenAI span around each call as soon as a TracerProvider is set; a proxy and an
instrumented server behind it capture the call twice. The innermost capture, nearest to the model, counts: it saw what
the model was asked and what it answered, one span an attempt. A span above it is no call of its own, and neither is a
client's span that names the response, or the request, of a captured call.

Where nothing was captured, spans of several instrumentations are one call by the rules of ``same_calls``: the one that
tells most counts, and has from the others what it does not tell.

The span that counts links to those that do not: they are kept, as evidence.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from otel_gym.conventions import (
    DYNAMO_PREFIX,
    ERROR_CATEGORY,
    INFERENCE_OPERATIONS,
    MODEL_CALL_ID,
    REQUEST_ID,
    SOURCE,
    X_REQUEST_ID,
)
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.agent_tree import agent_context_of
from otel_gym.views.same_calls import DYNAMO_REQUEST_ID, RESPONSE_ID, SameCalls, linked_to, request_id_of, same_calls

# What says that a server was asked: not 404 or a lost connection, which no model server may have seen.
_BEFORE_DYNAMOS = ("chatcmpl-", "cmpl-", "resp_")
_FAILED_AT_SERVER = frozenset({"auth", "cancelled", "client_error", "rate_limit", "timeout", "upstream_error"})


def is_model_call(span: StoredSpan) -> bool:
    """Whether the span is a call that a model server got: captured there, answered or refused by it, or told of by an
    ATIF document.

    A client's own span that tells of no answer (a 404, no connection) may never have reached one.
    """
    return asks_model(span) and (MODEL_CALL_ID in span.attributes or _has_answer(span) or _has_failed(span))


def asks_model(span: StoredSpan) -> bool:
    """Whether the span tells of a call of a model, also of one that may never have reached a server."""
    operation = span.attributes.get("gen_ai.operation.name")
    return isinstance(operation, str) and operation in INFERENCE_OPERATIONS


def _has_answer(span: StoredSpan) -> bool:
    return any(name == RESPONSE_ID or name.startswith("gen_ai.usage.") for name in span.attributes)


def _has_failed(span: StoredSpan) -> bool:
    if span.attributes.get(SOURCE) == "atif":
        return span.status == STATUS_ERROR or span.end_ns is None
    category = span.attributes.get(ERROR_CATEGORY)
    return isinstance(category, str) and category in _FAILED_AT_SERVER


def without_client_layer(rollout: RolloutSpans) -> RolloutSpans:
    """The rollout with each call once: without the spans of a call that another span of it tells better.

    A failure that names no answer cannot be joined: where calls were captured, theirs are the failures.
    """
    outer = _outer_layers(rollout.spans)
    counting = _with_evidence(outer, rollout.spans)
    dropped = set(outer)
    for call in _same_calls_beside(outer, rollout).calls:
        counting[ids_of(call.counting)] = call.counting
        dropped.update(map(ids_of, call.others))
    return rollout.with_spans(
        [counting.get(ids_of(span), span) for span in rollout.spans if ids_of(span) not in dropped]
    )


def told_better(rollout: RolloutSpans) -> set[SpanIds]:
    """The spans that ``without_client_layer`` leaves out."""
    outer = _outer_layers(rollout.spans)
    return {*outer, *(ids_of(each) for call in _same_calls_beside(outer, rollout).calls for each in call.others)}


def doubtful_calls(rollout: RolloutSpans) -> list[tuple[StoredSpan, StoredSpan]]:
    """Pairs that may be one call, and are counted as two since nothing proves it."""
    return _same_calls_beside(_outer_layers(rollout.spans), rollout).doubtful


def _same_calls_beside(outer: Container[SpanIds], rollout: RolloutSpans) -> SameCalls:
    """Of the calls that nobody captured."""
    told = [
        span
        for span in rollout.spans
        if ids_of(span) not in outer and MODEL_CALL_ID not in span.attributes and is_model_call(span)
    ]
    return same_calls(told, rollout.spans)


def _outer_layers(spans: list[StoredSpan]) -> dict[SpanIds, StoredSpan | None]:
    """The spans of calls that were captured below or beside them, each with the captured one, where it is known."""
    captured = [span for span in spans if MODEL_CALL_ID in span.attributes]
    if not captured:
        return {}
    below = _captured_below(spans, captured)
    by_answer = {name: span for span in captured for name in _names_of_answer(span)}
    outer: dict[SpanIds, StoredSpan | None] = {}
    for span in spans:
        if not is_model_call(span):
            continue
        ids = ids_of(span)
        if ids in below:
            outer[ids] = below[ids]
        elif MODEL_CALL_ID in span.attributes:
            continue
        elif not _has_answer(span):
            outer[ids] = None
        else:
            same = next((by_answer[name] for name in _names_of_answer(span) if name in by_answer), None)
            if same is not None:
                outer[ids] = same
    if any(X_REQUEST_ID in span.attributes for span in captured):
        outer |= _of_clients_id(spans, outer)
    return outer


def _of_clients_id(
    spans: list[StoredSpan], outer: Mapping[SpanIds, StoredSpan | None]
) -> dict[SpanIds, StoredSpan | None]:
    """Dynamo's spans of which no captured answer has the name, by the ``x-request-id`` that the client sent: what has
    it alone on either side is one call. Clients repeat it when they try again.
    """
    of_dynamo = [
        span for span in spans if DYNAMO_REQUEST_ID in span.attributes and MODEL_CALL_ID not in span.attributes
    ]
    found = {ids_of(inner) for inner in (outer.get(ids_of(span)) for span in of_dynamo) if inner is not None}
    ours = [span for span in spans if MODEL_CALL_ID in span.attributes and ids_of(span) not in found]
    theirs = [span for span in of_dynamo if ids_of(span) not in outer and is_model_call(span)]
    captured = _by_clients_id(ours)
    pairs = ((captured.get(name, []), same) for name, same in _by_clients_id(theirs).items())
    return {
        ids_of(same[0]): calls[0]
        for calls, same in pairs
        if len(calls) == len(same) == 1 and _may_be_of_one_agent(calls[0], same[0])
    }


def _by_clients_id(spans: Sequence[StoredSpan]) -> dict[str, list[StoredSpan]]:
    found: dict[str, list[StoredSpan]] = {}
    for span in spans:
        name = span.attributes.get(X_REQUEST_ID)
        if isinstance(name, str):
            found.setdefault(name, []).append(span)
    return found


def _may_be_of_one_agent(one: StoredSpan, other: StoredSpan) -> bool:
    ours, theirs = agent_context_of(one), agent_context_of(other)
    return ours is None or theirs is None or ours.agent_id == theirs.agent_id


def _names_of_answer(span: StoredSpan) -> list[tuple[str, str]]:
    """The answer's id, the request's, and Dynamo's of the request: the rest of the answer's there, or the call's own
    in trace files that we wrote.
    """
    answer, dynamo = span.attributes.get(RESPONSE_ID), span.attributes.get(DYNAMO_REQUEST_ID)
    if dynamo is None and isinstance(answer, str):
        dynamo = next((answer.removeprefix(begin) for begin in _BEFORE_DYNAMOS if answer.startswith(begin)), None)
    named = ((RESPONSE_ID, answer), (REQUEST_ID, request_id_of(span)), (DYNAMO_REQUEST_ID, dynamo))
    own = ((DYNAMO_REQUEST_ID, span.attributes.get(MODEL_CALL_ID)),)
    return [(kind, name) for kind, name in named + own if isinstance(name, str)]


def _captured_below(spans: list[StoredSpan], captured: list[StoredSpan]) -> dict[SpanIds, StoredSpan]:
    """The ancestors of captured calls, each with the last of these below it."""
    parents = {ids_of(span): (span.trace_id, span.parent_span_id or "") for span in spans}
    below: dict[SpanIds, StoredSpan] = {}
    for span in reversed(captured):
        parent = parents.get(ids_of(span))
        while parent in parents and parent not in below:
            below[parent] = span
            parent = parents[parent]
    return below


def _with_evidence(outer: dict[SpanIds, StoredSpan | None], spans: Sequence[StoredSpan]) -> dict[SpanIds, StoredSpan]:
    """The captured calls, linked to the spans that tell of them too, with what Dynamo says of its own work."""
    evidence: dict[SpanIds, list[SpanIds]] = {}
    captured: dict[SpanIds, StoredSpan] = {}
    told: dict[SpanIds, dict[str, Any]] = {}
    for span in spans:
        inner = outer.get(ids_of(span))
        if inner is not None:
            captured[ids_of(inner)] = inner
            evidence.setdefault(ids_of(inner), []).append(ids_of(span))
            dynamos = {name: value for name, value in span.attributes.items() if name.startswith(DYNAMO_PREFIX)}
            told.setdefault(ids_of(inner), {}).update(dynamos)
    return {
        ids: replace(linked_to(span, evidence[ids]), attributes={**told[ids], **span.attributes})
        for ids, span in captured.items()
    }
