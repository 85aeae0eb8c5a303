"""GenAI metrics of captured model calls, through the SDK's MeterProvider: only where the environment asks for metrics.

Names, attributes and buckets are those of the GenAI conventions. A call is counted once, where it is captured.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from otel_gym.conventions import SCHEMA_URL, SCOPE_NAME
from otel_gym.settings import DEFAULT_EXIT_TIMEOUT_S, say_once
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.otlp.exporters import load_exporter
from otel_gym.tracing.otlp.plan import NoOtlp, exporter_names, plan_of
from otel_gym.tracing.worker_end import close_when_a_worker_ends
from otel_gym.version import __version__

_SECONDS = [0.01 * 2**power for power in range(14)]
_TOKENS = [4**power for power in range(14)]

_PREFIX = "gen_ai.client.inference."
_MODALITY = "gen_ai.token.modality"
_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
_WHICH = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "server.address",
    "server.port",
)
# Of a counter: usage attribute of the span, and those of its parts by modality.
_USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read.input_tokens",
    "cache_write.input_tokens",
    "reasoning.output_tokens",
)
_MODALITIES = ("text", "image", "audio")


class ModelCallMetrics:
    """The instruments, made at the first call: before there are spans nothing starts a thread."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._lock = threading.Lock()
        self._instruments: _Instruments | None = None
        self._own_provider: SdkMeterProvider | None = None

    def begin(self) -> None:
        """Sets the MeterProvider up before there is a call: for programs that have metrics of their own."""
        self._begun()

    def _begun(self) -> _Instruments:
        close_when_a_worker_ends(self._close, priority=-2)
        with self._lock:
            if self._instruments is None:
                self._instruments = _Instruments(self._provider().get_meter(SCOPE_NAME, __version__, SCHEMA_URL))
            return self._instruments

    def record(self, attributes: Mapping[str, Any], duration_s: float) -> None:
        """Counts one model call; ``attributes`` are those of its span. Never an exception."""
        try:
            self._begun().record(attributes, duration_s)
        except Exception:
            log_once("metrics of a model call could not be recorded")

    def shutdown(self, timeout_s: float) -> None:
        """Exports what there is, in ``timeout_s`` at most, if the provider is ours."""
        provider, self._own_provider = self._own_provider, None
        if provider is None:
            return
        try:
            provider.shutdown(max(0.0, timeout_s) * 1000)
        except Exception as error:
            log_once(f"metrics could not be sent at the end: {error}", with_traceback=False)

    def _close(self) -> None:
        self.shutdown(DEFAULT_EXIT_TIMEOUT_S)

    def _provider(self) -> MeterProvider:
        known = metrics.get_meter_provider()
        if not isinstance(known, metrics._internal._ProxyMeterProvider):
            return known
        provider = SdkMeterProvider(list(_readers()), self._resource, shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
        self._own_provider = provider
        return provider


def metrics_of(resource: Resource) -> ModelCallMetrics | None:
    """None where the environment asks for no metrics."""
    names = exporter_names(os.environ, "metrics")
    plan = plan_of(os.environ, "metrics")
    if isinstance(plan, NoOtlp):
        if plan.is_wrong:
            say_once(f"no metrics are sent over OTLP: {plan.why}")
        return ModelCallMetrics(resource) if set(names) - {"none", "otlp"} else None
    try:
        load_exporter(plan)
    except Exception as error:
        say_once(f"no metrics are sent over OTLP: its exporter cannot be imported: {error}")
        return None
    return ModelCallMetrics(resource)


def _readers() -> Iterator[MetricReader]:
    plan = plan_of(os.environ, "metrics")
    if not isinstance(plan, NoOtlp):
        yield PeriodicExportingMetricReader(load_exporter(plan).OTLPMetricExporter())
    for name in exporter_names(os.environ, "metrics"):
        if name == "none" or name.startswith("otlp"):
            continue
        found = [*entry_points(group="opentelemetry_metrics_exporter", name=name)]
        found += entry_points(group="opentelemetry_pull_metric_exporter", name=name)
        if not found:
            say_once(f"OTEL_METRICS_EXPORTER names {name!r}, and no such exporter is installed")
            continue
        exporter = found[0].load()()
        yield exporter if isinstance(exporter, MetricReader) else PeriodicExportingMetricReader(exporter)


class _Instruments:
    def __init__(self, meter: Meter) -> None:
        self._duration = _seconds(meter, "duration", "Time from the request to the last byte of the answer.")
        self._first_chunk = _seconds(
            meter, "time_to_first_chunk", "Time from the request to the first chunk of a stream."
        )
        self._usage: dict[str, Counter] = {
            kind: meter.create_counter(f"{_PREFIX}usage.{kind}", "{token}", f"Tokens used: {kind}.") for kind in _USAGE
        }
        self._operation: dict[str, Histogram] = {
            kind: meter.create_histogram(
                f"{_PREFIX}operation.{kind}",
                "{token}",
                f"Tokens of one call: {kind}.",
                explicit_bucket_boundaries_advisory=_TOKENS,
            )
            for kind in _USAGE[:2]
        }

    def record(self, span: Mapping[str, Any], duration_s: float) -> None:
        which = {name: span[name] for name in _WHICH if name in span}
        failed = {"error.type": span["error.type"]} if "error.type" in span else {}
        self._duration.record(duration_s, which | failed)
        if _TIME_TO_FIRST_CHUNK in span:
            self._first_chunk.record(span[_TIME_TO_FIRST_CHUNK], which)
        for kind, histogram in self._operation.items():
            tokens = span.get(f"gen_ai.usage.{kind}")
            if tokens is not None:
                histogram.record(tokens, which | failed)
        for kind, counter in self._usage.items():
            for modality, tokens in _by_modality(span, kind):
                counter.add(tokens, {**which, _MODALITY: modality})


def _by_modality(span: Mapping[str, Any], kind: str) -> Iterator[tuple[str, int]]:
    """What the provider told apart, and the rest as ``unknown``; nothing where it does not say how many there were."""
    total = span.get(f"gen_ai.usage.{kind}")
    if total is None:
        return
    parts = {each: span.get(f"gen_ai.usage.{each}.{kind}") for each in _MODALITIES}
    known = {each: tokens for each, tokens in parts.items() if tokens is not None}
    yield from known.items()
    rest = total - sum(known.values())
    if rest > 0 or not known:
        yield "unknown", rest


def _seconds(meter: Meter, name: str, meaning: str) -> Histogram:
    return meter.create_histogram(_PREFIX + name, "s", meaning, explicit_bucket_boundaries_advisory=_SECONDS)
