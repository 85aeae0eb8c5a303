"""The spans of a rollout as a tree, each model call with its record."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_gym.conventions import MODEL_CALL_ID
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.executions import roots_of, topmost
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.model_calls import model_call_records


@dataclass(slots=True)
class SpanNode:
    """``joined``: no parent was recorded; the span stands here because it ran within this rollout's root."""

    span: StoredSpan
    record: ModelCallRecord | None = None
    children: list[SpanNode] = field(default_factory=list)
    joined: bool = False


def span_tree(rollout: RolloutSpans) -> list[SpanNode]:
    """The topmost spans, oldest first. A call that came by URL prefix alone hangs under the root that encloses it."""
    records = {record.model_call_id: record for record in model_call_records(rollout)}
    by_id = {(span.trace_id, span.span_id): span for span in rollout.spans}
    nodes = {ids: SpanNode(span, records.get(span.attributes.get(MODEL_CALL_ID, ""))) for ids, span in by_id.items()}
    roots = roots_of(rollout.spans)
    top: list[SpanNode] = []
    for (trace_id, span_id), node in nodes.items():
        parent = nodes.get((trace_id, node.span.parent_span_id or ""))
        if parent is not None and topmost(node.span, by_id).span_id != span_id:
            parent.children.append(node)
            continue
        root = _enclosing(node.span, roots)
        if root is None:
            top.append(node)
        else:
            node.joined = True
            nodes[root.trace_id, root.span_id].children.append(node)
    return top


def _enclosing(span: StoredSpan, roots: list[StoredSpan]) -> StoredSpan | None:
    return next(
        (
            root
            for root in reversed(roots)
            if root is not span and root.start_ns <= span.start_ns and span.start_ns <= (root.end_ns or span.start_ns)
        ),
        None,
    )
