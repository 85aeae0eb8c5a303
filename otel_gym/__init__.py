"""OpenTelemetry tracing for LLM rollouts: capture, spans, store and views.

The public names are those below; everything else may change.
"""

from otel_gym.identity import InvalidIdError
from otel_gym.tracing.api import (
    Rollout,
    base_url_for_run,
    resolve_model_base_url,
    rollout,
    rollout_id_from_run,
    url_path_for_request,
    url_path_for_run,
)
from otel_gym.tracing.pipeline import Pipeline, configure, flush
from otel_gym.version import __version__

__all__ = [
    "InvalidIdError",
    "Pipeline",
    "Rollout",
    "__version__",
    "base_url_for_run",
    "configure",
    "flush",
    "resolve_model_base_url",
    "rollout",
    "rollout_id_from_run",
    "url_path_for_request",
    "url_path_for_run",
]
