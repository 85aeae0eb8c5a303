"""What ``opentelemetry-instrument`` and a configuration file find of ours, by the package's entry points.

With ``OTEL_GYM`` off they do what would be done without this package.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.distro import BaseDistro  # type: ignore[attr-defined]
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.sdk.resources import Resource

from otel_gym.bootstrap.starting import start
from otel_gym.settings import said_settings, say_once
from otel_gym.tracing.declarative import CONFIG_FILE
from otel_gym.tracing.pipeline import Pipeline, active_pipeline, configure, has_own_provider
from otel_gym.tracing.plugins import installed_names

NAME = "otel_gym"
DISTROS = "opentelemetry_distro"
CONFIGURATORS = "opentelemetry_configurator"
# Group → the variable that chooses among what it holds.
CHOICES = {DISTROS: "OTEL_PYTHON_DISTRO", CONFIGURATORS: "OTEL_PYTHON_CONFIGURATOR"}


class GymDistro(BaseDistro):  # type: ignore[misc]
    """Sets no variable of its own: nothing is exported that was not asked for."""

    def _configure(self, **kwargs: Any) -> None:
        other = None if said_settings().enabled else _other(DISTROS)
        self._other: Any = other() if other else None
        if self._other is not None:
            self._other.configure(**kwargs)

    def load_instrumentor(self, entry_point: Any, **kwargs: Any) -> None:
        if self._other is not None:
            self._other.load_instrumentor(entry_point, **kwargs)
        else:
            super().load_instrumentor(entry_point, **kwargs)


class GymConfigurator:
    """Our own provider, with every exporter that the environment names; metrics and logs as it asks for them."""

    def configure(self, **kwargs: Any) -> None:
        if not said_settings().enabled:
            _configure_as_without_us(**kwargs)
            return
        pipeline = active_pipeline()
        if pipeline is not None and CONFIG_FILE not in os.environ:
            _configure_metrics(pipeline)
            _configure_logs(pipeline.provider.resource)


class GymInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Our processor, in whatever provider was set up: by another's configurator, by a configuration file, or by none.

    ``instrument()`` called by hand, or by a configuration file that lists it, turns tracing on as ``configure`` does,
    and takes its arguments; called for all that is installed it does what ``OTEL_GYM`` says.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def instrument(self, **kwargs: Any) -> None:
        if not self.is_instrumented_by_opentelemetry:
            super().instrument(is_asked_for="skip_dep_check" not in kwargs, **kwargs)

    def _instrument(self, *, is_asked_for: bool = True, **kwargs: Any) -> None:
        if not start(is_asked_for=is_asked_for):
            return
        if not is_asked_for:
            _say_wrong_choices()
        if kwargs:
            configure(**kwargs)
        elif active_pipeline() is None and is_asked_for:
            configure()

    def _uninstrument(self, **kwargs: Any) -> None:
        """A processor cannot leave its provider."""


def _say_wrong_choices() -> None:
    """A name that is nobody's makes OpenTelemetry fall back to nothing at all, in silence."""
    for group, variable in CHOICES.items():
        wanted, known = os.environ.get(variable), installed_names(group)
        if wanted and wanted not in known:
            say_once(f"{variable}={wanted} is not installed; those there are: {', '.join(known)}")
    if CONFIG_FILE in os.environ or os.environ.get(CHOICES[CONFIGURATORS]) == NAME:
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and not has_own_provider():
        say_once(
            "another package has set up the TracerProvider: its sampler, limits and ids hold, and OTLP is its own; "
            f"with {CHOICES[DISTROS]}={NAME} {CHOICES[CONFIGURATORS]}={NAME} it is ours"
        )


def _other(group: str) -> Any:
    """What another package has there; None if there is nothing, or it cannot be loaded."""
    found = next((each for each in entry_points(group=group) if each.name != NAME), None)
    try:
        return found.load() if found is not None else None
    except Exception as error:  # another package's
        say_once(f"{found.value if found else group} cannot be loaded: {error}")
        return None


def _configure_as_without_us(**kwargs: Any) -> None:
    configurator = _other(CONFIGURATORS)
    if configurator is None:
        try:
            from opentelemetry.sdk._configuration import _OTelSDKConfigurator as configurator
        except ImportError as error:
            say_once(f"the standard variables are not read, this opentelemetry-sdk has no configurator: {error}")
            return
    configurator().configure(**kwargs)


def _configure_metrics(pipeline: Pipeline) -> None:
    try:
        if pipeline.metrics is not None:
            pipeline.metrics.begin()
    except Exception as error:  # an exporter's
        say_once(f"metrics are not exported: {type(error).__name__}: {error}")


def _configure_logs(resource: Resource) -> None:
    """The SDK offers this to configurators only, under private names."""
    if os.environ.get("OTEL_LOGS_EXPORTER", "none").strip().lower() in ("", "none"):
        return
    try:
        from opentelemetry.sdk import _configuration as sdk

        _, _, exporters = sdk._import_exporters([], [], sdk._get_exporter_names("logs"))
        sdk._init_logging(exporters, resource, setup_logging_handler=_logs_are_exported())
    except Exception as error:
        say_once(f"logs are not exported: {type(error).__name__}: {error}")


def _logs_are_exported() -> bool:
    return os.environ.get("OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED", "").strip().lower() == "true"
