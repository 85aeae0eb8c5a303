"""HTTP clients: httpx, httpx2, aiohttp and requests tell allowed hosts of rollout and span.

No CLIENT span is made: the server's own span says more, and stands below the span of the agent that called. Bodies are
not looked at. Each request is told on its own way, also those that a redirect or a retry makes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from otel_gym.capture.instrumentors.library import LibraryInstrumentor
from otel_gym.capture.instrumentors.propagation import headers_for, told


class HttpxInstrumentor(LibraryInstrumentor):
    """The one step that each single request of a client goes through; OpenAI's and Anthropic's clients go there too."""

    module = "httpx"
    requires = "httpx >= 0.18"

    def _patch(self, module: Any) -> None:
        self._replace(module.Client, "_send_single_request", _telling)
        self._replace(module.AsyncClient, "_send_single_request", _telling_async)


class Httpx2Instrumentor(HttpxInstrumentor):
    module = "httpx2"
    requires = "httpx2 >= 2.0"


class AiohttpInstrumentor(LibraryInstrumentor):
    """The request as it is about to be written; each redirect is one of its own."""

    module = "aiohttp"
    requires = "aiohttp >= 3.8"

    def _patch(self, module: Any) -> None:
        self._replace(module.ClientRequest, "send", _telling_aiohttp)


class RequestsInstrumentor(LibraryInstrumentor):
    """The adapter, below the session: it sees each redirect."""

    module = "requests"
    requires = "requests >= 2.20"

    def _patch(self, module: Any) -> None:
        self._replace(module.adapters.HTTPAdapter, "send", _telling_adapter)


def _telling(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_telling(client: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        with told(request.url.host, request.headers):
            return send(client, request, *arguments, **named)

    return send_telling


def _telling_async(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(send)
    async def send_telling(client: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        with told(request.url.host, request.headers):
            return await send(client, request, *arguments, **named)

    return send_telling


def _telling_aiohttp(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(send)
    async def send_telling(request: Any, *arguments: Any, **named: Any) -> Any:
        request.headers.update(headers_for(request.url.host, request.headers))
        return await send(request, *arguments, **named)

    return send_telling


def _telling_adapter(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_telling(adapter: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        with told(urlsplit(request.url or "").hostname, request.headers):
            return send(adapter, request, *arguments, **named)

    return send_telling
