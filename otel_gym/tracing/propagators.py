"""Propagation that is switched off (``OTEL_PROPAGATORS=none``, a configuration file without propagators)."""

from __future__ import annotations

from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator


class NoPropagator(TextMapPropagator):
    """Tells and takes nothing."""

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        return Context() if context is None else context

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        pass

    @property
    def fields(self) -> set[str]:
        return set()


def mend_empty_propagator() -> None:
    """OpenTelemetry's own gives None for an empty context, and every traced request fails on that."""
    if propagate.extract({}) is None:
        propagate.set_global_textmap(NoPropagator())
