"""The payload slot: bodies travel beside a span, never as SDK attributes.

Capture puts the bodies of an exchange under the ids of its span; whoever stores the span takes them. The
attributes that say which call it was and what it used travel there too, since a span's limits may drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import SpanContext

from otel_gym.content import KeptBody


@dataclass(frozen=True, slots=True)
class Payload:
    """The bodies of one exchange, None where there was none, and the attributes that no limit may drop."""

    request: KeptBody | None = None
    response: KeptBody | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def without_bodies(self) -> Payload:
        return Payload(attributes=self.attributes)


class PayloadSlots:
    """Without a lock: each step is one that no other thread can cut in two."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], Payload] = {}

    def put(self, context: SpanContext, payload: Payload) -> None:
        self._slots[context.trace_id, context.span_id] = payload

    def take(self, context: SpanContext) -> Payload | None:
        return self._slots.pop((context.trace_id, context.span_id), None) if self._slots else None

    def discard(self, context: SpanContext) -> bool:
        """Drops what nobody took; False where somebody has."""
        return self.take(context) is not None


slots = PayloadSlots()
