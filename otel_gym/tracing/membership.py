"""Which spans are ours, and to which rollout a starting span belongs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import Attributes, AttributeValue

from otel_gym.agent_identity import current_agent_context
from otel_gym.conventions import NEMO_ROLLOUT_ID, ROLLOUT_ID, RUN_ID, UNASSIGNED
from otel_gym.id_rules import rollout_id_of_session
from otel_gym.identity import Identity, current_identity, identity_from_baggage, is_leftover
from otel_gym.tracing.logs import log_once

GEN_AI_OPERATION = "gen_ai.operation.name"


def plain_attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """A span's attributes, as the dict below the SDK's wrappers where there is one.

    A look-up through the wrappers costs several times one in the dict.
    """
    attributes: Any = span._attributes
    return getattr(attributes, "_dict", attributes) or {}


def identity_of_start(
    attributes: Mapping[str, Any] | None, parent_context: Context | None, kind: SpanKind | None = None
) -> Identity:
    """First found wins: the span's own attributes, baggage, the parent span, our context variable. The session of an
    agent context stands in for a rollout that none of them names.
    """
    said, current = _said(attributes or {}), current_identity()
    if kind is SpanKind.SERVER and is_leftover(current):
        return said
    sources = (said, identity_from_baggage(parent_context), _identity_of_parent(parent_context), current)
    rollout_id = next((source.rollout_id for source in sources if source and source.rollout_id), None)
    run_id = next((source.run_id for source in sources if source and source.run_id), None)
    return Identity(rollout_id or _rollout_id_of_agent(), run_id)


def _rollout_id_of_agent() -> str | None:
    """As the capture of its calls files them, which sees the session in their headers."""
    context = current_agent_context()
    session_id = None if context is None else context.root_session_id
    return None if session_id is None else rollout_id_of_session(session_id)


class _Asked(threading.local):
    """What the last span of this thread that a sampler of ours was asked for says of its rollout, before any limit."""

    trace_id = 0
    identity = Identity()


_asked = _Asked()


def remember_identity(trace_id: int, attributes: Attributes) -> None:
    """For the span that starts next: its attributes may be cut when the processor sees them."""
    if attributes and (ROLLOUT_ID in attributes or RUN_ID in attributes):
        _asked.trace_id, _asked.identity = trace_id, _said(attributes)


def whole_identity_of_start(
    span: ReadableSpan, parent_context: Context | None, parent: Mapping[str, Any] | None
) -> Identity:
    """``identity_of_start`` where a limit may have cut or dropped attributes; ``parent`` holds the parent's own ids.

    An id as long as the limit counts only where something that is not cut begins with it: else two rollouts could
    become one.
    """
    limit = length_limit(span)
    attributes = plain_attributes(span)
    if limit is None or (span.kind is SpanKind.SERVER and is_leftover(current_identity())):
        return identity_of_start(attributes, parent_context, span.kind)
    asked = _asked.identity if _asked.trace_id == span.context.trace_id else Identity()
    context = (identity_from_baggage(parent_context), _said(parent or {}), current_identity())
    rollout_ids, run_ids = zip(asked, *filter(None, context), strict=True)
    rollout_id, run_id = _said(attributes)
    return Identity(_whole(rollout_id, limit, rollout_ids) or _rollout_id_of_agent(), _whole(run_id, limit, run_ids))


def length_limit(span: ReadableSpan) -> int | None:
    """Texts in the span's attributes are cut at this length."""
    return getattr(span._attributes, "max_value_len", None)


def _whole(text: str | None, limit: int, candidates: Sequence[str | None]) -> str | None:
    if text and len(text) < limit:
        return text
    known = (candidate for candidate in candidates if candidate and candidate != UNASSIGNED)
    found = next((candidate for candidate in known if candidate.startswith(text or "")), None)
    if found is None and text:
        log_once("an id is as long as the limit of attributes and may be cut: it is not used", with_traceback=False)
    return found


# One for each message of a request and its answer, by OpenTelemetry's instrumentation of ASGI: two of three spans of a
# traced server, of which none says anything that its SERVER span does not.
_ASGI_MESSAGES = (" http send", " http receive", " websocket send", " websocket receive")


def is_asgi_message(name: str, kind: SpanKind | None, attributes: Attributes) -> bool:
    """Whether a starting span stands for one ASGI message: never stored, not even within a rollout.

    ``name`` may be anything: programs say what they like.
    """
    if kind is not SpanKind.INTERNAL or attributes or not isinstance(name, str):
        return False
    return name.endswith(_ASGI_MESSAGES)


def is_gym_span(attributes: Mapping[str, Any] | None, identity: Identity) -> bool:
    """Has a rollout id in its context, or a ``gym.*`` or ``gen_ai.operation.name`` attribute at its start.

    Other spans of the process (SQL, health checks) are not stored.
    """
    if identity.rollout_id is not None:
        return True
    if not attributes:
        return False
    return GEN_AI_OPERATION in attributes or any(name.startswith("gym.") for name in attributes)


@lru_cache(maxsize=1024)
def identity_attributes(identity: Identity) -> Mapping[str, AttributeValue]:
    """The ids as attributes; ``unassigned`` where there is no rollout."""
    rollout_id = identity.rollout_id
    attributes: dict[str, AttributeValue] = {ROLLOUT_ID: rollout_id or UNASSIGNED}
    if rollout_id:
        attributes[NEMO_ROLLOUT_ID] = rollout_id
    if identity.run_id:
        attributes[RUN_ID] = identity.run_id
    return MappingProxyType(attributes)


def _identity_of_parent(parent_context: Context | None) -> Identity | None:
    attributes = getattr(trace.get_current_span(parent_context), "attributes", None)
    if not attributes:
        return None
    identity = _said(attributes)
    return identity._replace(rollout_id=None) if identity.rollout_id == UNASSIGNED else identity


def _said(attributes: Mapping[str, Any]) -> Identity:
    return Identity(_text(attributes.get(ROLLOUT_ID)), _text(attributes.get(RUN_ID)))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
