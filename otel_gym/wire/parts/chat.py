"""OpenAI Chat Completions → messages and parts.

System and developer messages stay input messages with their role. One output message a choice.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    items_of,
    message,
    object_of,
    objects_of,
    other_definition,
    parsed_arguments,
    parts_of,
    text_or_none,
    text_part,
    texts,
    tool_call_part,
    tool_response_part,
    url_part,
)


def content(request: JsonObject, response: JsonObject) -> GenAiContent:
    return GenAiContent(
        input_messages=[_input_message(sent) for sent in objects_of(request.get("messages"))],
        output_messages=[_output_message(choice) for choice in objects_of(response.get("choices"))],
        tool_definitions=list(_tool_definitions(request)),
    )


def _input_message(sent: JsonObject) -> JsonObject:
    role = sent.get("role")
    read = _RESULT_ROLES.get(role) if isinstance(role, str) else None
    parts = [read(sent)] if read else list(_said(sent))
    return message(role, parts, name=None if read else sent.get("name"))


def _output_message(choice: JsonObject) -> JsonObject:
    answer = object_of(choice.get("message"))
    role = text_or_none(answer.get("role")) or "assistant"
    return message(role, list(_said(answer)), finish_reason=choice.get("finish_reason"))


def _tool_result(sent: JsonObject) -> Part:
    return tool_response_part(sent.get("tool_call_id"), _result(sent.get("content")))


def _function_result(sent: JsonObject) -> Part:
    """The legacy role ``function``, which names the function and has no call id."""
    return {**tool_response_part(None, _result(sent.get("content"))), **_named(sent)}


def _result(value: Any) -> Any:
    return parts_of(value, CONTENT) if isinstance(value, list) else value


def _named(sent: JsonObject) -> JsonObject:
    return {"name": sent["name"]} if isinstance(sent.get("name"), str) else {}


_RESULT_ROLES = {"tool": _tool_result, "function": _function_result}


def _said(said: JsonObject) -> Iterator[Part]:
    """The parts of a message in the order in which a model makes them."""
    yield from _reasoning(said)
    yield from parts_of(said.get("content"), CONTENT)
    if isinstance(said.get("refusal"), str) and said["refusal"]:
        yield {"type": "refusal", "content": said["refusal"]}
    yield from parts_of(items_of(said.get("images")), CONTENT)
    if isinstance(said.get("audio"), dict):
        yield from parts_of({**said["audio"], "type": "audio"}, CONTENT)
    for call in objects_of(said.get("tool_calls")):
        yield _tool_call(call)
    if isinstance(said.get("function_call"), dict):
        yield _called(None, said["function_call"])


def _reasoning(said: JsonObject) -> Iterator[Part]:
    for field_name in ("reasoning_content", "reasoning"):
        text = said.get(field_name)
        if isinstance(text, str) and text:
            yield {"type": "reasoning", "content": text}
            return
    yield from parts_of(items_of(said.get("reasoning_details")), CONTENT)


def _tool_call(call: JsonObject) -> Part:
    custom = call.get("custom")
    if isinstance(custom, dict):
        return tool_call_part(call.get("id"), custom.get("name"), custom.get("input"))
    return _called(call.get("id"), object_of(call.get("function")))


def _called(call_id: Any, function: JsonObject) -> Part:
    return tool_call_part(call_id, function.get("name"), parsed_arguments(function.get("arguments")))


def _media(modality: str) -> PartReader:
    """``{"type": "image_url", "image_url": {"url": …}}``, or the address itself in place of the object."""

    def read(item: JsonObject) -> Part | None:
        address = item.get(f"{modality}_url")
        return url_part(modality, address.get("url") if isinstance(address, dict) else address)

    return read


def _audio(audio: JsonObject) -> list[Part]:
    """An answer in sound: its data, or its id where an earlier one is sent back; and its transcript."""
    sound = blob_part("audio", audio.get("data")) or file_part("audio", audio.get("id"))
    transcript = audio.get("transcript")
    parts = [text_part(transcript)] if isinstance(transcript, str) and transcript else []
    return [sound, *parts] if sound else parts


CONTENT: dict[str, PartReader] = {
    "text": texts("text", "text"),
    "refusal": texts("refusal", "refusal"),
    "thinking": texts("reasoning", "thinking"),
    "reasoning.text": texts("reasoning", "text"),
    "reasoning.summary": texts("reasoning", "summary"),
    "image_url": _media("image"),
    "video_url": _media("video"),
    "audio_url": _media("audio"),
    "input_audio": input_audio_part,
    "file": lambda item: file_content_part(object_of(item.get("file"))),
    "audio": _audio,
}


def _tool_definitions(request: JsonObject) -> Iterator[JsonObject]:
    for tool in objects_of(request.get("tools")):
        kind = tool.get("type")
        details = object_of(tool.get(kind)) if isinstance(kind, str) else {}
        definition = _function(object_of(tool.get("function"))) or other_definition({**details, **tool})
        if definition:
            yield definition
    for function in objects_of(request.get("functions")):
        definition = _function(function)
        if definition:
            yield definition


def _function(function: JsonObject) -> JsonObject | None:
    return function_definition(function.get("name"), function.get("description"), function.get("parameters"))
