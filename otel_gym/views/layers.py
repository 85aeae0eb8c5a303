"""One physical call, seen by several layers: a client's own instrumentation, and each point of capture on its way.

The Anthropic client, for one, makes a GenAI span around each call as soon as a TracerProvider is set; a proxy and an
instrumented server behind it capture the call twice. The innermost capture, nearest to the model, counts: it saw what
the model was asked and what it answered, one span an attempt. A span above it is no call of its own, and neither is a
client's span that names the response of a captured call.
"""

from __future__ import annotations

from otel_gym.conventions import MODEL_CALL_ID
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan

SpanIds = tuple[str, str]

RESPONSE_ID = "gen_ai.response.id"

_INFERENCE = frozenset({"chat", "generate_content", "text_completion"})


def is_model_call(span: StoredSpan) -> bool:
    """Whether the span is a call that a model server got: captured there, or answered.

    A client's own span that tells of no answer (a 404, no connection) may never have reached one.
    """
    operation = span.attributes.get("gen_ai.operation.name")
    if not isinstance(operation, str) or operation not in _INFERENCE:
        return False
    return MODEL_CALL_ID in span.attributes or any(
        name == RESPONSE_ID or name.startswith("gen_ai.usage.") for name in span.attributes
    )


def without_client_layer(rollout: RolloutSpans) -> RolloutSpans:
    """The rollout without the model-call spans whose call was captured below them, or is told of by a captured one."""
    seen_by_capture = _ancestors_of_captured(rollout.spans)
    captured = (span.attributes.get(RESPONSE_ID) for span in rollout.spans if MODEL_CALL_ID in span.attributes)
    answers = {answer for answer in captured if isinstance(answer, str)}
    spans = [span for span in rollout.spans if not _is_outer_layer(span, seen_by_capture, answers)]
    return rollout.with_spans(spans)


def _is_outer_layer(span: StoredSpan, seen_by_capture: set[SpanIds], answers: set[str]) -> bool:
    if not is_model_call(span):
        return False
    if _ids(span) in seen_by_capture:
        return True
    answer = span.attributes.get(RESPONSE_ID)
    return MODEL_CALL_ID not in span.attributes and isinstance(answer, str) and answer in answers


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
