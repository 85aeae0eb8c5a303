"""Other forms that ended spans are written in, as they end. Each stands beside its view; here they have names only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol

from opentelemetry.sdk.trace import ReadableSpan, Span

from otel_gym.dynamo_settings import read_tool_events, read_trace_settings
from otel_gym.settings import Settings, say_once
from otel_gym.tracing.payloads import Payload

# Adds to a counter that is kept beside the spans.
Count = Callable[[str, int], None]


class LiveSink(Protocol):
    """Hears of each gym span; what it does with it must neither raise nor make traced code wait."""

    def on_start(self, span: Span) -> None: ...

    def add(self, span: ReadableSpan, payload: Payload | None) -> None:
        """The span has ended."""

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that ended is written; False if the time ran out first."""


class _Registered(NamedTuple):
    """``made_by``: ``module:function``, which takes the environment, the settings and ``Count``, and gives sinks."""

    is_on: Callable[[Mapping[str, str]], bool]
    made_by: str


_SINKS = {
    "dynamo": _Registered(lambda environ: bool(read_trace_settings(environ)), "otel_gym.views.dynamo.live:sinks"),
    "dynamo tool events": _Registered(
        lambda environ: bool(read_tool_events(environ)), "otel_gym.views.dynamo.publishing:sinks"
    ),
}


def live_sinks(environ: Mapping[str, str], settings: Settings, count: Count) -> tuple[LiveSink, ...]:
    """Those that the environment switches on; one that cannot be had is said once."""
    found: list[LiveSink] = []
    for name, registered in _SINKS.items():
        if not registered.is_on(environ):
            continue
        module, _, function = registered.made_by.partition(":")
        try:
            found += getattr(import_module(module), function)(environ, settings, count)
        except Exception as error:
            say_once(f"the live sink {name!r} cannot be had: {type(error).__name__}: {error}")
    return tuple(found)
