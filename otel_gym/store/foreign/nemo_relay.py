"""NeMo Relay, in its forms ``full`` and ``openinference``. Its form ``gen_ai`` is that of the conventions."""

from __future__ import annotations

from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.store.foreign import openinference
from otel_gym.store.foreign.answers import read_answer
from otel_gym.store.foreign.dialect import (
    AGENT_NAME,
    CHAT,
    EXECUTE_TOOL,
    INVOKE_AGENT,
    OPERATION,
    REQUEST_MODEL,
    RESPONSE_ID,
    TOOL_ARGUMENTS,
    TOOL_CALL_ID,
    TOOL_NAME,
    TOOL_RESULT,
    Attributes,
    ForeignDialect,
    put,
    text_of,
)
from otel_gym.store.json_text import parsed
from otel_gym.store.span import StoredSpan

_KIND = "nemo_relay.scope_type"
_OPERATIONS = {"llm": CHAT, "tool": EXECUTE_TOOL, "agent": INVOKE_AGENT}
_INPUT, _OUTPUT = "nemo_relay.start.input", "nemo_relay.end.output"


def _read(span: StoredSpan, attributes: Attributes) -> None:
    operation = _OPERATIONS.get(text_of(attributes, _KIND) or "")
    if operation is None:
        return
    attributes.setdefault(OPERATION, operation)
    if operation == CHAT:
        request = parsed(attributes.get(f"{_INPUT}.content"))
        read_answer(attributes, _fields(attributes, _OUTPUT), request if isinstance(request, dict) else {})
        openinference.read(span, attributes)
    elif operation == EXECUTE_TOOL:
        put(attributes, gen_ai__tool__name=span.name, gen_ai__tool__call__result=attributes.get(_OUTPUT))
        sent = _fields(attributes, _INPUT)
        if sent:
            attributes.setdefault(TOOL_ARGUMENTS, safe_json(sent))
    else:
        put(attributes, gen_ai__agent__name=span.name)


def _fields(attributes: Attributes, prefix: str) -> dict[str, Any]:
    """An object that came as one attribute a field, inner values as JSON."""
    start = prefix + "."
    return {
        name[len(start) :]: value if (inner := parsed(value)) is None else inner
        for name, value in attributes.items()
        if name.startswith(start)
    }


DIALECT = ForeignDialect(
    name="NeMo Relay",
    made_by="`nemo-relay` 0.10.4, forms `full`, `openinference` and `gen_ai`",
    is_made=lambda span: _KIND in span.attributes,
    renamed={
        **openinference.DIALECT.renamed,
        REQUEST_MODEL: ("nemo_relay.model_name", "llm.model_name"),
        TOOL_CALL_ID: ("nemo_relay.tool_call_id", "tool_call.id"),
    },
    read=_read,
    derived=(
        (OPERATION, f"`{_KIND}`: llm → `chat`, tool → `execute_tool`, agent → `invoke_agent`"),
        (f"{RESPONSE_ID}, usage, messages", f"the answer that `{_OUTPUT}.*` hold, one attribute a field"),
        (f"{TOOL_NAME}, {AGENT_NAME}", "the span's name"),
        (TOOL_ARGUMENTS, f"`{_INPUT}.*`, one attribute a field"),
        (TOOL_RESULT, f"`{_OUTPUT}`"),
        (names.DIALECT, f"by the form of `{_OUTPUT}.*`"),
        ("all else", "as OpenInference's"),
    ),
    lacks=(
        "HTTP status, the provider's request id, times of first chunk and first content",
        "in the form `gen_ai`: reasoning tokens, and the provider's own words for finish reasons",
    ),
)
