"""What the environment would turn on, and by which way: for ``otel-gym doctor``. Nothing is set up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path

from otel_gym.bootstrap.entry_points import CHOICES, CONFIGURATORS, DISTROS
from otel_gym.bootstrap.starting import DISABLED, instrumentation_name, is_left_out
from otel_gym.capture.instrumentors import INSTRUMENTORS
from otel_gym.dynamo_settings import read_trace_settings
from otel_gym.settings import read_settings, sdk_is_disabled
from otel_gym.tracing.declarative import CONFIG_FILE
from otel_gym.tracing.plugins import SAMPLER, SAMPLER_ARGUMENT, installed_names, unknown_exporters


@dataclass(frozen=True, slots=True)
class Explained:
    """``value``: how it stands; ``problem``: what is wrong with it, and what to do."""

    name: str
    value: str
    problem: str | None = None


def explained(environ: Mapping[str, str] | None = None) -> list[Explained]:
    """The effective configuration of this environment, in the order in which its parts come to act."""
    environ = os.environ if environ is None else environ
    return [each for explain in _PARTS for each in explain(environ)]


def _switch(environ: Mapping[str, str]) -> Iterator[Explained]:
    if sdk_is_disabled(environ):
        yield Explained("tracing", "off: OTEL_SDK_DISABLED=true", "unset OTEL_SDK_DISABLED")
        return
    enabled = read_settings(environ).enabled
    if enabled:
        yield Explained("tracing", "on")
    elif enabled is None and environ.get(CONFIG_FILE):
        yield Explained("tracing", f"on where {CONFIG_FILE} lists the instrumentation otel_gym; OTEL_GYM is not set")
    else:
        yield Explained(
            "tracing", "off: OTEL_GYM is " + ("0" if enabled is False else "not set; configure() turns it on")
        )


def _ways(environ: Mapping[str, str]) -> Iterator[Explained]:
    """Each with what it needs; they do not exclude each other, and the first that comes sets the provider."""
    python_path = environ.get("PYTHONPATH", "").split(os.pathsep)
    hooks = [Path(folder) / "sitecustomize.py" for folder in python_path if folder]
    first = next((hook for hook in hooks if hook.exists()), None)
    ours = next((hook for hook in hooks if (hook.parent.parent / "begin.py").exists()), None)
    if ours is None:
        yield Explained("otel-gym run", "not above this process: PYTHONPATH has no hook of it")
    elif ours != first:
        yield Explained("otel-gym run", "above this process", f"{first} stands before its hook on PYTHONPATH")
    else:
        yield Explained("otel-gym run", "above this process: traces at the first library that can be")
    yield Explained("opentelemetry-instrument", "sets up the SDK by the distro and configurator below")
    yield Explained("first use", "of otel_gym's API, capture or decorators in a program: acts if OTEL_GYM=1")


def _choices(environ: Mapping[str, str]) -> Iterator[Explained]:
    for group, what in ((DISTROS, "distro"), (CONFIGURATORS, "configurator")):
        names = [each.name for each in entry_points(group=group)]
        wanted = environ.get(CHOICES[group])
        if wanted:
            problem = None if wanted in names else f"not installed; those there are: {', '.join(sorted(names))}"
            yield Explained(what, f"{wanted}, by {CHOICES[group]}", problem)
            continue
        value = f"{names[0]}, the first found" if names else "none"
        if len(names) > 1:
            value += f", which is chance: {CHOICES[group]} chooses among {', '.join(sorted(names))}"
        yield Explained(what, value)


def _provider(environ: Mapping[str, str]) -> Iterator[Explained]:
    path = environ.get(CONFIG_FILE)
    if not path:
        yield Explained(CONFIG_FILE, "not set")
        yield Explained("TracerProvider", "otel_gym's, unless the program or another configurator sets one first")
        return
    problem = None
    if not Path(path).is_file():
        problem = "no such file"
    elif find_spec("opentelemetry.configuration") is None:
        problem = "not read: pip install opentelemetry-configuration"
    yield Explained(CONFIG_FILE, path, problem)
    value = "the file's, if it has a tracer_provider: its sampler, limits and ids hold; else otel_gym's"
    yield Explained("TracerProvider", f"{value}; every OTEL_* below is ignored")


def _parts(environ: Mapping[str, str]) -> Iterator[Explained]:
    exporters = environ.get("OTEL_TRACES_EXPORTER", "")
    unknown = unknown_exporters(environ)
    problem = f"not installed: {', '.join(unknown)}" if unknown else None
    yield Explained("exporters", f"the store{f'; OTEL_TRACES_EXPORTER={exporters}' if exporters else ''}", problem)
    sampler, argument = environ.get(SAMPLER), environ.get(SAMPLER_ARGUMENT)
    value = f"{sampler}{f' ({argument})' if argument else ''}" if sampler else "parentbased_always_on"
    known = {*_SAMPLERS, *installed_names("opentelemetry_traces_sampler")}
    wrong = (
        f"not known; those there are: {', '.join(sorted(known))}" if sampler and sampler.lower() not in known else None
    )
    yield Explained("sampler", f"{value}: decides what is exported, never what is stored", wrong)
    yield Explained("propagators", environ.get("OTEL_PROPAGATORS") or "tracecontext,baggage")


def _dynamo(environ: Mapping[str, str]) -> Iterator[Explained]:
    """Only where Dynamo's variables ask for its trace files."""
    for each in read_trace_settings(environ):
        value = f"{each.schema}: {', '.join(each.places) or 'nowhere'}"
        if not read_settings(environ).enabled:
            value += "; only where tracing is on"
        yield Explained("Dynamo trace", value, "; ".join(each.problems) or None)


_SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)


def _instrumentations(environ: Mapping[str, str]) -> Iterator[Explained]:
    for library in INSTRUMENTORS:
        name = instrumentation_name(library)
        if is_left_out(library, environ):
            yield Explained(name, f"left out, by {DISABLED}")
        else:
            yield Explained(name, _installed(library))


def _installed(library: str) -> str:
    try:
        return f"{library} {version(library.replace('_', '-'))}"
    except PackageNotFoundError:
        return f"{library} is not installed in {sys.prefix}"


_PARTS: tuple[Callable[[Mapping[str, str]], Iterator[Explained]], ...] = (
    _switch,
    _ways,
    _choices,
    _provider,
    _parts,
    _dynamo,
    _instrumentations,
)
