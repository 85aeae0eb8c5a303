"""One physical call, seen by several layers: a client's own instrumentation, and each point of capture on its way.

The Anthropic client, for one, makes a GenAI span around each call as soon as a TracerProvider is set; a proxy and an
instrumented server behind it capture the call twice. The innermost capture, nearest to the model, counts: it saw what
the model was asked and what it answered, one span an attempt. A span above it is no call of its own, and neither is a
client's span that names the response of a captured call.
"""

from __future__ import annotations

from otel_gym.conventions import MODEL_CALL_ID, SOURCE
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan

SpanIds = tuple[str, str]

RESPONSE_ID = "gen_ai.response.id"

_INFERENCE = frozenset({"chat", "generate_content", "text_completion"})


def is_model_call(span: StoredSpan) -> bool:
    """Whether the span is a call that a model server got: captured there, answered, or told of by an ATIF document.

    A client's own span that tells of no answer (a 404, no connection) may never have reached one.
    """
    return asks_model(span) and (MODEL_CALL_ID in span.attributes or _has_answer(span) or _failed_in_atif(span))


def asks_model(span: StoredSpan) -> bool:
    """Whether the span tells of a call of a model, also of one that may never have reached a server."""
    operation = span.attributes.get("gen_ai.operation.name")
    return isinstance(operation, str) and operation in _INFERENCE


def _has_answer(span: StoredSpan) -> bool:
    return any(name == RESPONSE_ID or name.startswith("gen_ai.usage.") for name in span.attributes)


def _failed_in_atif(span: StoredSpan) -> bool:
    return span.attributes.get(SOURCE) == "atif" and (span.status == STATUS_ERROR or span.end_ns is None)


def without_client_layer(rollout: RolloutSpans) -> RolloutSpans:
    """The rollout without the model-call spans whose call was captured below them, or is told of by a captured one.

    A failure that names no answer cannot be joined: where calls were captured, theirs are the failures.
    """
    seen_by_capture = _ancestors_of_captured(rollout.spans)
    captured = [span.attributes.get(RESPONSE_ID) for span in rollout.spans if MODEL_CALL_ID in span.attributes]
    answers = {answer for answer in captured if isinstance(answer, str)}
    spans = [span for span in rollout.spans if not _is_outer_layer(span, seen_by_capture, answers, bool(captured))]
    return rollout.with_spans(spans)


def _is_outer_layer(span: StoredSpan, seen_by_capture: set[SpanIds], answers: set[str], has_captured: bool) -> bool:
    if not is_model_call(span):
        return False
    if _ids(span) in seen_by_capture:
        return True
    if MODEL_CALL_ID in span.attributes:
        return False
    if not _has_answer(span):
        return has_captured
    answer = span.attributes.get(RESPONSE_ID)
    return isinstance(answer, str) and answer in answers


def _ancestors_of_captured(spans: list[StoredSpan]) -> set[SpanIds]:
    parents = {_ids(span): (span.trace_id, span.parent_span_id or "") for span in spans}
    ancestors: set[SpanIds] = set()
    for span in spans:
        if MODEL_CALL_ID not in span.attributes:
            continue
        parent = parents.get(_ids(span))
        while parent in parents and parent not in ancestors:
            ancestors.add(parent)
            parent = parents[parent]
    return ancestors


def _ids(span: StoredSpan) -> SpanIds:
    return span.trace_id, span.span_id
