"""A reward that its rollout's span cannot take any more: a span of its own, in the rollout's trace."""

from __future__ import annotations

from math import isnan

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from otel_gym import conventions as names
from otel_gym.identity import Identity, set_identity
from otel_gym.tracing.current import restore
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.pipeline import Pipeline


def checked_reward(value: float) -> float:
    reward = float(value)
    if isnan(reward):
        raise ValueError("a reward that is NaN says nothing, and would be lost in every mean")
    return reward


def write_reward(pipeline: Pipeline, reward: float, identity: Identity, context: Context) -> None:
    """``context`` holds the span that it belongs under, if one is known."""
    token = set_identity(identity)  # a root span takes its trace id from it
    try:
        attributes = {names.REWARD: reward, **identity_attributes(identity)}
        pipeline.tracer.start_span(names.REWARD_SPAN, context, SpanKind.INTERNAL, attributes).end()
    finally:
        restore(token)
