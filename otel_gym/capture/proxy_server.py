"""Runs the capturing proxy under uvicorn: the socket, the signals, and the lines that it says on start."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from otel_gym.capture.proxy import Upstream, UpstreamConnectionError, UpstreamTimeoutError
from otel_gym.tracing.pipeline import flush
from otel_gym.wire.dialects import DIALECTS

# What still streams when the proxy is told to stop gets this long; then it is cut, and recorded as cut.
SHUTDOWN_GRACE_S = 5


def start_lines(
    url: str, upstream: Upstream, directory: Path | None, *, stores_unassigned: bool, off_by: str = "OTEL_GYM=0"
) -> list[str]:
    """What a user must know to point a client at the proxy; ``directory`` None: ``off_by`` turned capture off."""
    head = [f"otel-gym proxy on {url}, forwarding to {upstream}{upstream.base_path.decode('latin-1')}"]
    if directory is None:
        return [*head, f"{off_by}: calls are forwarded and nothing is captured"]
    without_id = (
        "stored under their harness's session, else `unassigned`" if stores_unassigned else "forwarded and only counted"
    )
    return [
        *head,
        f"  OpenAI base URL     {url}/ng-rollout/<rollout id>/v1",
        f"  Anthropic base URL  {url}/ng-rollout/<rollout id>",
        f"  store               {directory}",
        f"  captured            {', '.join(dialect.path for dialect in DIALECTS.values())}",
        f"  calls without /ng-rollout/<rollout id> are {without_id}",
        f"read it with: otel-gym ls --dir {directory}",
    ]


def end_line(calls: int, lost_spans: int) -> str:
    """What became of the calls, said when the proxy ends."""
    lost = f", {lost_spans:,} spans lost: the store could not be written" if lost_spans else ""
    return f"otel-gym proxy: {calls:,} {'call' if calls == 1 else 'calls'} captured{lost}"


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
    """Stops at the first signal, when the calls under way have ended; at the second it cuts them."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self._loop.call_soon_threadsafe(self._cut_calls)
            return
        super().handle_exit(sig, frame)
        calls = len(self.server_state.tasks)
        if calls:
            # Not print: the signal may have come in the midst of one.
            said = f"waiting up to {SHUTDOWN_GRACE_S} s for the calls under way ({calls}), Ctrl-C cuts them"
            os.write(sys.stderr.fileno(), f"otel-gym proxy: {said}\n".encode())

    def _cut_calls(self) -> None:
        for task in self.server_state.tasks:
            task.cancel("cut by a second signal")


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
    for reword in (shorten_upstream_errors, say_cut_calls):
        logging.getLogger("uvicorn.error").addFilter(reword)
    return config


def shorten_upstream_errors(record: logging.LogRecord) -> bool:
    """An upstream that breaks off, or a call that is cut at the end, is no fault of ours: one line, no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UpstreamConnectionError | UpstreamTimeoutError | asyncio.CancelledError):
        record.msg, record.args, record.exc_info = "%s", (str(error),), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def say_cut_calls(record: logging.LogRecord) -> bool:
    """uvicorn counts tasks where a user counts calls, and calls it an error."""
    if str(record.msg).startswith("Cancel %s running task"):
        record.msg = f"%s calls did not end within {SHUTDOWN_GRACE_S} s: cut, and recorded as cancelled"
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
