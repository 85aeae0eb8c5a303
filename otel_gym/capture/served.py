"""A request that is served within a rollout, and whether what is current when one arrives belongs to it at all.

A keep-alive connection may start its next request in the context of the last one: CPython issue 140947, and servers
that pass a pipelined request on from where they end the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from otel_gym.identity import RequestIdentity
from otel_gym.tracing.current import context_of_texts
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.wire.exchange import DialectName

Scope = MutableMapping[str, Any]

_CONTRIB = "opentelemetry.instrumentation."


@dataclass(slots=True)
class RolloutRequest:
    """What the outer layer hands to the inner one, in the scope."""

    pipeline: Pipeline
    identity: RequestIdentity
    dialect: DialectName | None
    query_string: bytes
    span_name: str
    refused_id: str | None = None
    ended_ns: int | None = None
    # Until it has returned, which may be long after its last byte: background work runs in it.
    task: asyncio.Task[Any] | None = None

    def end(self) -> None:
        if self.ended_ns is None:
            self.ended_ns = time.time_ns()
            self.identity.is_over = True


# The request that this context serves, which may be over: see RequestIdentity.
current_request: ContextVar[RolloutRequest | None] = ContextVar("otel_gym_request", default=None)


def outer_span_of(is_leftover: bool) -> Span | None:
    """The span that surrounds this request, if it is one of this request and not a leftover."""
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    if not is_leftover:
        return span
    # Another's instrumentation may have begun this request's own span already.
    request = current_request.get()
    ended_ns = request.ended_ns if request is not None else None
    started_ns = getattr(span, "start_time", None) or 0
    is_new = getattr(span, "kind", None) is SpanKind.SERVER and started_ns >= (ended_ns or 0)
    return span if is_new else None


def is_in_leftover_context() -> bool:
    """Whether the context is that of an earlier request, and this is not work that it left to do in the background."""
    request = current_request.get()
    if request is None or request.ended_ns is None:
        return False
    return request.task is None or request.task is not current_task()


def is_span_of_another_request(scope: Scope) -> bool:
    """Whether the request names another parent than the current span has, which then began in a leftover context.

    Another's instrumentation that stands around us joins what is current, whatever the request says.
    """
    span = trace.get_current_span()
    if not span.is_recording() or getattr(span, "kind", None) is SpanKind.SERVER:
        return False
    header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    told = trace.get_current_span(context_of_texts({"traceparent": header.decode("latin-1")})).get_span_context()
    current, parent = span.get_span_context(), getattr(span, "parent", None)
    if not told.is_valid or told.trace_id != current.trace_id:
        return told.is_valid
    is_contribs = getattr(getattr(span, "instrumentation_scope", None), "name", "").startswith(_CONTRIB)
    return is_contribs and parent is not None and told.span_id not in (current.span_id, parent.span_id)


def current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # another event loop's
        return None
