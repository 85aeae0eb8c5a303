"""What of its setup a writer notes beside its spans, for ``otel-gym doctor``: only what weakens a promise."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from otel_gym.content import safe_text
from otel_gym.tracing.ids import GymIdGenerator
from otel_gym.tracing.limits import drops_attributes
from otel_gym.tracing.sampler import GymSampler

EXPORTER_NOTES = {"written_by": "exporter"}


def foreign_provider_notes(provider: TracerProvider) -> dict[str, str]:
    """Of a TracerProvider that others made: the parts of it that are kept, and do not do what ours would."""
    notes = {"provider": "foreign"}
    sampler = provider.sampler
    if not isinstance(sampler, GymSampler) and sampler is not ALWAYS_ON:
        notes["sampler"] = _description(sampler)
    if drops_attributes(provider):
        notes["limits"] = "kept"
    if not isinstance(provider.id_generator, GymIdGenerator):
        notes["id_generator"] = type(provider.id_generator).__name__
    return notes


def _description(sampler: Sampler) -> str:
    """What it says of itself, else its type: it may say anything."""
    try:
        return safe_text(str(sampler.get_description()))
    except Exception:
        return type(sampler).__name__
