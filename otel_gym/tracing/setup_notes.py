"""What of its setup a writer notes beside its spans, for ``otel-gym doctor``, or says: only what weakens a promise."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from otel_gym.content import safe_text
from otel_gym.store.layout import is_foreign
from otel_gym.tracing.ids import GymIdGenerator
from otel_gym.tracing.limits import drops_attributes
from otel_gym.tracing.logs import log_once
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


def say_foreign(folder: Path) -> None:
    """Commands refuse a folder that holds other things. A traced program is not stopped, nor its spans dropped: it is
    told once.
    """
    with suppress(OSError):  # not there yet; or said when a write fails
        if is_foreign(folder):
            log_once(
                f"{folder} holds other things and no store: spans are put beside them; "
                "set OTEL_GYM_DIR, or directory of configure, to a folder of their own",
                with_traceback=False,
            )


def _description(sampler: Sampler) -> str:
    """What it says of itself, else its type: it may say anything."""
    try:
        return safe_text(str(sampler.get_description()))
    except Exception:
        return type(sampler).__name__
