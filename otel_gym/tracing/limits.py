"""Span limits: none for spans that go to the store, unless the standard variables ask for some.

The SDK's default of 128 attributes drops the oldest first, so what a span is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import SpanLimits, TracerProvider

from otel_gym.settings import say_once

# Counts: argument of SpanLimits → the variables that set it. Lengths have no limit by default.
_COUNTS: dict[str, tuple[str, ...]] = {
    "max_attributes": ("OTEL_ATTRIBUTE_COUNT_LIMIT",),
    "max_span_attributes": ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
    "max_event_attributes": ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
    "max_link_attributes": ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
    "max_events": ("OTEL_SPAN_EVENT_COUNT_LIMIT",),
    "max_links": ("OTEL_SPAN_LINK_COUNT_LIMIT",),
}


def own_span_limits(environ: Mapping[str, str]) -> SpanLimits:
    """Unlimited but for what the environment says; a value that the SDK refuses is said once."""
    asked_for = {name for name, variables in _COUNTS.items() if any(variable in environ for variable in variables)}
    unlimited = dict.fromkeys(_COUNTS.keys() - asked_for, SpanLimits.UNSET)
    try:
        return SpanLimits(**unlimited)
    except ValueError as error:
        say_once(f"the span limits of the environment are refused, none are used: {error}")
        lengths = {"max_attribute_length": SpanLimits.UNSET, "max_span_attribute_length": SpanLimits.UNSET}
        return SpanLimits(**dict.fromkeys(_COUNTS, SpanLimits.UNSET), **lengths)


def drops_attributes(provider: TracerProvider) -> bool:
    """Whether attributes of the provider's spans may be dropped or cut."""
    limits: Any = getattr(provider, "_span_limits", None)
    return limits is None or limits_attributes(limits)


def limits_attributes(limits: SpanLimits) -> bool:
    return limits.max_span_attributes is not None or limits.max_span_attribute_length is not None
