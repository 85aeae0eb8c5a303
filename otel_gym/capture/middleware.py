"""Captures model calls at the boundary of any ASGI model server.

Three layers, outermost first: ``ModelCallCapture`` finds the rollout and strips its URL prefix;
opentelemetry-instrumentation-asgi makes the SERVER span; ``_CapturedCall`` tees the exchange of one
request. Bytes go on unchanged and at once; everything else (headers, parsing, attributes, writing)
happens after the last byte, on the recorder's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import version
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.instrumentation import asgi
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AnyValue

from otel_gym.capture.clock import Clock, SystemClock
from otel_gym.capture.exchanges import CapturedCall
from otel_gym.capture.routes import Route, route_of, say_near_miss, say_refused, without_prefix
from otel_gym.capture.served import (
    RolloutRequest,
    current_request,
    current_task,
    is_in_leftover_context,
    is_span_of_another_request,
    outer_span_of,
)
from otel_gym.capture.stand_ins import SessionRoots
from otel_gym.identity import (
    Identity,
    RequestIdentity,
    current_identity,
    identity_from_baggage_header,
    set_identity,
)
from otel_gym.tracing.current import restore
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.pipeline import Pipeline, active_pipeline
from otel_gym.wire.exchange import DialectName

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST = "otel_gym.request"
_CAPTURED = "otel_gym.captured"
# Scope keys by which Starlette and FastAPI know that a SERVER span is at work.
_STARLETTE_SPAN = "starlette.opentelemetry"
_FASTAPI_SPAN = "fastapi.telemetry"


class ModelCallCapture:
    """ASGI middleware: every model call becomes a ``chat MODEL`` span that holds its exchange.

    model_ref       NeMo Gym's reference to the model server, {"type": …, "name": …}; on every span
    model           the one that a request asks for which names none
    clock           wall_ns() and monotonic_ns()
    call_id         scope → id of the exchange; default 32 random hex digits
    server_spans    False: no SERVER span around the call
    strips_prefix   False: the application is given paths as they came, with the rollout's prefix
    span_kind       INTERNAL in the model server itself, CLIENT where the call goes on to another
    server_address  (host, port) of the model server, where it is not this one

    With tracing off, requests pass with their prefix stripped. A failure of the capture is logged once
    per kind and never reaches the call. ``captured_calls`` counts what was captured.
    """

    def __init__(
        self,
        app: App,
        *,
        model_ref: dict[str, Any] | None = None,
        model: str | None = None,
        clock: Clock | None = None,
        call_id: Callable[[Scope], str] | None = None,
        server_spans: bool = True,
        strips_prefix: bool = True,
        span_kind: SpanKind = SpanKind.INTERNAL,
        server_address: tuple[str, int | None] | None = None,
    ) -> None:
        self.app = app
        self.model_ref = model_ref
        self.model = model
        self.clock = clock or SystemClock()
        self.call_id = call_id
        self.server_spans = server_spans
        self.strips_prefix = strips_prefix
        self.span_kind = span_kind
        self.server_address = server_address
        self.captured_calls = 0
        self._sessions = SessionRoots()
        self._traced: tuple[Pipeline, App] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, _flushing_before_shutdown(send))
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        route = self._route(scope)
        if self.strips_prefix:
            scope = without_prefix(scope, route)
        pipeline = active_pipeline()
        if pipeline is None or scope["type"] == "websocket" or scope.get(_CAPTURED):
            return await self.app(scope, receive, send)
        await self._trace(pipeline, route, scope, receive, send)

    async def _trace(self, pipeline: Pipeline, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        is_leftover = is_in_leftover_context() or is_span_of_another_request(scope)
        outer_span = outer_span_of(is_leftover)
        identity = _identity(pipeline, route, scope, None if is_leftover else current_identity())
        dialect = route.dialect
        if route.is_near_miss and scope["method"] == "POST":
            say_near_miss(route.path)
            pipeline.recorder.count("uncaptured_paths")
        if route.refused_id is not None and dialect is not None:
            say_refused(route.refused_id)
            pipeline.recorder.count("refused_ids")
        if identity.rollout_id is None and dialect is not None:
            if not pipeline.capture_unassigned:
                pipeline.recorder.count("uncaptured_calls")
                dialect = None
            elif route.refused_id is None:
                identity = self._of_session(identity, scope)
        if identity.rollout_id is None and dialect is None:
            if is_leftover:
                return await self._without_leftovers(outer_span, scope, receive, send)
            return await self.app(scope, receive, send)
        query_string = scope.get("query_string", b"")
        request = RolloutRequest(
            pipeline,
            identity,
            dialect,
            query_string,
            self._span_name(route, scope),
            route.refused_id,
            task=current_task(),
        )
        if route.prefix_id is None or not self.strips_prefix:  # else it is a copy already
            scope = {**scope}
        # Keys travel in queries: the SERVER span never sees one.
        scope["query_string"] = b""
        scope.setdefault("state", {})
        scope[_REQUEST] = request
        context_token = None if outer_span else otel_context.attach(Context())
        identity_token = set_identity(identity)
        request_token = current_request.set(request)
        try:
            await self._traced_app(pipeline, outer_span, scope)(scope, receive, send)
        finally:
            request.end()
            request.task = None
            restore(request_token)
            restore(identity_token)
            if context_token is not None:
                restore(context_token)

    async def _without_leftovers(self, outer_span: Span | None, scope: Scope, receive: Receive, send: Send) -> None:
        """A request of no rollout that starts in the context of an earlier one that had one."""
        context = Context() if outer_span is None else trace.set_span_in_context(outer_span, Context())
        context_token = otel_context.attach(context)
        identity_token = set_identity(None)
        try:
            await self.app(scope, receive, send)
        finally:
            restore(identity_token)
            restore(context_token)

    def _traced_app(self, pipeline: Pipeline, outer_span: Span | None, scope: Scope) -> App:
        if not self.server_spans:
            return self._capture
        if scope.get(_STARLETTE_SPAN) or getattr(outer_span, "kind", None) is SpanKind.SERVER:
            _stamp(outer_span, scope[_REQUEST], scope["method"])
            return self._capture
        if self._traced is None or self._traced[0] is not pipeline:
            middleware = asgi.OpenTelemetryMiddleware(
                self._capture,
                default_span_details=_server_span_details,
                tracer=_RequestTracer(pipeline.provider),
                exclude_spans=["receive", "send"],
            )
            self._traced = (pipeline, middleware)
        scope[_STARLETTE_SPAN] = True
        scope[_FASTAPI_SPAN] = None
        return self._traced[1]

    async def _capture(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: RolloutRequest = scope.pop(_REQUEST)
        scope["query_string"] = request.query_string
        scope[_CAPTURED] = True  # of two captures around one app the outer one counts
        if request.dialect is None:
            return await self._pass_on(request, scope, receive, send)
        call = self._begin(request, request.dialect, scope)
        if call is None:
            return await self.app(scope, receive, send)
        self.captured_calls += 1
        await call.run(self.app, scope, receive, send)

    def _of_session(self, identity: RequestIdentity, scope: Scope) -> RequestIdentity:
        """A harness's session stands in for the rollout that its call does not name."""
        try:
            return RequestIdentity(self._sessions.rollout_id(scope["headers"]), identity.run_id)
        except Exception:
            log_once("the session of a model call could not be told")
            return identity

    def _route(self, scope: Scope) -> Route:
        return route_of(scope["path"], scope.get("root_path") or "")

    def _span_name(self, route: Route, scope: Scope) -> str:
        # Other paths may hold ids: the method alone keeps the name low in cardinality.
        method: str = scope["method"]
        return f"{method} {route.path}" if route.dialect else method

    async def _pass_on(self, request: RolloutRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """A request of a rollout that is no model call."""
        await self.app(scope, receive, send)

    def _begin(self, request: RolloutRequest, dialect: DialectName, scope: Scope) -> CapturedCall | None:
        try:
            return CapturedCall(
                pipeline=request.pipeline,
                identity=request.identity,
                dialect=dialect,
                scope=scope,
                clock=self.clock,
                model_call_id=self.call_id(scope) if self.call_id else None,
                model_ref=self.model_ref,
                model=self.model,
                span_kind=self.span_kind,
                server_address=self.server_address or scope.get("server") or (None, None),
                on_last_byte=request.end,
                refused_id=request.refused_id,
            )
        except Exception:
            log_once("a model call could not be captured")
            return None


def instrument_app(app: Any, *, capture: Callable[..., Any] = ModelCallCapture, **options: Any) -> Any:
    """Adds ``ModelCallCapture``, or a ``capture`` of its kind, to a FastAPI or Starlette app, once; returns the app.

    ``options`` are the middleware's. An app that has begun to serve is wrapped as it stands. FastAPI's
    own SERVER span gives way to ours, unless the app gave it a provider: it starts before the rollout
    is known, so in another trace, and it keeps the query.
    """
    if any(is_capture(middleware.cls) for middleware in app.user_middleware):
        return app
    if app.middleware_stack is None:
        app.add_middleware(capture, **options)
    elif not isinstance(app.middleware_stack, ModelCallCapture):
        app.middleware_stack = capture(app.middleware_stack, **options)
    native_telemetry = getattr(app, "_telemetry", None)
    if isinstance(native_telemetry, dict) and native_telemetry.get("tracer_provider") is None:
        native_telemetry["tracing"] = False
    return app


def is_capture(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ModelCallCapture)


def _identity(pipeline: Pipeline, route: Route, scope: Scope, surrounding: Identity | None) -> RequestIdentity:
    """URL prefix, else baggage, else the rollout that surrounds an in-process call."""
    said = _identity_of_baggage(scope) or surrounding
    rollout_id, run_id = (said.rollout_id, said.run_id) if said else (None, None)
    if route.prefix_id is not None:
        rollout_id = None if route.refused_id is not None else route.prefix_id
    return RequestIdentity(rollout_id, run_id or pipeline.run_id)


def baggage_header(scope: Scope) -> str | None:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"baggage"]
    return ",".join(values) if values else None


def _identity_of_baggage(scope: Scope) -> Identity | None:
    header = baggage_header(scope)
    return None if header is None else identity_from_baggage_header(header)


def _server_span_details(scope: Scope) -> tuple[str, dict[str, Any]]:
    request: RolloutRequest = scope[_REQUEST]
    return request.span_name, {}


class _SetOnce(BoundedAttributes):
    """Attributes that skip what they hold already.

    The ASGI instrumentation sets each attribute twice, at the start and again one by one; the second time costs as
    much as all that we do with the span. The span keeps its class: code that saw two would be slower for each chunk.
    """

    def __setitem__(self, key: str, value: AnyValue) -> None:
        if type(key) is not str or value is None or self._dict.get(key) is not value:
            super().__setitem__(key, value)


class _RequestTracer(trace.Tracer):
    """Starts each SERVER span with the ids of its request."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer(asgi.__name__, version("opentelemetry-instrumentation-asgi"))

    def start_span(self, *arguments: Any, **options: Any) -> Span:
        request = current_request.get()
        if request is not None:
            options["attributes"] = {**(options.get("attributes") or {}), **identity_attributes(request.identity)}
        try:
            span = self._tracer.start_span(*arguments, **options)
        except Exception:  # a processor of another vendor's: the request goes on without this span
            log_once("a SERVER span could not be started")
            return trace.INVALID_SPAN
        attributes = getattr(span, "_attributes", None)
        if type(attributes) is BoundedAttributes:
            attributes.__class__ = _SetOnce
        return span

    def start_as_current_span(self, *arguments: Any, **options: Any) -> Any:
        return self._tracer.start_as_current_span(*arguments, **options)


def _stamp(span: Span | None, request: RolloutRequest, method: str) -> None:
    """Another's SERVER span joins the rollout, so that it is stored with it. It has no name: our prefix is no route."""
    if span is not None:
        span.set_attributes(identity_attributes(request.identity))
        if request.span_name != method:
            span.update_name(request.span_name)


def _flushing_before_shutdown(send: Send) -> Send:
    """uvicorn ends the process by signal, past every exit handler: so what waits is written before."""

    async def send_after_flush(message: Message) -> None:
        if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            pipeline = active_pipeline()
            if pipeline is not None:
                await asyncio.to_thread(pipeline.close)
        await send(message)

    return send_after_flush
