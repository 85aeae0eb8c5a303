"""What the standard variables name of other packages: exporters beside the store, and a sampler.

They are found by OpenTelemetry's entry points. A name that nothing installed has is said once, and the others are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler, _get_from_env_or_default

from otel_gym.settings import say_once
from otel_gym.tracing.otlp.plan import OTLP_NAMES, exporter_names

TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
SAMPLER = "OTEL_TRACES_SAMPLER"
SAMPLER_ARGUMENT = "OTEL_TRACES_SAMPLER_ARG"

# No exporter; the store itself, which is on without its name; and OTLP, which is the slim copy's.
_OWN_NAMES = frozenset({"none", "otel_gym", *OTLP_NAMES})

_EXPORTER_GROUP = "opentelemetry_traces_exporter"
_SAMPLER_GROUP = "opentelemetry_traces_sampler"


def add_named_exporters(provider: TracerProvider, environ: Mapping[str, str]) -> None:
    """Adds each exporter that is neither the store nor OTLP, under the SDK's own processor."""
    for name in dict.fromkeys(exporter_names(environ, "traces")):
        exporter = None if name in _OWN_NAMES else _exporter(name)
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))


def unknown_exporters(environ: Mapping[str, str]) -> list[str]:
    """Names in ``OTEL_TRACES_EXPORTER`` that nothing installed has."""
    known = _OWN_NAMES.union(installed_names(_EXPORTER_GROUP))
    return [name for name in exporter_names(environ, "traces") if name not in known]


def _exporter(name: str) -> SpanExporter | None:
    found = _found(_EXPORTER_GROUP, name)
    if found is None:
        known = ", ".join(installed_names(_EXPORTER_GROUP))
        say_once(f"{TRACES_EXPORTER} names {name!r}, which is not installed; those there are: {known}, none")
        return None
    try:
        exporter = found.load()()
    except Exception as error:  # another package's
        say_once(f"{TRACES_EXPORTER}: the exporter {name!r} cannot be made: {type(error).__name__}: {error}")
        return None
    if isinstance(exporter, SpanExporter):
        return exporter
    say_once(f"{TRACES_EXPORTER}: {name!r} is no exporter of spans")
    return None


def named_sampler(environ: Mapping[str, str]) -> Sampler:
    """That of ``OTEL_TRACES_SAMPLER``: a plugin of this name, else the SDK's own, else its default."""
    name = environ.get(SAMPLER, "").strip()
    found = _found(_SAMPLER_GROUP, name) if name else None
    if found is None:
        return _get_from_env_or_default()
    try:
        sampler = found.load()(environ.get(SAMPLER_ARGUMENT))
    except Exception as error:  # another package's
        say_once(f"{SAMPLER}: the sampler {name!r} cannot be made: {type(error).__name__}: {error}")
        sampler = None
    return sampler if isinstance(sampler, Sampler) else _get_from_env_or_default()


def installed_names(group: str) -> list[str]:
    """The names of the entry points of a group, sorted."""
    return sorted({each.name for each in entry_points(group=group)})


def _found(group: str, name: str) -> EntryPoint | None:
    matching: Iterable[EntryPoint] = entry_points(group=group, name=name)
    return next(iter(matching), None)
