"""Anthropic Messages → messages and parts.

Tool results stay in the user message that carries them, as ``tool_call_response``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from otel_gym.wire.parts.shapes import (
    GenAiContent,
    JsonObject,
    Part,
    PartReader,
    blob_part,
    file_part,
    function_definition,
    message,
    object_of,
    objects_of,
    other_definition,
    parts_of,
    plain_text_blob_part,
    server_tool_call_part,
    server_tool_response_part,
    text_or_none,
    texts,
    tool_call_part,
    tool_response_part,
    url_part,
)


def content(request: JsonObject, response: JsonObject) -> GenAiContent:
    return GenAiContent(
        system_instructions=parts_of(request.get("system"), {"text": texts("text", "text")}),
        input_messages=[
            message(sent.get("role"), parts_of(sent.get("content"), BLOCKS))
            for sent in objects_of(request.get("messages"))
        ],
        output_messages=list(_output_messages(response)),
        tool_definitions=list(_tool_definitions(request)),
    )


def _output_messages(response: JsonObject) -> Iterator[JsonObject]:
    if isinstance(response.get("content"), list):
        role = text_or_none(response.get("role")) or "assistant"
        yield message(role, parts_of(response["content"], BLOCKS), finish_reason=response.get("stop_reason"))


SourceReader = Callable[[str, JsonObject], "list[Part] | Part | None"]

_SOURCES: dict[str, SourceReader] = {
    "base64": lambda modality, source: blob_part(modality, source.get("data"), source.get("media_type")),
    "text": lambda modality, source: plain_text_blob_part(modality, source.get("data"), source.get("media_type")),
    "url": lambda modality, source: url_part(modality, source.get("url")),
    "file": lambda modality, source: file_part(modality, source.get("file_id")),
}


def _nested(_modality: str, source: JsonObject) -> list[Part]:
    return parts_of(source.get("content"), _MEDIA)


def _media(modality: str, sources: Mapping[str, SourceReader]) -> PartReader:
    """A block that holds media: inline, by address, or as the id of a file."""

    def read(block: JsonObject) -> list[Part] | Part | None:
        source = object_of(block.get("source"))
        kind = source.get("type")
        read_source = sources.get(kind) if isinstance(kind, str) else None
        return read_source(modality, source) if read_source else None

    return read


# What a tool result and a document may hold. Not all blocks, so that nothing recurses.
_MEDIA: dict[str, PartReader] = {
    "text": texts("text", "text"),
    "image": _media("image", _SOURCES),
}
_RESULT: dict[str, PartReader] = {**_MEDIA, "document": _media("document", {**_SOURCES, "content": _nested})}


def _tool_use(block: JsonObject) -> Part:
    return tool_call_part(block.get("id"), block.get("name"), block.get("input"))


def _tool_result(block: JsonObject) -> Part:
    result = block.get("content")
    response = parts_of(result, _RESULT) if isinstance(result, list) else result
    return tool_response_part(block.get("tool_use_id"), response, is_error=block.get("is_error") is True)


def _server_tool_use(block: JsonObject) -> Part:
    call = {"type": text_or_none(block.get("name")) or "unknown", "input": block.get("input")}
    return server_tool_call_part(block.get("id"), block.get("name"), call)


def _mcp_tool_use(block: JsonObject) -> Part:
    call = {"type": "mcp", "server_name": block.get("server_name"), "input": block.get("input")}
    return server_tool_call_part(block.get("id"), block.get("name"), call)


def _server_tool_result(block: JsonObject) -> Part:
    result = {"type": block["type"].removesuffix("_tool_result"), "content": block.get("content")}
    if block.get("is_error") is True:
        result["is_error"] = True
    return server_tool_response_part(block.get("tool_use_id"), result)


def _compaction(block: JsonObject) -> Part | None:
    summary = block.get("content")
    return {"type": "compaction", "content": summary} if summary is None or isinstance(summary, str) else None


BLOCKS: dict[str, PartReader] = {
    **_RESULT,
    "thinking": texts("reasoning", "thinking"),
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _server_tool_use,
    "mcp_tool_use": _mcp_tool_use,
    "container_upload": lambda block: file_part("document", block.get("file_id")),
    "compaction": _compaction,
    **dict.fromkeys(
        (
            "bash_code_execution_tool_result",
            "code_execution_tool_result",
            "mcp_tool_result",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "web_fetch_tool_result",
            "web_search_tool_result",
        ),
        _server_tool_result,
    ),
}


def _tool_definitions(request: JsonObject) -> Iterator[JsonObject]:
    for tool in objects_of(request.get("tools")):
        definition = _client_tool(tool) if _is_client_tool(tool) else other_definition(tool)
        if definition:
            yield definition


def _is_client_tool(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") in (None, "custom")


def _client_tool(tool: JsonObject) -> JsonObject | None:
    return function_definition(tool.get("name"), tool.get("description"), tool.get("input_schema"))
