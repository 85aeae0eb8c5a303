"""Whether OpenTelemetry's packages go together where they are of several releases: tried out, on a provider apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, StatusCode

from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.ids import GymIdGenerator
from otel_gym.tracing.sampler import GymSampler

Send = Callable[[dict[str, Any]], Awaitable[None]]

_SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "scheme": "http",
    "http_version": "1.1",
    "headers": [],
    "query_string": b"",
    "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 1),
}


class _Encoding(SpanProcessor):
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.lines.append(bytes(encode_span(span, None)))


def try_out() -> None:
    """Makes, ends and encodes what capture makes. Raises whatever does not fit."""
    processor = _Encoding()
    provider = TracerProvider(GymSampler(ALWAYS_ON), id_generator=GymIdGenerator(), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("otel_gym.trial")
    with tracer.start_as_current_span("outer", attributes={"gym.rollout.id": "1-0", "numbers": [1, 2]}) as outer:
        span = tracer.start_span("inner", links=[Link(outer.get_span_context())])
        span.set_attribute("key", "value")
        span.set_attributes({"key": "other value", "numbers": (1, 2)})
        span.add_event("event", {"key": "value"})
        span.add_link(outer.get_span_context(), {"key": "value"})
        span.record_exception(ValueError("trial"))
        span.set_status(StatusCode.ERROR, "trial")
        span.end()
    _serve(OpenTelemetryMiddleware(_answer, tracer_provider=provider, exclude_spans=["receive", "send"]))
    if len(processor.lines) != 3 or not all(processor.lines):
        raise RuntimeError(f"{len(processor.lines)} of 3 spans were made")


async def _answer(scope: dict[str, Any], receive: Any, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _serve(app: Any) -> None:
    """One request, without an event loop: nothing in it waits."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        pass

    request = app(dict(_SCOPE), receive, send)
    try:
        request.send(None)
    except StopIteration:
        return
    request.close()
    raise RuntimeError("a request did not end")
