"""Which attribute of a span, or of an event, holds which field of an ATIF document.

The tables are read both ways: ``attributes_of`` by the import, ``fields_of`` by the view that gives the document back.
What a document says by an empty value (null, "", [], {}) stands in ``gym.atif.empty_fields``, since an attribute that
is absent means that nothing was said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from otel_gym import conventions as names
from otel_gym.content import known
from otel_gym.wire.items.shapes import Item, compact_json, objects_of, text_part

Json = dict[str, Any]

CALL_ID = "gen_ai.tool.call.id"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
CALL_RESULT = "gen_ai.tool.call.result"
INPUT_TOKENS = "gen_ai.usage.input_tokens"


class Field(NamedTuple):
    """``path`` is dotted. ``kind``: a value as it is, ``json`` as JSON text, of ``text`` and ``number`` only such."""

    path: str
    attribute: str
    kind: Literal["plain", "json", "text", "number"] = "plain"


DOCUMENT = (
    Field("schema_version", names.ATIF_SCHEMA_VERSION),
    Field("session_id", "gen_ai.conversation.id"),
    Field("trajectory_id", names.ATIF_TRAJECTORY_ID),
    Field("agent.name", "gen_ai.agent.name"),
    Field("agent.version", "gen_ai.agent.version"),
    Field("agent.model_name", "gen_ai.request.model"),
    Field("agent.tool_definitions", names.ATIF_TOOL_DEFINITIONS, "json"),
    Field("agent.extra", names.ATIF_AGENT_EXTRA, "json"),
    Field("notes", names.ATIF_NOTES),
    Field("continued_trajectory_ref", names.ATIF_CONTINUED_REF),
    Field("extra", names.ATIF_EXTRA, "json"),
)
# On the last turn of an agent.
TOTALS = (
    Field("final_metrics.total_prompt_tokens", names.ATIF_FINAL_PROMPT_TOKENS),
    Field("final_metrics.total_completion_tokens", names.ATIF_FINAL_COMPLETION_TOKENS),
    Field("final_metrics.total_cached_tokens", names.ATIF_FINAL_CACHED_TOKENS),
    Field("final_metrics.total_cost_usd", names.AGENT_TOTAL_COST_USD),
    Field("final_metrics.total_steps", names.ATIF_FINAL_STEPS),
    Field("final_metrics.extra", names.ATIF_FINAL_EXTRA, "json"),
)
STEP = (
    Field("timestamp", names.ATIF_TIMESTAMP),
    Field("llm_call_count", names.ATIF_LLM_CALL_COUNT),
    Field("is_copied_context", names.ATIF_IS_COPIED),
    Field("extra", names.ATIF_EXTRA, "json"),
)
GENERATION = (
    Field("model_name", "gen_ai.response.model"),
    Field("reasoning_effort", "gen_ai.request.reasoning.level", "text"),
    Field("reasoning_effort", names.ATIF_REASONING_EFFORT, "number"),
    Field("metrics.prompt_tokens", INPUT_TOKENS),
    Field("metrics.completion_tokens", "gen_ai.usage.output_tokens"),
    Field("metrics.cached_tokens", "gen_ai.usage.cache_read.input_tokens"),
    Field("metrics.cost_usd", names.COST_USD),
    Field("metrics.prompt_token_ids", names.PROMPT_TOKEN_IDS),
    Field("metrics.completion_token_ids", names.COMPLETION_TOKEN_IDS),
    Field("metrics.logprobs", names.LOGPROBS),
    Field("metrics.extra", names.ATIF_METRICS_EXTRA, "json"),
)
CALL = (
    Field("tool_call_id", CALL_ID),
    Field("function_name", "gen_ai.tool.name"),
    Field("arguments", "gen_ai.tool.call.arguments", "json"),
    Field("extra", names.ATIF_EXTRA, "json"),
)
RESULT = (
    Field("source_call_id", CALL_ID),
    Field("subagent_trajectory_ref", names.ATIF_RESULT_SUBAGENT_REF, "json"),
    Field("extra", names.ATIF_RESULT_EXTRA, "json"),
)

# Fields that are kept as one JSON text: what is inside them is the writer's own.
_WHOLE = frozenset(
    field.path.rpartition(".")[2]
    for field in (*DOCUMENT, *TOTALS, *STEP, *GENERATION, *CALL, *RESULT)
    if field.kind == "json"
)


def attributes_of(part: Mapping[str, Any], table: Iterable[Field]) -> dict[str, Any]:
    """The attributes of what a part of a document says; empty values are in ``empty_fields``."""
    found = ((field, value_at(part, field.path)) for field in table)
    return {
        field.attribute: compact_json(value) if field.kind == "json" else value
        for field, value in found
        if not _is_empty(value) and _is_of_kind(value, field.kind)
    }


def fields_of(attributes: Mapping[str, Any], table: Iterable[Field]) -> Json:
    """The part of a document that the attributes were made from, without its empty values."""
    part: Json = {}
    for field in table:
        value = attributes.get(field.attribute)
        if value is not None:
            put(part, field.path, json.loads(value) if field.kind == "json" else value)
    return part


def empty_fields(part: Any, path: str = "") -> Iterator[str]:
    """``metrics.cost_usd=null``, ``tool_calls=[]``: the fields that are there, and say nothing."""
    if _is_empty(part):
        yield f"{path}={compact_json(part)}"
        return
    if path.rpartition(".")[2] in _WHOLE:
        return
    inside = part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list) else ()
    for name, value in inside:
        yield from empty_fields(value, f"{path}.{name}" if path else str(name))


def put_empty_fields(part: Json, empty: Iterable[str]) -> None:
    for entry in empty:
        path, _, value = entry.partition("=")
        put(part, path, json.loads(value))


def value_at(part: Any, path: str) -> Any:
    for name in path.split("."):
        part = part.get(name) if isinstance(part, Mapping) else None
    return part


def put(part: Any, path: str, value: Any) -> None:
    """Sets the value at a dotted path; objects on the way are made, entries of lists are not."""
    *way, last = path.split(".")
    for name in way:
        if isinstance(part, list):
            if not (name.isdigit() and int(name) < len(part)):
                return
            part = part[int(name)]
        else:
            part = part.setdefault(name, {})
    if isinstance(part, dict):
        part[last] = value


def item_parts(role: str, content: Any) -> list[Item]:
    """A text, or the parts of a message, as parts of a Responses item. A file is referred to by its path or URL."""
    if isinstance(content, str):
        return [text_part(role, content)] if content else []
    return [_item_part(role, part) for part in objects_of(content)]


def atif_parts(parts: Any) -> list[Json]:
    """The same back; a part that has no file and no text is none of ATIF's."""
    return [part for part in map(_atif_part, objects_of(parts)) if part is not None]


def text_of_parts(parts: Any) -> str:
    return "".join(part["text"] for part in objects_of(parts) if isinstance(part.get("text"), str))


def genai_tools(definitions: Any) -> list[Json] | None:
    """Tools of Chat Completions as the GenAI conventions have them, if all of them are such."""
    if not definitions or not all(map(_is_function, definitions)):
        return None
    return [{"type": "function", **definition["function"]} for definition in definitions]


def atif_tools(tools: Iterable[Json]) -> list[Json]:
    return [
        {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        for tool in tools
    ]


def _is_function(definition: Json) -> bool:
    function = definition.get("function")
    if definition != {"type": "function", "function": function} or not isinstance(function, dict):
        return False
    return isinstance(function.get("name"), str) and "type" not in function


def _item_part(role: str, part: Json) -> Item:
    source = part.get("source") or {}
    if part["type"] == "text":
        return text_part(role, part["text"])
    kind, url = ("input_image", "image_url") if part["type"] == "image" else ("input_audio", "audio_url")
    return known(
        {
            "type": kind,
            url: source.get("path"),
            "media_type": source.get("media_type"),
            "duration_sec": source.get("duration_sec"),
        }
    )


def _atif_part(part: Item) -> Json | None:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    kind, url = ("audio", "audio_url") if part.get("type") == "input_audio" else ("image", "image_url")
    if not isinstance(part.get(url), str) or not isinstance(part.get("media_type"), str):
        return None
    source = {"media_type": part["media_type"], "path": part[url]}
    if "duration_sec" in part:
        source["duration_sec"] = part["duration_sec"]
    return {"type": kind, "source": source}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _is_of_kind(value: Any, kind: str) -> bool:
    is_text = isinstance(value, str)
    return is_text if kind == "text" else not is_text if kind == "number" else True
