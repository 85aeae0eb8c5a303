"""Serves OTLP over HTTP and gRPC on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from otel_gym.ingest.otlp.grpc_service import grpc_server
from otel_gym.ingest.otlp.http_app import receiver_app
from otel_gym.ingest.otlp.receiver import Counts, Receiver
from otel_gym.listening import ListenError, url_of

# Messages under way get so long when the receiver is told to stop.
SHUTDOWN_GRACE_S = 5


class Addresses(NamedTuple):
    """Where the receiver is found: the URL for OTLP over HTTP, ``host:port`` for gRPC."""

    http: str
    grpc: str


def start_lines(found: Addresses, directory: Path) -> list[str]:
    """What a user must know to send spans here, and to read them."""
    return [
        f"otel-gym receive on {found.http} (OTLP over HTTP) and {found.grpc} (OTLP over gRPC)",
        f"  HTTP   OTEL_EXPORTER_OTLP_ENDPOINT={found.http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        f"  gRPC   OTEL_EXPORTER_OTLP_ENDPOINT=http://{found.grpc} OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
        f"  store  {directory.absolute()}",
        f"read it with: otel-gym ls --dir {directory}",
    ]


def end_line(counts: Counts) -> str:
    """What came, said when the receiver ends."""
    refused = f", {counts.refused:,} refused" if counts.refused else ""
    others = f", {counts.other_signals:,} messages of metrics and logs not kept" if counts.other_signals else ""
    records = f", {counts.records:,} of Dynamo's records" if counts.records else ""
    spans = f"{counts.spans:,} {'span' if counts.spans == 1 else 'spans'}"
    return f"otel-gym receive: {spans} taken{records}{refused}{others}"


def serve(
    receiver: Receiver, listener: socket.socket, host: str, grpc_port: int, on_ready: Callable[[Addresses], None]
) -> None:
    """Serves until SIGINT or SIGTERM; returns when all that was taken is on disk. Raises ListenError."""
    try:
        asyncio.run(_serve(receiver, listener, host, grpc_port, on_ready))
    finally:
        receiver.close()


async def _serve(
    receiver: Receiver, listener: socket.socket, host: str, grpc_port: int, on_ready: Callable[[Addresses], None]
) -> None:
    calls = grpc_server(receiver)
    place = f"[{host}]" if ":" in host else host
    try:
        port = calls.add_insecure_port(f"{place}:{grpc_port}")
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {place}:{grpc_port}: {_reason(error)}; give another --grpc") from None
    await calls.start()
    config = uvicorn.Config(
        receiver_app(receiver),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )
    server = _Server(config, lambda: on_ready(Addresses(url_of(listener), f"{place}:{port}")))
    try:
        await server.serve(sockets=[listener])
    finally:
        await calls.stop(SHUTDOWN_GRACE_S)


def _reason(error: RuntimeError) -> str:
    return "the port is in use, or may not be had" if "bind" in str(error) else str(error)


class _Server(uvicorn.Server):
    """Ends at a signal, and does not pass it on: the gRPC side, and the writer, are still to be ended."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
