"""One physical call, seen by two layers: a client's own instrumentation and the capture at the model server.

The Anthropic client, for one, makes a GenAI span around each call as soon as a TracerProvider is set. The capture below
it holds the exchange whole, one span an attempt, so the client's span is no call of its own.
"""

from __future__ import annotations

from otel_gym.conventions import MODEL_CALL_ID
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan

SpanIds = tuple[str, str]

_INFERENCE = frozenset({"chat", "generate_content", "text_completion"})


def is_model_call(span: StoredSpan) -> bool:
    operation = span.attributes.get("gen_ai.operation.name")
    return isinstance(operation, str) and operation in _INFERENCE


def without_client_layer(rollout: RolloutSpans) -> RolloutSpans:
    """The rollout without the model-call spans of clients whose call was captured below them."""
    seen_by_capture = _ancestors_of_captured(rollout.spans)
    spans = [span for span in rollout.spans if not (_ids(span) in seen_by_capture and _is_client_layer(span))]
    return rollout.with_spans(spans)


def _is_client_layer(span: StoredSpan) -> bool:
    return is_model_call(span) and MODEL_CALL_ID not in span.attributes


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
