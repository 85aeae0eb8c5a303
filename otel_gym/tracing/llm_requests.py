"""Keyword arguments of the OpenAI and Anthropic clients with what tells a server which agent and span a call is of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_gym.agent_identity import (
    PARENT_SESSION_HEADER,
    SESSION_FINAL_HEADER,
    SESSION_HEADER,
    AgentContext,
    current_agent_context,
)

REQUEST_ID_HEADER = "x-request-id"

# What Dynamo 1.2 knows; it answers 400 where one of the first three is missing or blank.
_REQUIRED = ("session_type_id", "session_id", "trajectory_id")
_BODY_FIELDS = (*_REQUIRED, "parent_trajectory_id", "trajectory_final")
# Arguments of messages.create that the OpenAI client refuses.
_ONLY_ANTHROPIC = ("system", "stop_sequences", "thinking")
# Of each the caller's own stays, and with it what belongs to it.
_SAID_TOGETHER = {
    PARENT_SESSION_HEADER: SESSION_HEADER,
    SESSION_FINAL_HEADER: SESSION_HEADER,
    "tracestate": "traceparent",
}


def instrument_llm_request(
    kwargs: Mapping[str, Any],
    ctx: AgentContext | None = None,
    mode: Literal["headers", "body"] = "headers",
    *,
    api: Literal["openai", "anthropic"] | None = None,
) -> dict[str, Any]:
    """New keyword arguments for ``chat.completions.create``, ``responses.create`` or ``messages.create``; ``kwargs``
    and what it holds stay as they are.

    ctx   the agent; default: that of ``with agent_context(…)``, without which none is told
    mode  "headers": ``x-dynamo-session-id`` and its kin, for Dynamo 1.3 and newer, and any other server. "body":
          ``nvext.agent_context`` in the body, for Dynamo 1.2 only: newer ones, and other servers, answer 400 to it
    api   whose client it is for: "anthropic" refuses mode="body", which its API answers 400 to; None looks for the
          arguments that only its client takes

    Adds to ``extra_headers`` an ``x-request-id``, new for each call, and the current span's ``traceparent``. A header
    or agent context that ``kwargs`` has already stays. ValueError for ids that a header cannot carry, for a body
    without what Dynamo 1.2 requires, and for a body of Anthropic's. Unlike what instrumented clients add by themselves,
    this goes to whichever host the client calls.
    """
    if mode not in ("headers", "body"):
        raise ValueError(f"mode={mode!r} is unknown: use 'headers' or 'body'")
    context = current_agent_context() if ctx is None else ctx
    if mode == "body":
        _refuse_anthropic(kwargs, api)
    added = {REQUEST_ID_HEADER: str(uuid.uuid4())}
    TraceContextTextMapPropagator().inject(added)
    if context is not None and mode == "headers":
        added |= context.headers()
    instrumented = {**kwargs, "extra_headers": _with_headers(kwargs.get("extra_headers"), added)}
    if context is not None and mode == "body":
        instrumented["extra_body"] = _with_context(kwargs.get("extra_body"), context)
    return instrumented


def _refuse_anthropic(kwargs: Mapping[str, Any], api: str | None) -> None:
    telling = next((name for name in _ONLY_ANTHROPIC if name in kwargs), None)
    if api == "anthropic" or (api is None and telling is not None):
        why = "api='anthropic'" if telling is None else f"{telling}= is an argument of its client"
        raise ValueError(
            f"mode='body' is not for Anthropic's API ({why}), which answers 400 to nvext: use mode='headers'"
        )


def _with_headers(theirs: Any, added: Mapping[str, str]) -> dict[str, Any]:
    own = dict(_mapping(theirs, "extra_headers"))
    known = {str(name).lower() for name in own}
    missing = {
        name: text for name, text in added.items() if name not in known and _SAID_TOGETHER.get(name, name) not in known
    }
    return {**own, **missing}


def _with_context(theirs: Any, context: AgentContext) -> dict[str, Any]:
    body = dict(_mapping(theirs, "extra_body"))
    extension = dict(_mapping(body.get("nvext"), "extra_body['nvext']"))
    if "agent_context" not in extension:
        extension["agent_context"] = _body_of(context)
    return {**body, "nvext": extension}


def _body_of(context: AgentContext) -> dict[str, Any]:
    said = context.as_mapping()
    missing = [name for name in _REQUIRED if not said.get(name, "").strip()]
    if missing:
        raise ValueError(
            f"mode='body' needs {', '.join(missing)} in the agent context: Dynamo 1.2 refuses a request without"
        )
    return {name: said[name] for name in _BODY_FIELDS if name in said}


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{name} is no mapping but {type(value).__name__}: nothing can be added to it")
