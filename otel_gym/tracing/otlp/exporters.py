"""The SDK's own OTLP span exporters, which read their standard variables themselves.

Of an answer that takes a part of the spans they say nothing; so the answers are read on their way to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from opentelemetry.sdk.trace.export import SpanExporter

from otel_gym.tracing.otlp.plan import GRPC, OtlpPlan, Protocol, Signal

# Spans that the receiver refused, and what it says of them.
OnRejected = Callable[[int, str], None]

_MODULES: dict[tuple[Signal, Protocol], str] = {
    ("traces", "grpc"): "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    ("traces", "http/protobuf"): "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    ("metrics", "grpc"): "opentelemetry.exporter.otlp.proto.grpc.metric_exporter",
    ("metrics", "http/protobuf"): "opentelemetry.exporter.otlp.proto.http.metric_exporter",
}
# Repeats the text of a header that it cannot read, which may be a key.
HEADERS_SPEAKER = "opentelemetry.util.re"
# Who says what went wrong with an export of spans.
SPEAKERS = ("opentelemetry.exporter.otlp.proto.grpc.exporter", _MODULES["traces", "http/protobuf"])


def load_exporter(plan: OtlpPlan) -> Any:
    """Its module. Loaded early: at the end of a process some of what it imports can no longer be."""
    module = import_module(_MODULES[plan.signal, plan.protocol])
    if plan.protocol != GRPC:
        with suppress(ImportError):  # imported with the first request else
            import_module("requests")
    return module


def new_span_exporter(plan: OtlpPlan, on_rejected: OnRejected) -> SpanExporter:
    module = load_exporter(plan)
    exporter: SpanExporter
    if plan.protocol == GRPC:
        options = {"compression": module.Compression.NoCompression} if _says_no_compression(os.environ) else {}
        exporter = _listening_to_grpc(module.OTLPSpanExporter, on_rejected)(**options)
    else:
        exporter = module.OTLPSpanExporter()
        with suppress(AttributeError):  # of a later release: its answers are not read
            _listen_to_http(exporter, on_rejected)
    return exporter


def _says_no_compression(environ: Mapping[str, str]) -> bool:
    """The SDK's gRPC exporter raises for ``none`` and for an empty text, which the standard allows."""
    own, common = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"
    says = environ.get(own) or environ.get(common) or ""
    return says.strip().lower() in ("", "none") and (own in environ or common in environ)


def _listening_to_grpc(exporter_class: Any, on_rejected: OnRejected) -> Any:
    class ListeningExporter(exporter_class):  # type: ignore[misc]
        def _initialize_channel_and_stub(self) -> None:
            super()._initialize_channel_and_stub()
            export = self._client.Export

            def listening(*arguments: Any, **named: Any) -> Any:
                answer = export(*arguments, **named)
                _note_partial_success(answer, on_rejected)
                return answer

            self._client.Export = listening

    return ListeningExporter


class RedirectError(Exception):
    """The endpoint says that it is elsewhere, and took nothing."""


def _listen_to_http(exporter: Any, on_rejected: OnRejected) -> None:
    transport = exporter._client._transport
    request = transport.request

    def listening(*arguments: Any, **named: Any) -> Any:
        result = request(*arguments, **named)
        if result.status_code is not None and 300 <= result.status_code < 400:  # which the exporter takes for a success
            raise RedirectError(f"it redirects to {result.headers().get('location')}: name that as the endpoint")
        if result.status_code == 200:
            with suppress(Exception):  # an answer that is none: what matters is its status
                _note_partial_success(_parsed(result.content()), on_rejected)
        return result

    transport.request = listening


def _parsed(content: bytes) -> Any:
    service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    return service.ExportTraceServiceResponse.FromString(content)


def _note_partial_success(answer: Any, on_rejected: OnRejected) -> None:
    with suppress(Exception):
        partial = answer.partial_success
        if partial.rejected_spans > 0:
            on_rejected(partial.rejected_spans, partial.error_message)
