"""Runs the capturing proxy under uvicorn: the socket, the signals, and the lines that it says on start."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from otel_gym.capture.proxy import Upstream, UpstreamConnectionError, UpstreamTimeoutError
from otel_gym.tracing.pipeline import flush

BACKLOG = 2048
# What still streams when the proxy is told to stop gets this long; then it is cut, and recorded as cut.
SHUTDOWN_GRACE_S = 5


class ListenError(Exception):
    """The port cannot be had; the text says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then does asyncio set TCP_NODELAY, without which every answer waits 40 ms for the client's ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(
            f"cannot listen on {host}:{port}: {reason}; give another --port (0 picks a free one)"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def start_lines(url: str, upstream: Upstream, directory: Path | None, *, stores_unassigned: bool) -> list[str]:
    """What a user must know to point a client at the proxy; ``directory`` None: nothing is captured."""
    head = [f"otel-gym proxy on {url}, forwarding to {upstream}{upstream.base_path.decode('latin-1')}"]
    if directory is None:
        return [*head, "OTEL_GYM=0: calls are forwarded and nothing is captured"]
    without_id = "stored under `unassigned`" if stores_unassigned else "forwarded and only counted"
    return [
        *head,
        f"  OpenAI base URL     {url}/ng-rollout/<rollout id>/v1",
        f"  Anthropic base URL  {url}/ng-rollout/<rollout id>",
        f"  store               {directory}",
        f"  calls without /ng-rollout/<rollout id> are {without_id}",
        f"read it with: otel-gym ls --dir {directory}",
    ]


def serve(app: FastAPI, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serves until SIGINT or SIGTERM; returns when what was captured is on disk.

    ``on_ready`` runs once the listener takes calls.
    """
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        _Server(server_config(app), on_ready).run(sockets=[listener])
    except (KeyboardInterrupt, _StoppedError):
        pass
    finally:
        flush()
        signal.signal(signal.SIGTERM, previous)


class _StoppedError(Exception):
    """SIGTERM, after uvicorn's own shutdown or before its start."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _StoppedError


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def server_config(app: FastAPI) -> uvicorn.Config:
    options: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "ws": "none",
        "timeout_graceful_shutdown": SHUTDOWN_GRACE_S,
    }
    if "reset_contextvars" in inspect.signature(uvicorn.Config).parameters:
        # Without it a prompt above 64 kB makes later calls of the same connection children of an ended span.
        options["reset_contextvars"] = True
    config = uvicorn.Config(app, **options)
    logging.getLogger("uvicorn.error").addFilter(shorten_upstream_errors)
    return config


def shorten_upstream_errors(record: logging.LogRecord) -> bool:
    """An upstream that breaks off, or a call that is cut at the end, is no fault of ours: one line, no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UpstreamConnectionError | UpstreamTimeoutError | asyncio.CancelledError):
        record.msg, record.args, record.exc_info = "%s", (str(error),), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
