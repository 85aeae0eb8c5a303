"""What a foreign dialect of span attributes is, and the values that all of them need read.

A dialect is a table of names, ours from theirs, and one function for what no renaming says. Neither invents: a field
that a span does not tell stays absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from otel_gym.content import safe_json
from otel_gym.store.span import StoredSpan

Attributes = dict[str, Any]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
STREAM = "gen_ai.request.stream"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
CONVERSATION_ID = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
ERROR_TYPE = "error.type"

CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"


@dataclass(frozen=True, slots=True)
class ForeignDialect:
    """``renamed``: our name → theirs, of which the first that is there wins. ``read`` changes the attributes in place.

    ``made_by`` says whose spans were read when this was written, ``derived`` what ``read`` and ``gather`` do in words,
    ``lacks`` what these spans cannot tell. ``gather`` reads what several spans of a rollout tell together.
    """

    name: str
    made_by: str
    is_made: Callable[[StoredSpan], bool]
    renamed: Mapping[str, tuple[str, ...]]
    read: Callable[[StoredSpan, Attributes], None]
    derived: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    gather: Callable[[Sequence[StoredSpan]], list[StoredSpan]] | None = None


def has_scope(*beginnings: str) -> Callable[[StoredSpan], bool]:
    return lambda span: span.scope_name is not None and span.scope_name.startswith(beginnings)


def rename(attributes: Attributes, renamed: Mapping[str, tuple[str, ...]]) -> None:
    """Gives each of our names its value from theirs, where it has none."""
    for ours, theirs in renamed.items():
        if ours not in attributes:
            value = next((attributes[name] for name in theirs if attributes.get(name) is not None), None)
            if value is not None:
                attributes[ours] = value


def text_of(attributes: Mapping[str, Any], name: str) -> str | None:
    value = attributes.get(name)
    return value if isinstance(value, str) else None


def count_of(value: Any) -> int | None:
    """A count that may have come as a text or as a double."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def put(attributes: Attributes, **named: Any) -> None:
    """Values by our names, with ``__`` for dots; None puts nothing, and what is there stays."""
    for name, value in named.items():
        if value is not None:
            attributes.setdefault(name.replace("__", "."), value)


def put_json(attributes: Attributes, name: str, value: Iterable[Any] | None) -> None:
    """A list as JSON text, as our own spans have it; an empty one is not there."""
    entries = list(value or ())
    if entries and name not in attributes:
        attributes[name] = safe_json(entries)


def with_attributes(span: StoredSpan, **changes: Any) -> StoredSpan:
    """A copy: spans are shared by those who read them."""
    return replace(span, attributes={**span.attributes, **{n.replace("__", "."): v for n, v in changes.items()}})
