"""Propagation as the environment asks for it, also where it is switched off (``OTEL_PROPAGATORS=none``, a configuration
file without propagators) or misspelt.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from otel_gym.settings import say_once


class NoPropagator(TextMapPropagator):
    """Tells and takes nothing."""

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        return Context() if context is None else context

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        pass

    @property
    def fields(self) -> set[str]:
        return set()


def load_propagators() -> None:
    """OpenTelemetry's module of them cannot be imported where OTEL_PROPAGATORS names one that is not there: neither
    could then a traced program, which is told instead.
    """
    try:
        import_module("opentelemetry.propagate")
    except ValueError as error:
        named = os.environ.pop("OTEL_PROPAGATORS", "")
        try:
            import_module("opentelemetry.propagate")
        finally:
            os.environ["OTEL_PROPAGATORS"] = named
        say_once(f"OTEL_PROPAGATORS={named!r} is refused, tracecontext,baggage is used: {error}")


def mend_empty_propagator() -> None:
    """OpenTelemetry's own gives None for an empty context, and every traced request fails on that."""
    from opentelemetry import propagate

    if propagate.extract({}) is None:
        propagate.set_global_textmap(NoPropagator())
