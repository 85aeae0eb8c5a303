"""Sampling decides what leaves over OTLP, never what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from otel_gym.tracing.membership import identity_of_start, is_asgi_message, is_gym_span, remember_identity


class GymSampler(Sampler):
    """Another sampler's decision, with DROP turned into RECORD_ONLY for gym spans.

    ``limits_attributes``: the provider may drop or cut them, so ids are noted here, where they are whole.
    """

    def __init__(self, inner: Sampler, *, limits_attributes: bool = True) -> None:
        self.inner = inner
        self._limits_attributes = limits_attributes

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if is_asgi_message(name, kind, attributes):
            return SamplingResult(Decision.DROP)
        if self._limits_attributes:
            remember_identity(trace_id, attributes)
        result = self.inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if result.decision is not Decision.DROP:
            return result
        if not is_gym_span(attributes, identity_of_start(attributes, parent_context, kind)):
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        return f"GymSampler({self.inner.get_description()})"
