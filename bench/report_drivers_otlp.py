"""Driver of fault reports on what leaves over OTLP: spans of given sizes, sent to a real gRPC receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.trace import TracerProvider

from otel_gym.content_policy import DEFAULT_POLICY
from otel_gym.settings import Settings
from otel_gym.store.reader import Store
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.otlp import new_leg
from otel_gym.tracing.processor import RolloutSpanProcessor
from otel_gym.tracing.recorder import Recorder
from report_bench import Bench, Driver, has_files
from report_problems import NotDrivenError, Object, unequal

# gRPC receivers refuse larger messages unless they are told otherwise; so does this one.
LIMIT = 4 * 1024 * 1024
TIMEOUT_S = 30


class _Receiver(TraceServiceServicer):
    def __init__(self) -> None:
        self.messages: list[ExportTraceServiceRequest] = []

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        self.messages.append(request)
        return ExportTraceServiceResponse()


@contextmanager
def _receiver() -> Iterator[tuple[str, _Receiver]]:
    receiver = _Receiver()
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", LIMIT)])
    add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", receiver
    finally:
        server.stop(None).wait(5)


def drive_sizes(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``sizes.json``: the bytes of each span of one batch, sent uncut; the store must have every one whole."""
    sizes: list[int] = json.loads((folder / "sizes.json").read_bytes())
    with TemporaryDirectory() as directory, _receiver() as (endpoint, receiver):
        store = Path(directory)
        counts = _sent(sizes, endpoint, store)
        stored = [len(span.attributes["prompt"]) for span in Store(store).spans("0-0")]
    parts = [part for message in receiver.messages for part in message.resource_spans]
    spans = [span for part in parts for scope in part.scope_spans for span in scope.spans]
    replaced = sum(any(pair.key == "gym.otlp.cut" for pair in span.attributes) for span in spans)
    found = {"lost_spans": len(sizes) - len(spans), "spans_with_replaced_content": replaced}
    for name, value in expected.items():
        if name == "batches_at_least":
            if len(receiver.messages) < value:
                yield f"{len(receiver.messages)} messages, at least {value} wanted"
        elif name in found:
            yield from unequal({name: found[name]}, {name: value})
        else:
            raise NotDrivenError(f"no check for the key {name!r}")
    if sorted(stored) != sorted(sizes):
        yield f"the store has spans of {sorted(stored)} bytes"
    if counts:
        yield f"counted as lost: {counts}"


def _sent(sizes: list[int], endpoint: str, directory: Path) -> dict[str, int]:
    settings = Settings(otlp_attribute_bytes=0)
    recorder = Recorder(lambda: StoreWriter(directory), settings.queue_bytes)
    processor = RolloutSpanProcessor(recorder)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    # The SDK's exporter reads them when the first span is sent.
    with patch.dict("os.environ", OTEL_EXPORTER_OTLP_PROTOCOL="grpc", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
        processor.leg = new_leg(settings, DEFAULT_POLICY, lambda: recorder)
        for size in sizes:
            attributes = {"gym.rollout.id": "0-0", "prompt": "a" * size}
            provider.get_tracer("report").start_span("chat m", attributes=attributes).end()
        if processor.leg is None or not processor.leg.flush(TIMEOUT_S):
            raise NotDrivenError("spans were not sent")
    processor.shutdown()
    return Store(directory).counts()


OTLP_DRIVERS: tuple[tuple[Any, Driver], ...] = ((has_files("sizes.json"), drive_sizes),)
