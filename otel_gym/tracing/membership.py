"""Which spans are ours, and to which rollout a starting span belongs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.types import AttributeValue

from otel_gym.conventions import NEMO_ROLLOUT_ID, ROLLOUT_ID, RUN_ID, UNASSIGNED
from otel_gym.identity import Identity, current_identity, identity_from_baggage

GEN_AI_OPERATION = "gen_ai.operation.name"


def plain_attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """A span's attributes, as the dict below the SDK's wrappers where there is one.

    A look-up through the wrappers costs several times one in the dict.
    """
    attributes: Any = span._attributes
    return getattr(attributes, "_dict", attributes) or {}


def identity_of_start(attributes: Mapping[str, Any] | None, parent_context: Context | None) -> Identity:
    """First found wins: the span's own attributes, baggage, the parent span, our context variable."""
    attributes = attributes or {}
    sources = (
        Identity(_text(attributes.get(ROLLOUT_ID)), _text(attributes.get(RUN_ID))),
        identity_from_baggage(parent_context),
        _identity_of_parent(parent_context),
        current_identity(),
    )
    rollout_id = next((source.rollout_id for source in sources if source and source.rollout_id), None)
    run_id = next((source.run_id for source in sources if source and source.run_id), None)
    return Identity(rollout_id, run_id)


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
    return Identity(_rollout(attributes.get(ROLLOUT_ID)), _text(attributes.get(RUN_ID)))


def _rollout(value: Any) -> str | None:
    return None if value == UNASSIGNED else _text(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
