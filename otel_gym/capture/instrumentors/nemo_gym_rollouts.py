"""What NeMo Gym's requests and answers say of a rollout: its id, its reward. Knows no HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from opentelemetry.trace import Span

from otel_gym import conventions as names
from otel_gym.content import safe_text
from otel_gym.id_rules import is_valid_id
from otel_gym.identity import rollout_id_from_indices
from otel_gym.tracing.api import Rollout

# A verdict repeats the whole rollout; a longer one is not searched.
MAX_VERDICT_BYTES = 64 * 1024 * 1024


class Verdict(NamedTuple):
    reward: float | None = None
    mask_sample: bool | None = None
    failure_kind: str | None = None


def rollout_id_of_run(body: Any) -> str | None:
    """That of the body of ``/run``: an episode's, else the row's own id or its indices; None for none that is valid."""
    if not isinstance(body, Mapping):
        return None
    episode = body.get("episode_id")
    if isinstance(episode, Mapping):
        return _with_attempt(episode.get("rollout_id"), episode.get("attempt"))
    own = body.get("_ng_rollout_id")
    if own is None:
        task, index = body.get("_ng_task_index"), body.get("_ng_rollout_index")
        own = None if task is None or index is None else rollout_id_from_indices(task, index)
    return _with_attempt(own, body.get("_ng_attempt_index"))


def _with_attempt(rollout_id: Any, attempt: Any) -> str | None:
    if not isinstance(rollout_id, str):
        return None
    whole = f"{rollout_id}-a{int(attempt)}" if attempt else rollout_id
    return whole if is_valid_id(whole) else None


def verdict_of(answer: bytes) -> Verdict:
    """Of the answer to ``/run``, ``/verify`` or ``/step``; of an episode, of its result. Never raises."""
    if len(answer) > MAX_VERDICT_BYTES:
        return Verdict()
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return Verdict()
    if isinstance(said, Mapping) and "episode_id" in said:
        said = said.get("result") or said.get("failure")
    if not isinstance(said, Mapping):
        return Verdict()
    reward, mask_sample, failure_kind = (said.get(name) for name in ("reward", "mask_sample", "failure_kind"))
    return Verdict(
        _finite(reward),
        mask_sample if isinstance(mask_sample, bool) else None,
        failure_kind if isinstance(failure_kind, str) else None,
    )


def _finite(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return float(value)


def write_verdict(span: Span, verdict: Verdict, rollout: Rollout | None = None) -> None:
    """On ``span``; with ``rollout``, whose span it is, as its reward, given now."""
    if verdict.reward is not None:
        if rollout is not None:
            rollout.record_reward(verdict.reward)
        else:
            span.set_attribute(names.REWARD, verdict.reward)
    if verdict.mask_sample is not None:
        span.set_attribute(names.MASK_SAMPLE, verdict.mask_sample)
    if verdict.failure_kind is not None:
        span.set_attribute(names.FAILURE_KIND, safe_text(verdict.failure_kind))
