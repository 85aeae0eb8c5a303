"""The one pipeline of a process: provider, processor, recorder, and how it is turned on.

``OTEL_GYM=1`` turns it on at the first use of our API; ``configure`` does so by hand. Where a
TracerProvider is already set, our processor joins it and its sampler, limits and ids stay its own.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_gym.content_policy import ContentPolicy, content_policy_from
from otel_gym.conventions import SCHEMA_URL, SCOPE_NAME
from otel_gym.id_rules import checked_id
from otel_gym.identity import Identity
from otel_gym.settings import Settings, captures_messages, said_settings, say_once, sdk_is_disabled
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing import stopping
from otel_gym.tracing.declarative import configure_from_file
from otel_gym.tracing.encode import content_of
from otel_gym.tracing.ids import GymIdGenerator
from otel_gym.tracing.limits import drops_attributes, limits_attributes, own_span_limits
from otel_gym.tracing.live_sinks import live_sinks
from otel_gym.tracing.metrics import ModelCallMetrics, metrics_of
from otel_gym.tracing.otlp import new_leg, slim_form
from otel_gym.tracing.plugins import add_named_exporters, named_sampler
from otel_gym.tracing.processor import RolloutSpanProcessor
from otel_gym.tracing.propagators import mend_empty_propagator
from otel_gym.tracing.recorder import Recorder
from otel_gym.tracing.sampler import GymSampler
from otel_gym.tracing.sealing import Sealer
from otel_gym.tracing.setup_notes import foreign_provider_notes, say_foreign
from otel_gym.version import __version__


@dataclass(slots=True)
class Pipeline:
    """``provider`` makes the spans, ``processor`` stores them below ``directory``."""

    settings: Settings
    provider: TracerProvider
    processor: RolloutSpanProcessor
    directory: Path
    run_id: str | None
    capture_unassigned: bool
    content: ContentPolicy
    tracer: trace.Tracer
    metrics: ModelCallMetrics | None = None

    @property
    def recorder(self) -> Recorder:
        return self.processor.recorder

    def close(self) -> None:
        """Waits until all that ended is on disk, and sealed where files are sealed, and sent where it is sent over
        OTLP, within the exit's time limit.

        Spans that are open go on: a server that shuts down need not be all that its process does.
        """
        self.processor.close()

    def identity(self, rollout_id: str | None, run_id: str | None = None) -> Identity:
        """With this pipeline's run id where none is named."""
        return Identity(rollout_id, run_id or self.run_id)


# Entered again where a configuration file names our own instrumentor.
_lock = threading.RLock()
_pipeline: Pipeline | None = None
_decided = False
_own_provider: TracerProvider | None = None


def configure(
    *,
    directory: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
    service_name: str | None = None,
    capture_unassigned: bool | None = None,
    handle_sigterm: bool = False,
) -> Pipeline:
    """Turns tracing into the store on, whatever ``OTEL_GYM`` says; arguments win over the environment.

    directory           folder of the store; OTEL_GYM_DIR, else ./otel_gym_store. One that holds other things is used
                        all the same, and said once when the first span is written
    run_id              the launch; OTEL_GYM_RUN_ID, else spans name none. InvalidIdError if refused
    tracer_provider     the provider to join; default: the one already set, else a new one is set
    service_name        service.name of a new provider; OTEL_SERVICE_NAME
    capture_unassigned  store model calls without a rollout id; OTEL_GYM_CAPTURE_UNASSIGNED
    handle_sigterm      on SIGTERM end open spans as aborted and write everything, then let the signal act

    Called again it sends what follows to the new folder; what came before is flushed first, and a rollout, agent, step,
    tool or model call that is open ends in the store in which it began.
    """
    global _decided, _pipeline
    settings = said_settings()
    with _lock:
        _decided = True
        pipeline = _set_up(settings, directory, run_id, tracer_provider, service_name, capture_unassigned)
        if sdk_is_disabled(os.environ):  # every span would be one that records nothing
            say_once("OTEL_SDK_DISABLED=true: configure() turns nothing on")
            _pipeline = None
    if handle_sigterm:
        stopping.handle_sigterm(_all_recorders, _send_rest)
    return pipeline


def active_pipeline() -> Pipeline | None:
    """The pipeline, set up now if the environment says so and nothing was yet; None if tracing is off."""
    global _decided
    if _decided:
        return _pipeline
    with _lock:
        if _decided:
            return _pipeline
        _decided = True
        settings = said_settings()
        if not settings.enabled or not configure_from_file():
            return None
        return _pipeline or _set_up(settings, None, None, None, None, None)


def has_own_provider() -> bool:
    """Whether the process's TracerProvider is one that we made."""
    return _own_provider is not None and trace.get_tracer_provider() is _own_provider


def stores(span: ReadableSpan, directory: Path) -> bool:
    """Whether our processor puts this span into the store at ``directory``, so that no exporter need do it too."""
    if _pipeline is None or span.resource is not _pipeline.provider.resource:
        return False
    return Path(os.path.abspath(directory)) == _pipeline.directory


def flush(timeout_s: float = 30.0) -> bool:
    """Waits until every ended span is on disk; False if the time ran out first."""
    return True if _pipeline is None else _pipeline.processor.flush(timeout_s)


def _set_up(
    settings: Settings,
    directory: str | os.PathLike[str] | None,
    run_id: str | None,
    tracer_provider: TracerProvider | None,
    service_name: str | None,
    capture_unassigned: bool | None,
) -> Pipeline:
    global _pipeline
    mend_empty_propagator()
    run_id = checked_id(run_id, "run id") if run_id else settings.run_id
    folder = Path(os.path.abspath(directory if directory is not None else settings.directory))
    provider = tracer_provider or _provider(service_name)
    announce = directory is None and not os.environ.get("OTEL_GYM_DIR")
    recorder = _recorder(folder, settings, provider, announce)
    content = content_policy_from(settings, messages=captures_messages(os.environ))
    processor = _joined_processor(settings, provider, recorder, run_id, content)
    unassigned = capture_unassigned if capture_unassigned is not None else settings.capture_unassigned
    _pipeline = Pipeline(
        settings=settings,
        provider=provider,
        processor=processor,
        directory=folder,
        run_id=run_id,
        capture_unassigned=bool(unassigned),
        content=content,
        tracer=trace.get_tracer(SCOPE_NAME, __version__, provider, SCHEMA_URL),
        metrics=_metrics_of(provider),
    )
    if provider is _own_provider:
        add_otlp_leg(_pipeline)
    return _pipeline


def _provider(service_name: str | None) -> TracerProvider:
    """The provider that is already set, else a new one, set for the process."""
    global _own_provider
    known = trace.get_tracer_provider()
    if isinstance(known, TracerProvider):
        return known
    service_name = service_name or _nemo_gym_server(os.environ)
    resource = Resource.create({SERVICE_NAME: service_name} if service_name else {})
    limits = own_span_limits(os.environ)
    sampler = GymSampler(named_sampler(os.environ), limits_attributes=limits_attributes(limits))
    provider = TracerProvider(sampler, resource, id_generator=GymIdGenerator(), span_limits=limits)
    add_named_exporters(provider, os.environ)
    trace.set_tracer_provider(provider)
    _own_provider = provider
    return provider


def _nemo_gym_server(environ: Mapping[str, str]) -> str | None:
    """NeMo Gym names the server of each of its processes; None where the standard variables name the service."""
    if environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return None
    return environ.get("NEMO_GYM_CONFIG_PATH")


def _recorder(folder: Path, settings: Settings, provider: TracerProvider, announce: bool) -> Recorder:
    """``announce``: nobody chose the folder, so the first span says where it lies."""
    service = str(provider.resource.attributes.get(SERVICE_NAME, "unknown"))
    os.environ["OTEL_GYM_DIR"] = str(folder)  # child processes write to the same store

    def new_writer() -> StoreWriter:
        if announce and os.getpid() == process:
            print(f"otel_gym: spans go to {folder}", file=sys.stderr)
        say_foreign(folder)
        return StoreWriter(folder, service, sync=settings.syncs, content=content_of(settings, folder), notes=notes)

    process = os.getpid()
    notes = foreign_provider_notes(provider) if provider is not _own_provider else None
    return Recorder(
        new_writer,
        settings.queue_bytes,
        settings.exit_timeout_s,
        write_each=settings.fsync == "always",
        new_sealer=(lambda: Sealer(folder, settings.seal_after_s)) if settings.format == "parquet" else None,
    )


# By identity: a provider of another vendor may not be hashable.
_joined: dict[int, RolloutSpanProcessor] = {}


def _joined_processor(
    settings: Settings, provider: TracerProvider, recorder: Recorder, run_id: str | None, content: ContentPolicy
) -> RolloutSpanProcessor:
    """Our processor of this provider, added once; a later call redirects it."""
    processor = _joined.get(id(provider))
    if processor is None:
        processor = RolloutSpanProcessor(recorder, run_id, content, keeps_identity=drops_attributes(provider))
        _joined[id(provider)] = processor
        processor.sinks = live_sinks(os.environ, settings, partial(_count, processor))
        weakref.finalize(provider, _joined.pop, id(provider), None).atexit = False
        provider.add_span_processor(processor)
        # After the provider's own handler was registered, so before it runs: every processor of the
        # provider still sees the spans that our thread ends.
        atexit.register(_flush_at_exit)
        return processor
    processor.redirect(recorder, run_id, content)
    return processor


def _count(processor: RolloutSpanProcessor, name: str, number: int) -> None:
    processor.recorder.count(name, number)


def add_otlp_leg(pipeline: Pipeline) -> bool:
    """Sends the spans of ``pipeline`` over OTLP too, as the environment asks.

    False where the environment asks for none, or for one that cannot be had, which is said.
    """
    processor = pipeline.processor
    if processor.leg is None:
        processor.leg = new_leg(pipeline.settings, processor.content, lambda: processor.recorder)
    else:
        processor.leg.form = slim_form(pipeline.settings, processor.content)
    return processor.leg is not None


_metrics: ModelCallMetrics | None = None


def _metrics_of(provider: TracerProvider) -> ModelCallMetrics | None:
    """Those of the process, one for all of its pipelines."""
    global _metrics
    _metrics = _metrics or metrics_of(provider.resource)
    return _metrics


def _all_recorders() -> list[Recorder]:
    """Of every provider, and of stores that still wait for a span; the newest last."""
    recorders = [recorder for processor in list(_joined.values()) for recorder in processor.recorders]
    if _pipeline is not None:
        recorders = [recorder for recorder in recorders if recorder is not _pipeline.recorder] + [_pipeline.recorder]
    return recorders


def _send_rest(timeout_s: float, is_end: bool) -> None:
    deadline = time.monotonic() + timeout_s
    for processor in list(_joined.values()):
        processor.flush_sinks(deadline)
    for leg in [processor.leg for processor in list(_joined.values()) if processor.leg is not None]:
        (leg.shutdown if is_end else leg.close)(deadline - time.monotonic())
    if is_end and _metrics is not None:
        _metrics.shutdown(deadline - time.monotonic())


def _flush_at_exit() -> None:
    if _pipeline is None:
        return
    deadline = time.monotonic() + _pipeline.settings.exit_timeout_s
    _pipeline.processor.shutdown()
    if _metrics is not None:
        _metrics.shutdown(deadline - time.monotonic())
