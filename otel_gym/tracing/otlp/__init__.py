"""The slim OTLP copy: spans to an endpoint that the standard variables name, cut so that viewers take them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from otel_gym.content_policy import ContentPolicy
from otel_gym.settings import Settings, captures_messages, say_once
from otel_gym.tracing.otlp.exporters import load_exporter, new_span_exporter
from otel_gym.tracing.otlp.leg import DEFAULT_BATCH_SPANS, DEFAULT_DELAY_S, LegLimits, OtlpLeg
from otel_gym.tracing.otlp.plan import NoOtlp, Signal, plan_of
from otel_gym.tracing.otlp.slim import SlimForm
from otel_gym.tracing.recorder import Recorder

# What a message keeps free for the resource and the scopes of its spans.
_GROUPS_BYTES = 32 * 1024


def new_leg(settings: Settings, content: ContentPolicy, recorder_of: Callable[[], Recorder]) -> OtlpLeg | None:
    """The one that the environment asks for, if any. What is asked for and cannot be done is said once."""
    plan = plan_of(os.environ)
    if isinstance(plan, NoOtlp):
        if plan.is_wrong:
            say_once(f"no OTLP copy is sent: {plan.why}")
        return None
    if plan.is_guess:
        say_once(f"the OTLP copy goes out as {plan.protocol}: {plan.why}; give grpc or http/protobuf")
    try:
        load_exporter(plan)
    except Exception as error:
        say_once(f"no OTLP copy is sent: its exporter cannot be imported: {error}")
        return None
    limits = LegLimits(
        queue_bytes=settings.queue_bytes,
        batch_bytes=settings.otlp_batch_bytes,
        batch_spans=int(_positive("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") or DEFAULT_BATCH_SPANS),
        delay_s=(_positive("OTEL_BSP_SCHEDULE_DELAY") or DEFAULT_DELAY_S * 1000) / 1000,
        exit_timeout_s=settings.exit_timeout_s,
    )
    return OtlpLeg(partial(new_span_exporter, plan), slim_form(settings, content), limits, recorder_of, plan.endpoint)


def told_exports(settings: Settings) -> dict[str, dict[str, Any]]:
    """By signal: what leaves over OTLP, where to, in which protocol and why, or why nothing does; for people."""
    told: dict[str, dict[str, Any]] = {}
    signals: tuple[Signal, ...] = ("traces", "metrics")
    for signal in signals:
        plan = plan_of(os.environ, signal)
        if isinstance(plan, NoOtlp):
            told[signal] = {"endpoint": None, "why": plan.why, "is_wrong": plan.is_wrong}
        else:
            told[signal] = {"endpoint": plan.endpoint, "protocol": plan.protocol, "why": plan.why}
    if told["traces"]["endpoint"] is not None:
        told["traces"] |= {
            "content": captures_messages(os.environ),
            "attribute_bytes": settings.otlp_attribute_bytes,
            "batch_bytes": settings.otlp_batch_bytes,
        }
    return told


def slim_form(settings: Settings, content: ContentPolicy) -> SlimForm:
    return SlimForm(content, settings.otlp_attribute_bytes, settings.otlp_batch_bytes - _GROUPS_BYTES)


def _positive(name: str) -> float | None:
    try:
        number = float(os.environ.get(name) or 0)
    except ValueError:
        say_once(f"{name}={os.environ[name]!r} is no number, the default is used")
        return None
    return number if 0 < number < float("inf") else None
