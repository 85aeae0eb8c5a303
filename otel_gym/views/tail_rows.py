"""A span as one line of a live view."""

from __future__ import annotations

from dataclasses import dataclass

from otel_gym.store.foreign import as_gym_span
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.model_calls import fields_of_attributes


@dataclass(frozen=True, slots=True)
class TailRow:
    """``time_ns`` is when the span ended, UTC nanoseconds; None: unknown, or it has none."""

    time_ns: int
    run_id: str | None
    rollout_id: str
    name: str
    duration_ms: float | None
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    error: str | None


def tail_row(rollout_id: str, span: StoredSpan) -> TailRow:
    span = as_gym_span(span)
    fields = fields_of_attributes(span)
    return TailRow(
        time_ns=span.end_ns or span.start_ns,
        run_id=span.run_id,
        rollout_id=rollout_id,
        name=span.name,
        duration_ms=None if span.end_ns is None else (span.end_ns - span.start_ns) / 10**6,
        model=fields["model"],
        tokens_in=fields["tokens_in"],
        tokens_out=fields["tokens_out"],
        error=_error(span, fields["error_category"]),
    )


def _error(span: StoredSpan, category: str | None) -> str | None:
    said = span.attributes.get("error.type") or category
    if said is None and span.status != STATUS_ERROR:
        return None
    return ": ".join(filter(None, (str(said or "error"), span.status_message)))
