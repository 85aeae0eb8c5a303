"""The shapes that all dialects share: messages, parts, tool definitions.

A part maker returns None where the fields are not what the conventions' schema asks for; ``parts_of`` then keeps
the item as it came, under a type of its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from otel_gym.wire.parts.json_schema import is_draft_07

JsonObject = dict[str, Any]
Part = dict[str, Any]
PartReader = Callable[[JsonObject], list[Part] | Part | None]


@dataclass(slots=True)
class GenAiContent:
    """Values of the four opt-in content attributes; a list is empty where the exchange has none."""

    system_instructions: list[JsonObject] = field(default_factory=list)
    input_messages: list[JsonObject] = field(default_factory=list)
    output_messages: list[JsonObject] = field(default_factory=list)
    tool_definitions: list[JsonObject] = field(default_factory=list)


# Types that the conventions define: a part with one of them must have the fields that its schema asks for.
DEFINED_TYPES = frozenset(
    {
        "blob",
        "compaction",
        "file",
        "reasoning",
        "server_tool_call",
        "server_tool_call_response",
        "text",
        "tool_call",
        "tool_call_response",
        "uri",
    }
)

# The providers' words for the end of a generation → those of the conventions. Others stay as they are.
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "refusal": "content_filter",
}


# ── reading JSON ───────────────────────────────────────────────────────────────────────────────────────────────────


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def objects_of(value: Any) -> list[JsonObject]:
    return [item for item in items_of(value) if isinstance(item, dict)]


def object_of(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def known(**fields: Any) -> JsonObject:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def parsed_arguments(arguments: Any) -> Any:
    """Arguments sent as text: what the text says if it is JSON, else the text itself."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


# ── messages ───────────────────────────────────────────────────────────────────────────────────────────────────────


def message(role: Any, parts: list[Part], *, name: Any = None, finish_reason: Any = None) -> JsonObject:
    """A message; the conventions want a role, so where none was sent it is called ``unknown``."""
    return known(
        role=text_or_none(role) or "unknown",
        parts=parts,
        name=text_or_none(name),
        finish_reason=normal_finish_reason(finish_reason),
    )


def normal_finish_reason(reason: Any) -> str | None:
    return FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None


def parts_of(content: Any, readers: Mapping[str, PartReader]) -> list[Part]:
    """Message content (text, a list of items, or one item) → parts, each item by the reader for its type."""
    if isinstance(content, str):
        return [text_part(content)] if content else []
    parts: list[Part] = []
    for item in content if isinstance(content, list) else [content]:
        parts += _item_parts(item, readers)
    return parts


def _item_parts(item: Any, readers: Mapping[str, PartReader]) -> list[Part]:
    if item is None:
        return []
    if isinstance(item, str):
        return [text_part(item)]
    if not isinstance(item, dict):
        return [{"type": "unknown", "value": item}]
    kind = item.get("type")
    read = readers.get(kind) if isinstance(kind, str) else None
    parts = read(item) if read else None
    if not parts:
        return [own_part(item)]
    return parts if isinstance(parts, list) else [parts]


def own_part(item: JsonObject) -> Part:
    """An item that the conventions have no part for: its own type (``raw_…`` if that is taken) and fields."""
    kind = text_or_none(item.get("type")) or "unknown"
    return {**item, "type": f"raw_{kind}" if kind in DEFINED_TYPES else kind}


# ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def text_part(content: str) -> Part:
    return {"type": "text", "content": content}


def texts(kind: str, field_name: str) -> PartReader:
    """A reader of items that say one text in ``field_name``: a part of type ``kind`` with it as content."""

    def read(item: JsonObject) -> Part | None:
        content = item.get(field_name)
        return {"type": kind, "content": content} if isinstance(content, str) else None

    return read


def tool_call_part(call_id: Any, name: Any, arguments: Any) -> Part:
    call = known(type="tool_call", id=text_or_none(call_id), name=text_or_none(name), arguments=arguments)
    return call if "name" in call else own_part(call)


def tool_response_part(call_id: Any, response: Any, *, is_error: Any = None) -> Part:
    part = known(type="tool_call_response", id=text_or_none(call_id), is_error=is_error or None)
    part["response"] = response
    return part


def server_tool_call_part(call_id: Any, name: Any, call: JsonObject) -> Part:
    """A tool that the provider runs itself; ``call`` has a ``type``, as the schema asks."""
    part = known(type="server_tool_call", id=text_or_none(call_id), name=text_or_none(name), server_tool_call=call)
    return part if "name" in part else own_part(part)


def server_tool_response_part(call_id: Any, response: JsonObject) -> Part:
    return known(type="server_tool_call_response", id=text_or_none(call_id), server_tool_call_response=response)


def file_part(modality: str, file_id: Any) -> Part | None:
    return {"type": "file", "modality": modality, "file_id": file_id} if isinstance(file_id, str) else None


def blob_part(modality: str, content: Any, mime_type: Any = None) -> Part | None:
    """Media inline; ``content`` is base64."""
    if not isinstance(content, str):
        return None
    return known(type="blob", modality=modality, mime_type=text_or_none(mime_type), content=content)


def plain_text_blob_part(modality: str, text: Any, mime_type: Any = None) -> Part | None:
    if not isinstance(text, str):
        return None
    return blob_part(modality, base64.b64encode(text.encode("utf-8", "replace")).decode("ascii"), mime_type)


def url_part(modality: str, url: Any) -> Part | None:
    """Media by address: a ``uri``, or a ``blob`` where the address is the data itself (``data:``)."""
    if not isinstance(url, str):
        return None
    if url[:5].lower() != "data:":
        return {"type": "uri", "modality": modality, "uri": url}
    header, comma, content = url[5:].partition(",")
    if not comma:
        return None
    mime_type, *parameters = (part.strip() for part in header.split(";"))
    if "base64" not in (parameter.lower() for parameter in parameters):
        content = base64.b64encode(_percent_decoded(content)).decode("ascii")
    return blob_part(_modality(mime_type, modality), content, mime_type or None)


def _percent_decoded(text: str) -> bytes:
    return unquote_to_bytes(text.encode("utf-8", "replace"))


def _modality(mime_type: str, default: str) -> str:
    family = mime_type.partition("/")[0].lower()
    return family if family in ("image", "video", "audio") else default


_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "opus": "audio/opus"}


def input_audio_part(item: JsonObject) -> Part | None:
    """``{"input_audio": {"data", "format"}}``, as Chat Completions and Responses have it."""
    audio = object_of(item.get("input_audio"))
    return blob_part("audio", audio.get("data"), _AUDIO_TYPES.get(text_or_none(audio.get("format")) or ""))


def file_content_part(item: JsonObject) -> Part | None:
    """A file as the OpenAI APIs take it: by id, by address, or as a data URL."""
    by_id = file_part("document", item.get("file_id"))
    return by_id or url_part("document", item.get("file_url")) or _file_data_part(item.get("file_data"))


def _file_data_part(file_data: Any) -> Part | None:
    if isinstance(file_data, str) and file_data[:5].lower() == "data:":
        return url_part("document", file_data)
    return blob_part("document", file_data)


# ── tool definitions ───────────────────────────────────────────────────────────────────────────────────────────────


def function_definition(name: Any, description: Any, parameters: Any) -> JsonObject | None:
    """``parameters`` are JSON Schema of draft 07; others are kept as ``raw_parameters``."""
    if not isinstance(name, str):
        return None
    field_name = "parameters" if is_draft_07(parameters) else "raw_parameters"
    return known(type="function", name=name, description=text_or_none(description), **{field_name: parameters})


def other_definition(tool: JsonObject) -> JsonObject | None:
    """A tool that is no function: its type, name and description, and nothing else, since the definition of an
    MCP server holds its keys. A hosted tool without a name goes by its type, as it does in the traffic."""
    kind = tool.get("type")
    if not isinstance(kind, str):
        return None
    names = (tool.get("name"), tool.get("server_label"), tool.get("mcp_server_name"), kind)
    name = next(name for name in names if isinstance(name, str))
    # `function` is the conventions' own type; function_definition refused this one.
    kind = "raw_function" if kind == "function" else kind
    return known(type=kind, name=name, description=text_or_none(tool.get("description")))
