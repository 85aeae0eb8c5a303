"""The slim OTLP copy: spans to an endpoint that the standard variables name, cut so that viewers take them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from otel_gym.settings import Settings, say_once
from otel_gym.tracing.content_policy import ContentPolicy
from otel_gym.tracing.otlp.exporters import load_exporter, new_span_exporter
from otel_gym.tracing.otlp.leg import DEFAULT_BATCH_SPANS, DEFAULT_DELAY_S, LegLimits, OtlpLeg
from otel_gym.tracing.otlp.plan import NoOtlp, plan_of
from otel_gym.tracing.otlp.slim import SlimForm
from otel_gym.tracing.recorder import Recorder

# What a message keeps free for the resource and the scopes of its spans.
_GROUPS_BYTES = 32 * 1024


def new_leg(
    settings: Settings,
    content: ContentPolicy,
    recorder_of: Callable[[], Recorder],
    environ: Mapping[str, str] | None = None,
) -> OtlpLeg | None:
    """The one that ``environ`` (default: the process's own) asks for, if any. What is asked for and cannot be done is
    said once."""
    environ = os.environ if environ is None else environ
    plan = plan_of(environ)
    if isinstance(plan, NoOtlp):
        if plan.is_wrong:
            say_once(f"no OTLP copy is sent: {plan.why}")
        return None
    try:
        load_exporter(plan)
    except Exception as error:
        say_once(f"no OTLP copy is sent: its exporter cannot be imported: {error}")
        return None
    limits = LegLimits(
        queue_bytes=settings.queue_bytes,
        batch_bytes=settings.otlp_batch_bytes,
        batch_spans=int(_positive(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE") or DEFAULT_BATCH_SPANS),
        delay_s=(_positive(environ, "OTEL_BSP_SCHEDULE_DELAY") or DEFAULT_DELAY_S * 1000) / 1000,
        exit_timeout_s=settings.exit_timeout_s,
    )
    return OtlpLeg(partial(new_span_exporter, plan), slim_form(settings, content), limits, recorder_of, plan.endpoint)


def slim_form(settings: Settings, content: ContentPolicy) -> SlimForm:
    return SlimForm(content, settings.otlp_attribute_bytes, settings.otlp_batch_bytes - _GROUPS_BYTES)


def _positive(environ: Mapping[str, str], name: str) -> float | None:
    try:
        number = float(environ.get(name) or 0)
    except ValueError:
        say_once(f"{name}={environ[name]!r} is no number, the default is used")
        return None
    return number if 0 < number < float("inf") else None
