"""The capturing proxy: any OpenAI- or Anthropic-compatible server gets capture without a code change.

``proxy_app`` is a FastAPI application with one route: ``ModelCallCapture`` over ``Forwarder``. It forwards as RFC 9110
asks of an intermediary: status, headers and body bytes as they came, hop-by-hop headers left out, nothing buffered,
so that a slow reader slows the model server down and not this process's memory. Upstream sees neither the rollout
prefix nor, unless told to propagate, ``baggage``, ``traceparent`` and ``tracestate``.

The environment's proxy variables and .netrc are not read: what is meant for a loopback server must not leave the
machine, and no credentials are added. ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx
from fastapi import FastAPI
from opentelemetry.propagate import inject
from opentelemetry.trace import SpanKind
from starlette.middleware import Middleware
from starlette.routing import Route

from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.identity import baggage_of, current_identity
from otel_gym.tracing.pipeline import flush
from otel_gym.wire.dialects import DIALECTS

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

CONNECT_TIMEOUT_S = 10.0
# How long a request that cannot be forwarded is read for its record.
REST_TIMEOUT_S = 5.0
# Below the 5 s of uvicorn, which most model servers run under: a connection that the server is about to close is
# not taken for the next call.
KEEP_ALIVE_S = 3.0
MAX_IDLE_CONNECTIONS = 256

# RFC 9110 section 7.6.1, and what stands or falls with them. `expect` was answered by our own server.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"expect",
    }
)
PROPAGATION = frozenset({b"baggage", b"traceparent", b"tracestate"})
BODILESS_STATUS = 204
HIGHEST_STATUS = 599
_ABSOLUTE = re.compile(rb"\Ahttps?://[^/]*", re.IGNORECASE)
_SLASHES = re.compile(rb"\A//+(?=ng-rollout/)")

# FastAPI's own SERVER span (newer versions make one) would hold the query, and with it the keys that some clients send
# there. Older versions take the argument and ignore it.
NO_FASTAPI_SPANS: dict[str, Any] = {"telemetry": {"tracing": False, "metrics": False, "logs": False}}


class UpstreamUrlError(ValueError):
    """``--upstream`` is no URL that calls can be forwarded to; the text says what to give."""


class UpstreamConnectionError(ConnectionError):
    """The upstream could not be reached, or its connection broke."""


class UpstreamTimeoutError(TimeoutError):
    """The upstream did not accept the connection in time."""


class _ClientLeftError(Exception):
    """The client hung up while it was sending."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where calls go. ``base_path`` has neither a slash nor ``/v1`` at its end: clients bring both."""

    url: httpx.URL
    base_path: bytes

    @property
    def host(self) -> str:
        return self.url.host

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    def __str__(self) -> str:
        return f"{self.url.scheme}://{self.url.netloc.decode('ascii')}"

    def target(self, path: bytes, query: bytes) -> bytes:
        """Request target for a client's raw path and query, byte for byte."""
        target = self.base_path + path if path.startswith(b"/") else self.base_path + b"/" + path
        return target + b"?" + query if query else target


def upstream_of(url: str) -> Upstream:
    """Checks ``--upstream``; raises UpstreamUrlError."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UpstreamUrlError(f"{url!r} is no URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UpstreamUrlError(
            f"{url!r} is no http URL; give one such as http://127.0.0.1:8000 or https://api.openai.com"
        )
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise UpstreamUrlError(
            "an upstream URL may have no user, query or fragment; clients send their own credentials"
        )
    base_path = parsed.raw_path.rstrip(b"/")
    for dialect in DIALECTS.values():
        endpoint = dialect.path.removeprefix("/v1").encode()
        if base_path.endswith(endpoint):
            base = str(parsed.copy_with(raw_path=base_path[: -len(endpoint)] or b"/")).rstrip("/")
            raise UpstreamUrlError(f"{url!r} is an endpoint, and clients add its path themselves; give {base}")
    # Kept, it would make calls work that a client sends without it: to paths that are not captured.
    return Upstream(parsed, base_path.removesuffix(b"/v1").rstrip(b"/"))


def proxy_app(
    upstream: Upstream, *, propagate: bool = False, transport: httpx.AsyncBaseTransport | None = None
) -> FastAPI:
    """The proxy as an ASGI application; ``transport`` replaces the connection pool to the upstream.

    Its lifespan closes the pool and flushes what was captured; ``app.state.capture`` counts the calls.
    """
    pool = transport or httpx.AsyncHTTPTransport(
        verify=httpx.create_ssl_context(trust_env=True) if upstream.url.scheme == "https" else False,
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S
        ),
        trust_env=False,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield
        await asyncio.to_thread(flush)

    capture = ModelCallCapture(
        Forwarder(upstream, pool, propagate), span_kind=SpanKind.CLIENT, server_address=(upstream.host, upstream.port)
    )
    every_path = Route("/{path:path}", ProxyEdge(capture))
    app = FastAPI(
        lifespan=lifespan,
        routes=[every_path],
        middleware=[Middleware(OriginForm)],
        openapi_url=None,
        redirect_slashes=False,
        **NO_FASTAPI_SPANS,
    )
    app.state.capture = capture
    return app


class OriginForm:
    """``POST http://host/v1/…`` is ``POST /v1/…``: how a client asks that takes this server for its HTTP proxy.

    The host is not looked at, as that of ``Host`` is not: every call goes to the one upstream. Slashes before the
    rollout prefix are one, as where a base URL that ends with a slash was put together with the prefix.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = scope.get("raw_path") or b""
        raw_path = _SLASHES.sub(b"/", _ABSOLUTE.sub(b"", target)) or b"/"
        if scope["type"] == "http" and target and raw_path != target:
            scope = {**scope, "raw_path": raw_path, "path": unquote(raw_path.decode("ascii"))}
        await self.app(scope, receive, send)


class ProxyEdge:
    """Answers what cannot be forwarded, outside the capture, which sees an exception as the exchange's end.

    So a call whose upstream cannot be reached is recorded as that (category ``connection`` or ``timeout``, no status),
    and the client gets 502 or 504 in its own dialect. A call that is cut as the proxy stops gets 503.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _header(scope["headers"], b"upgrade").lower() == b"websocket":
            await _send_json(send, 403, _openai_error("this proxy speaks HTTP only, no WebSocket", "not_supported"))
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except (UpstreamConnectionError, UpstreamTimeoutError) as error:
            if started:
                raise  # the server then breaks the client's connection, as the upstream's broke
            await _refuse(scope, send, 504 if isinstance(error, UpstreamTimeoutError) else 502, str(error))
        except asyncio.CancelledError:
            if started:
                raise
            await _refuse(scope, send, 503, "stopped before the model server answered")


class Forwarder:
    """Forwards each request to the upstream; knows nothing of what is captured."""

    def __init__(self, upstream: Upstream, transport: httpx.AsyncBaseTransport, propagate: bool = False) -> None:
        self.upstream = upstream
        self.transport = transport
        self.propagate = propagate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _Forwarding(self, scope, receive, send).run()


class _Forwarding:
    """One request. The client is listened to beside the forwarding, so that its leaving ends the upstream's work."""

    def __init__(self, forwarder: Forwarder, scope: Scope, receive: Receive, send: Send) -> None:
        self.forwarder = forwarder
        self.scope = scope
        self.receive = receive
        self.send = send
        self.body_read = asyncio.Event()

    async def run(self) -> None:
        forwarding = asyncio.ensure_future(self._forward())
        listening = asyncio.ensure_future(self._client_leaves())
        try:
            await asyncio.wait((forwarding, listening), return_when=asyncio.FIRST_COMPLETED)
            if forwarding.done():
                forwarding.result()
        except _ClientLeftError:
            pass  # nobody is left to answer
        finally:
            for task in (forwarding, listening):
                task.cancel()
            await asyncio.gather(forwarding, listening, return_exceptions=True)

    async def _client_leaves(self) -> None:
        await self.body_read.wait()
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _forward(self) -> None:
        try:
            response = await self.forwarder.transport.handle_async_request(self._request())
        except httpx.TransportError as error:
            timeout = isinstance(error, httpx.TimeoutException)
            self._state(None, "upstream_timeout" if timeout else "upstream_unreachable")
            await self._read_rest()
            raise _raised(error, f"no answer from {self.forwarder.upstream}: {_reason(error)}") from error
        finally:
            self.body_read.set()
        if response.status_code > HIGHEST_STATUS:
            await _close(response)
            await self._refuse_status(response.status_code)
            return
        self._state(response.status_code)
        try:
            await self._send_all_but_end(response)
        except httpx.TransportError as error:
            raise _raised(error, f"the upstream's answer broke off: {_reason(error)}") from error
        finally:
            await _close(response)
        # Only now: the end of the answer ends this request, and with it whatever still runs of it. By then the
        # connection to the upstream must be back in the pool.
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse_status(self, status: int) -> None:
        """HTTP has no such status, and our own server cannot say it: the client gets, and the record has, a 502."""
        self._state(status, "upstream_status_invalid")
        await self._read_rest()
        await _refuse(self.scope, self.send, 502, f"the model server answered with status {status}, which HTTP lacks")

    async def _send_all_but_end(self, response: httpx.Response) -> None:
        status, headers = response.status_code, response_headers(response.headers.raw, response.status_code)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        async for chunk in _stream(response):
            await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    def _request(self) -> httpx.Request:
        scope, upstream = self.scope, self.forwarder.upstream
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
        headers = request_headers(scope["headers"])
        if self.forwarder.propagate:
            headers = propagated_headers(headers, scope["headers"])
        if not _has_body(scope["headers"]):
            self.body_read.set()
        return httpx.Request(
            scope["method"],
            upstream.url,
            headers=headers,
            content=None if self.body_read.is_set() else self._body(),
            extensions={
                "target": upstream.target(path, scope.get("query_string", b"")),
                "timeout": {"connect": CONNECT_TIMEOUT_S, "read": None, "write": None, "pool": None},
            },
        )

    async def _body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeftError
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]
        self.body_read.set()

    async def _read_rest(self) -> None:
        """What the client sends to nobody: it belongs to the record of the call."""
        if self.body_read.is_set():
            return
        with suppress(TimeoutError, _ClientLeftError):
            async with asyncio.timeout(REST_TIMEOUT_S):
                async for _ in self._body():
                    pass

    def _state(self, upstream_status: int | None, local_reason: str | None = None) -> None:
        """Where the answer comes from, said in the place where NeMo Gym's model servers say it."""
        self.scope.setdefault("state", {})["nemo_gym_model_execution"] = {
            "upstream_attempted": True,
            "response_source": "upstream" if local_reason is None else "local",
            "upstream_status_code": upstream_status,
            "local_response_reason": local_reason,
        }


def request_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What the upstream gets, in the client's order: no hop-by-hop header, no ``Host``, no trace context."""
    kept = _end_to_end(headers)
    return [(name, value) for name, value in kept if name != b"host" and name not in PROPAGATION]


def response_headers(headers: Iterable[tuple[bytes, bytes]], status: int) -> Headers:
    """What the client gets, in the upstream's order; ASGI wants the names in lower case."""
    kept = _end_to_end(headers)
    if status == BODILESS_STATUS:
        return [(name, value) for name, value in kept if name != b"content-length"]
    return kept


def propagated_headers(kept: Headers, sent: Iterable[tuple[bytes, bytes]]) -> Headers:
    """With the ids of the call's own span and rollout where there is one, else as the client sent them."""
    carrier: dict[str, str] = {}
    identity = current_identity()
    inject(carrier, baggage_of(identity) if identity else None)
    own = [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in carrier.items()]
    replaced = {name for name, _ in own}
    return kept + [(name, value) for name, value in sent if name in PROPAGATION - replaced] + own


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    lower = [(name.lower(), value) for name, value in headers]
    left_out = HOP_BY_HOP.union(
        option.strip().lower() for name, value in lower if name == b"connection" for option in value.split(b",")
    )
    if any(name == b"transfer-encoding" for name, _ in lower):
        left_out |= {b"content-length"}  # it does not count, and an intermediary removes it (RFC 9112 section 6.3)
    return [(name, value) for name, value in lower if name not in left_out]


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0") for name, value in headers
    )


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


async def _stream(response: httpx.Response) -> AsyncIterator[bytes]:
    """Body bytes as they came off the wire: compressed stays compressed."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for chunk in response.stream:
        if chunk:
            yield chunk


async def _close(response: httpx.Response) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    with suppress(httpx.TransportError):
        await response.stream.aclose()


def _raised(error: httpx.TransportError, problem: str) -> Exception:
    return (UpstreamTimeoutError if isinstance(error, httpx.TimeoutException) else UpstreamConnectionError)(problem)


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_TIMEOUT_S:g} s"
    return str(error) or type(error).__name__


def _openai_error(problem: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": problem, "type": kind, "param": None, "code": None}}


def _anthropic_error(problem: str, kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": problem}}


async def _refuse(scope: Scope, send: Send, status: int, problem: str) -> None:
    """An error of ours in the dialect of the call."""
    shape = _anthropic_error if scope["path"].endswith("/messages") else _openai_error
    await _send_json(send, status, shape(f"otel-gym proxy: {problem}", "api_error"))


async def _send_json(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
