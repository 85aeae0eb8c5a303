"""The Anthropic client's own spans: one a call, around all its retries."""

from __future__ import annotations

from otel_gym import conventions as names
from otel_gym.store.foreign.dialect import (
    EXECUTE_TOOL,
    FINISH_REASONS,
    INVOKE_AGENT,
    OPERATION,
    TOOL_NAME,
    Attributes,
    ForeignDialect,
    has_scope,
    put,
)
from otel_gym.store.span import StoredSpan

_TOOL_SPAN = "anthropic.custom_tool_use"
_AGENT_SPAN = "anthropic.messages.tool_runner"


def _read(span: StoredSpan, attributes: Attributes) -> None:
    if span.name.startswith("anthropic.messages.") and OPERATION in attributes:
        attributes.setdefault(names.DIALECT, "messages")
    if span.name.startswith(_TOOL_SPAN):
        attributes.setdefault(OPERATION, EXECUTE_TOOL)
        put(attributes, gen_ai__tool__name=span.name[len(_TOOL_SPAN) :].strip() or None)
    elif span.name == _AGENT_SPAN:
        attributes.setdefault(OPERATION, INVOKE_AGENT)


DIALECT = ForeignDialect(
    name="Anthropic client",
    made_by="`anthropic` 2.14, by itself as soon as a TracerProvider is set",
    is_made=has_scope("com.anthropic.sdk"),
    renamed={
        FINISH_REASONS: ("anthropic.message.stop_reason",),
        names.REQUEST_ID: ("anthropic.request.id",),
    },
    read=_read,
    derived=(
        (OPERATION, f"`{_TOOL_SPAN} NAME` → `execute_tool`, `{_AGENT_SPAN}` → `invoke_agent`"),
        (TOOL_NAME, f"of the name of a span `{_TOOL_SPAN} NAME`"),
        (names.DIALECT, "`messages`"),
    ),
    lacks=(
        "what was said, tool calls and reasoning, unless the client is told to record content",
        "attempts: one span covers all retries; the time of first content (it has that of the first chunk)",
    ),
)
