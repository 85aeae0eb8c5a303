"""Real OTLP receivers in this process: gRPC by grpcio, HTTP by uvicorn and starlette. What they were sent is kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import uvicorn
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

LIMIT = 4 * 1024 * 1024
PROTOBUF = "application/x-protobuf"


@dataclass
class Received:
    """``refuse`` and ``status``: how the receiver answers from now on; ``hang``: it never does until that is set."""

    endpoint: str = ""
    messages: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refuse: int = 0
    status: Any = None
    hang: threading.Event | None = None

    def keep(
        self, message: ExportTraceServiceRequest, size: int, headers: dict[str, str]
    ) -> ExportTraceServiceResponse:
        self.messages.append(message)
        self.sizes.append(size)
        self.headers.append(headers)
        answer = ExportTraceServiceResponse()
        if self.refuse:
            answer.partial_success.rejected_spans = self.refuse
            answer.partial_success.error_message = "too old"
        return answer

    def spans(self) -> list[Any]:
        return [
            span
            for message in self.messages
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans())

    def one(self, name: str) -> dict[str, Any]:
        (span,) = (span for span in self.spans() if span.name == name)
        return attributes(span)

    def awaited(self, count: int) -> list[Any]:
        until(lambda: len(self.spans()) >= count)
        return self.spans()

    def otlp_json(self) -> str:
        """As lines that checkers of OTLP/JSON read."""
        return "".join(json.dumps(_as_json(message)) + "\n" for message in self.messages)


def until(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def attributes(part: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in part.attributes}


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: value_of(pair.value) for pair in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)


def _as_json(message: ExportTraceServiceRequest) -> dict[str, Any]:
    document = MessageToDict(message)
    for resource, as_json in zip(message.resource_spans, document["resourceSpans"], strict=True):
        for scope, scope_json in zip(resource.scope_spans, as_json["scopeSpans"], strict=True):
            for span, span_json in zip(scope.spans, scope_json["spans"], strict=True):
                span_json["traceId"], span_json["spanId"] = span.trace_id.hex(), span.span_id.hex()
                span_json["kind"] = span.kind
                if span.parent_span_id:
                    span_json["parentSpanId"] = span.parent_span_id.hex()
                if "status" in span_json and "code" in span_json["status"]:
                    span_json["status"]["code"] = span.status.code
    return document


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class _Servicer(TraceServiceServicer):
    def __init__(self, received: Received) -> None:
        self.received = received

    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802
        received = self.received
        if received.hang is not None:
            received.hang.wait(60)
        if received.status is not None:
            context.abort(received.status, "not now")
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        return received.keep(request, request.ByteSize(), headers)


@contextmanager
def grpc_receiver(port: int = 0, received: Received | None = None) -> Iterator[Received]:
    received = received or Received()
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    add_TraceServiceServicer_to_server(_Servicer(received), server)
    received.endpoint = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait(5)


def _http_app(received: Received) -> Starlette:
    async def traces(request: Request) -> Response:
        body = await _body(request)
        if received.hang is not None:
            await asyncio.to_thread(received.hang.wait, 60)
        if received.status is not None:
            return Response(status_code=received.status)
        answer = received.keep(ExportTraceServiceRequest.FromString(body), len(body), dict(request.headers))
        return Response(answer.SerializeToString(), media_type=PROTOBUF)

    async def metrics(request: Request) -> Response:
        received.metrics.append(ExportMetricsServiceRequest.FromString(await _body(request)))
        return Response(media_type=PROTOBUF)

    return Starlette(
        routes=[Route("/v1/traces", traces, methods=["POST"]), Route("/v1/metrics", metrics, methods=["POST"])]
    )


async def _body(request: Request) -> bytes:
    body = await request.body()
    return gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body


@contextmanager
def http_receiver(port: int = 0, received: Received | None = None) -> Iterator[Received]:
    received = received or Received()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        received.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(_http_app(received), log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        try:
            yield received
        finally:
            if received.hang is not None:
                received.hang.set()
            server.should_exit = True
            thread.join(10)
