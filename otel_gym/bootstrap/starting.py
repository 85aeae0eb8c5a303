"""Turns tracing on for programs that know nothing of it, as the environment asks: what every way of enabling calls.

The pipeline itself is set up by what is first traced, so a provider that the program sets until then is joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from opentelemetry import trace
from wrapt import wrap_function_wrapper

from otel_gym.capture.instrumentors import INSTRUMENTORS
from otel_gym.capture.instrumentors.imports import when_imported
from otel_gym.settings import said_settings, sdk_is_disabled
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_of_start, is_gym_span
from otel_gym.tracing.pipeline import active_pipeline

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"

_started = False


def start(*, is_asked_for: bool = False) -> bool:
    """Instruments each library that the program imports, now or later; False where ``OTEL_GYM`` does not ask for it.

    ``is_asked_for``: also where it says nothing. Called again it does nothing.
    """
    global _started
    enabled = said_settings().enabled
    if not enabled and (enabled is False or not is_asked_for or sdk_is_disabled(os.environ)):
        return False
    if _started:
        return True
    _started = True
    for library, instrumentor in INSTRUMENTORS.items():
        if not is_left_out(library, os.environ):
            when_imported(library, partial(_instrument, library, instrumentor))
    _begin_at_first_span()
    return True


def instrumentation_name(library: str) -> str:
    """As ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` lists it, and our entry points are called."""
    return f"otel_gym_{library}"


def is_left_out(library: str, environ: Mapping[str, str]) -> bool:
    disabled = {name.strip() for name in environ.get(DISABLED, "").split(",")}
    return not disabled.isdisjoint({"*", instrumentation_name(library)})


def _instrument(library: str, path: str, module: object) -> None:
    try:
        place, _, name = path.partition(":")
        getattr(import_module(place), name)().instrument(skip_dep_check=True)
    except Exception:
        log_once(f"{library} is not traced")


# The first parameters of OpenTelemetry's tracers.
_START_SPAN = ("name", "context", "kind", "attributes")


def _begin_at_first_span() -> None:
    """OpenTelemetry's tracers make nothing until a provider is set: the first gym span of the program sets ours up."""
    wrap_function_wrapper(trace, "ProxyTracer.start_span", _beginning)
    wrap_function_wrapper(trace, "ProxyTracer.start_as_current_span", _beginning)


def _beginning(wrapped: Callable[..., Any], tracer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        named = dict(zip(_START_SPAN, arguments, strict=False)) | options
        attributes = named.get("attributes")
        if is_gym_span(attributes, identity_of_start(attributes, named.get("context"), named.get("kind"))):
            active_pipeline()
    except Exception:
        log_once("the first span of a program could not be looked at")
    return wrapped(*arguments, **options)
