"""OpenAI Responses → messages and parts.

The items of one turn of the model (reasoning, calls, its message) form one assistant message, in the input as in
the output; the outputs of parallel calls form one ``tool`` message. A finished response without a reason of its own
ended with ``tool_call`` if it asks its client for a call, else with ``stop``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from otel_gym.wire.parts.shapes import (
    GenAiContent,
    JsonObject,
    Part,
    PartReader,
    blob_part,
    file_content_part,
    file_part,
    function_definition,
    input_audio_part,
    known,
    message,
    object_of,
    objects_of,
    other_definition,
    parsed_arguments,
    parts_of,
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
        system_instructions=_instructions(request.get("instructions")),
        input_messages=_input_messages(request.get("input")),
        output_messages=list(_output_messages(response)),
        tool_definitions=list(_tool_definitions(request)),
    )


def _instructions(instructions: Any) -> list[Part]:
    """Text, or, where a prompt template made them, items whose content counts."""
    if not isinstance(instructions, list):
        return parts_of(instructions, CONTENT)
    return [part for item in objects_of(instructions) for part in parts_of(item.get("content"), CONTENT)]


def _input_messages(sent: Any) -> list[JsonObject]:
    if isinstance(sent, str):
        return [message("user", parts_of(sent, CONTENT))]
    return _grouped(_turn(item) for item in objects_of(sent))


def _output_messages(response: JsonObject) -> Iterator[JsonObject]:
    """All output is one message; none if there is no output."""
    items = objects_of(response.get("output"))
    parts = [part for item in items for part in _turn(item).parts]
    if items:
        yield message("assistant", parts, finish_reason=_finish_reason(response, parts))


def _finish_reason(response: JsonObject, parts: list[Part]) -> str | None:
    reason = text_or_none(object_of(response.get("incomplete_details")).get("reason"))
    if reason:
        return reason
    status = text_or_none(response.get("status"))
    if status == "completed":
        return "tool_call" if any(part["type"] == "tool_call" for part in parts) else "stop"
    return "error" if status == "failed" else None


@dataclass(slots=True)
class _Turn:
    """One item: who made it, its parts, and whether neighbours of the same role belong to the same message."""

    role: str
    parts: list[Part]
    joins: bool = True


def _turn(item: JsonObject) -> _Turn:
    kind = text_or_none(item.get("type"))
    role = text_or_none(item.get("role"))
    if kind in ("message", None):
        return _Turn(role or "unknown", parts_of(item.get("content"), CONTENT), joins=role == "assistant")
    return _Turn(role or ROLES.get(kind, "unknown"), parts_of(item, ITEMS))


def _grouped(turns: Iterable[_Turn]) -> list[JsonObject]:
    messages: list[JsonObject] = []
    open_role: str | None = None
    for turn in turns:
        if turn.joins and turn.role == open_role:
            messages[-1]["parts"] += turn.parts
        else:
            messages.append(message(turn.role, turn.parts))
        open_role = turn.role if turn.joins else None
    return messages


# ── items ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _function_call(item: JsonObject) -> Part:
    return tool_call_part(_call_id(item), item.get("name"), parsed_arguments(item.get("arguments")))


def _custom_tool_call(item: JsonObject) -> Part:
    return tool_call_part(_call_id(item), item.get("name"), item.get("input"))


def _built_in_call(item: JsonObject) -> Part:
    """A tool that the provider defines and the client runs: shell, computer, patches."""
    asked = next((item[name] for name in ("action", "operation", "actions") if item.get(name) is not None), None)
    return tool_call_part(_call_id(item), item["type"].removesuffix("_call"), asked)


def _call_id(item: JsonObject) -> str | None:
    return text_or_none(item.get("call_id")) or text_or_none(item.get("id"))


def _call_output(item: JsonObject) -> Part:
    output = item.get("output")
    return tool_response_part(item.get("call_id"), parts_of(output, CONTENT) if isinstance(output, list) else output)


def _reasoning(item: JsonObject) -> list[Part]:
    """The summaries, or the whole text where there is no summary; nothing (so: raw) where all is encrypted."""
    summary = [part["text"] for part in objects_of(item.get("summary")) if isinstance(part.get("text"), str)]
    whole = [part["text"] for part in objects_of(item.get("content")) if isinstance(part.get("text"), str)]
    return [{"type": "reasoning", "content": text} for text in summary or whole]


def _compaction(item: JsonObject) -> Part:
    return known(type="compaction", id=text_or_none(item.get("id")))


# Hosted tools → the fields that hold what came out; all others say what was asked for.
_HOSTED = {
    "code_interpreter_call": ("outputs",),
    "file_search_call": ("results",),
    "image_generation_call": ("result",),
    "mcp_call": ("output", "error"),
    "mcp_list_tools": ("tools", "error"),
    "web_search_call": ("results",),
}


def _hosted_call(item: JsonObject) -> list[Part]:
    kind = item["type"].removesuffix("_call")
    results = _HOSTED[item["type"]]
    asked = {name: value for name, value in item.items() if name not in ("id", *results)}
    call = server_tool_call_part(item.get("id"), text_or_none(item.get("name")) or kind, {**asked, "type": kind})
    came_out = known(**{name: item.get(name) for name in results})
    if not came_out:
        return [call]
    return [call, server_tool_response_part(item.get("id"), {**came_out, "type": kind})]


ITEMS: dict[str, PartReader] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "reasoning": _reasoning,
    "compaction": _compaction,
    **dict.fromkeys(("apply_patch_call", "computer_call", "local_shell_call", "shell_call"), _built_in_call),
    **dict.fromkeys(_HOSTED, _hosted_call),
    **dict.fromkeys(
        (
            "apply_patch_call_output",
            "computer_call_output",
            "custom_tool_call_output",
            "function_call_output",
            "local_shell_call_output",
            "shell_call_output",
        ),
        _call_output,
    ),
}

# Items carry no role. One that stands for what a client did is the tool's, the others are the model's.
ROLES = {kind: "tool" if read is _call_output else "assistant" for kind, read in ITEMS.items()}


# ── content ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _image(item: JsonObject) -> Part | None:
    return url_part("image", item.get("image_url")) or file_part("image", item.get("file_id"))


CONTENT: dict[str, PartReader] = {
    **dict.fromkeys(("input_text", "output_text", "summary_text", "text"), texts("text", "text")),
    "reasoning_text": texts("reasoning", "text"),
    "refusal": texts("refusal", "refusal"),
    "input_image": _image,
    "input_file": file_content_part,
    "input_audio": input_audio_part,
    "output_audio": lambda item: blob_part("audio", item.get("data")),
}


def _tool_definitions(request: JsonObject) -> Iterator[JsonObject]:
    for tool in objects_of(request.get("tools")):
        definition = _function(tool) if tool.get("type") == "function" else None
        definition = definition or other_definition(tool)
        if definition:
            yield definition


def _function(tool: JsonObject) -> JsonObject | None:
    return function_definition(tool.get("name"), tool.get("description"), tool.get("parameters"))
