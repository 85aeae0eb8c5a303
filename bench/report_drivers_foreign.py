"""What spans of others, as reports show them, tell of model calls: each call once, by its newest names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_gym.store.foreign import as_gym_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.model_calls import model_calls
from otel_gym.wire.usage import TokenStats, sum_of_known


def told_of_calls(spans: Sequence[StoredSpan], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Counts are one for each call where the report expects a list, else their sum."""
    calls = list(model_calls(RolloutSpans(None, "0-0", as_gym_spans(list(spans)))))
    found: dict[str, Any] = {
        "generations": len(calls),
        "provider": [call.span.attributes.get("gen_ai.provider.name") for call in calls],
    }
    for name in TokenStats._fields:
        counts = [getattr(call.record, name) for call in calls]
        found[name] = counts if isinstance(expected.get(name), list) else sum_of_known(counts)
    return found
