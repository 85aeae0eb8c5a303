"""The headers that tell a server which rollout, run and span a request belongs to."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled

from otel_gym.agent_identity import SESSION_HEADER, current_agent_context
from otel_gym.capture.instrumentors.hosts import is_allowed
from otel_gym.conventions import ROLLOUT_ID, RUN_ID
from otel_gym.identity import baggage_of, identity_from_baggage_header
from otel_gym.tracing.current import restore, texts_of
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_of_start
from otel_gym.tracing.pipeline import active_pipeline

Headers = MutableMapping[str, str]


@contextmanager
def told(host: str | None, headers: Headers) -> Iterator[None]:
    """Within ``with`` a request to ``host`` carries ``traceparent``, ``tracestate`` and ``baggage``, as far as known,
    and the headers of the current agent context.

    What the request carries already stays as it is (a client that traces itself names its own span), unless it is what
    the request that is served here came with; its baggage is given the ids that it lacks. Nothing is told to a host
    that is not allowed, and by what OpenTelemetry sends itself; of a rollout nothing outside of one. Afterwards the
    headers are what they were: a redirect may lead to another host.
    """
    context, added = _told(host, headers)
    if context is None and not added:
        yield
        return
    before = {name: headers.get(name) for name in added}
    headers.update(added)
    # Another's instrumentation of this client takes its baggage from the context.
    token = None if context is None else otel_context.attach(context)
    try:
        yield
    finally:
        if token is not None:
            restore(token)
        _put_back(headers, added, before)


def headers_for(host: str | None, headers: Headers) -> dict[str, str]:
    """The headers that a request to ``host`` lacks, where they can only be added for good."""
    return _told(host, headers)[1]


def _told(host: str | None, headers: Headers) -> tuple[Context | None, dict[str, str]]:
    """The context of the request, where it is ours to touch, and the headers that it lacks."""
    try:
        context = _context_for(host)
        added = {} if context is None or host is None else _missing(context, headers, host)
    except Exception:
        log_once("a request could not be told of its rollout")
        context, added = None, {}
    try:
        return context, {**added, **_agent_headers(host, headers)}
    except Exception:
        log_once("a request could not be told of its agent context")
        return context, added


def _agent_headers(host: str | None, headers: Headers) -> dict[str, str]:
    """Those of the current agent context; a request that names its session keeps it."""
    agent, pipeline = current_agent_context(), active_pipeline()
    if agent is None or pipeline is None or host is None or SESSION_HEADER in headers:
        return {}
    if not (is_http_instrumentation_enabled() and is_allowed(host, pipeline.settings.propagate_hosts)):
        return {}
    return agent.headers()


def _context_for(host: str | None) -> Context | None:
    """The current context with the ids in its baggage, or without them for a host that is not allowed.

    None where a request is not ours to touch.
    """
    pipeline = active_pipeline()
    if pipeline is None or not is_http_instrumentation_enabled():
        return None
    context = otel_context.get_current()
    identity = identity_of_start(None, context)
    if identity.rollout_id is None:
        return None
    if host is not None and is_allowed(host, pipeline.settings.propagate_hosts):
        return baggage_of(pipeline.identity(*identity), context)
    for name in (ROLLOUT_ID, RUN_ID):
        context = baggage.remove_baggage(name, context)
    return context


def _missing(context: Context, headers: Headers, host: str) -> dict[str, str]:
    if baggage.get_baggage(ROLLOUT_ID, context) is None:  # not allowed
        return {}
    texts = texts_of(context)
    if "traceparent" in headers and not _is_relayed(headers["traceparent"], context):
        texts.pop("traceparent", None)
        texts.pop("tracestate", None)
    theirs = headers.get("baggage")
    if theirs:
        texts["baggage"] = theirs if _names_a_rollout(theirs) else f"{theirs},{_ids_of(context)}"
        if texts["baggage"] == theirs:
            del texts["baggage"]
    return texts


def _is_relayed(traceparent: str, context: Context) -> bool:
    """Whether it came with the request that is served: a relay that hands on the headers that it was sent."""
    parent = getattr(trace.get_current_span(context), "parent", None)
    return parent is not None and f"-{parent.trace_id:032x}-{parent.span_id:016x}-" in traceparent


def _names_a_rollout(header: str) -> bool:
    identity = identity_from_baggage_header(header)
    return identity is not None and identity.rollout_id is not None


def _ids_of(context: Context) -> str:
    ids = Context()
    for name in (ROLLOUT_ID, RUN_ID):
        text = baggage.get_baggage(name, context)
        if text is not None:
            ids = baggage.set_baggage(name, text, ids)
    return texts_of(ids)["baggage"]


def _put_back(headers: Headers, added: dict[str, str], before: dict[str, str | None]) -> None:
    for name, text in added.items():
        if headers.get(name) != text:  # another's by now
            continue
        if before[name] is None:
            headers.pop(name, None)
        else:
            headers[name] = before[name] or ""
