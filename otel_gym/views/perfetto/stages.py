"""What a model call was busy with, where that is known."""

from __future__ import annotations

from otel_gym import conventions as names
from otel_gym.store.span import StoredSpan
from otel_gym.views.perfetto.shapes import Instant, Slice

_STAGE = "model call stage"


def first_content_ns(span: StoredSpan) -> int | None:
    """When the first text, thought or call of a streamed answer came, UTC ns."""
    after = span.attributes.get(names.FIRST_CONTENT_NS)
    if type(after) is not int or span.attributes.get("gen_ai.request.stream") is not True or span.end_ns is None:
        return None
    return span.start_ns + after if 0 <= after <= span.end_ns - span.start_ns else None


def stages_of(span: StoredSpan, made: Slice) -> list[Slice | Instant]:
    """From outside the server its queue and its prefill cannot be told apart: they are one stage."""
    first_ns = first_content_ns(span)
    if first_ns is None:
        return []
    stages: list[Slice | Instant] = []
    if first_ns > made.start_ns:
        stages.append(Slice("queue + prefill", made.start_ns, first_ns, _STAGE, {}))
    stages.append(Instant("first token", first_ns, _STAGE, {}))
    if made.end_ns > first_ns:
        stages.append(Slice("decode", first_ns, made.end_ns, _STAGE, {}))
    return stages
