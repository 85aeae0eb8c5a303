"""A line of a NeMo Gym capture file → the record that NeMo Gym's own reader gives of it.

Where that reader is stricter than ours (it counts the line as unreadable), or says less (arguments that are no text
and no object), so is this: the records of a capture file and those that NeMo Gym attached itself can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from otel_gym.records.model_call import ModelCallRecord, ToolCall, build_model_call_record
from otel_gym.wire.tool_calls import RAW_ARGUMENTS, tool_calls

Json = dict[str, Any]


class CaptureLineError(ValueError):
    """A line that is an object, and no record; the text says which field is wrong."""


def record_of_capture_line(line: Mapping[str, Any], call_index: int) -> ModelCallRecord:
    """The record of one line. CaptureLineError."""
    response = line.get("response")
    if isinstance(response, dict):
        _check_lists(response)
    try:
        record = build_model_call_record(line, call_index)
    except ValidationError as problem:
        raise CaptureLineError(_said(problem)) from None
    if isinstance(response, dict) and any(RAW_ARGUMENTS in call.arguments for call in record.tool_calls or ()):
        return record.model_copy(update={"tool_calls": _tool_calls(response)})
    return record


def _said(problem: ValidationError) -> str:
    first = problem.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _check_lists(response: Json) -> None:
    """What the reader walks through must be something to walk through."""
    for item in _objects(response.get("output")):
        if item.get("type") == "reasoning":
            _check_list(item, "summary")
    if not isinstance(response.get("output"), list):
        for message in _messages(response):
            _check_list(message, "tool_calls")


def _check_list(holder: Json, name: str) -> None:
    value = holder.get(name)
    if value and not isinstance(value, list | str | dict):
        raise CaptureLineError(f"response: {name} should be a list")


def _tool_calls(response: Json) -> list[ToolCall]:
    """Arguments that are neither text nor object are none."""
    shown = {**response}
    for name, items in (("output", response.get("output")), ("choices", response.get("choices"))):
        if isinstance(items, list):
            shown[name] = [_without_bare_arguments(item) for item in items]
    return [ToolCall(call_id=call.call_id, name=call.name, arguments=call.arguments) for call in tool_calls(shown)]


def _without_bare_arguments(item: Any) -> Any:
    """Of a Responses item, a choice with its message, a call, or its function."""
    if isinstance(item, list):
        return [_without_bare_arguments(part) for part in item]
    if not isinstance(item, dict):
        return item
    arguments = item.get("arguments")
    kept = {**item, "arguments": arguments if isinstance(arguments, str | dict) else None}
    return kept | {name: _without_bare_arguments(item[name]) for name in _HOLDERS if name in item}


_HOLDERS = ("message", "tool_calls", "function")


def _messages(response: Json) -> Iterator[Json]:
    for choice in _objects(response.get("choices")):
        message = choice.get("message")
        if isinstance(message, dict):
            yield message


def _objects(items: Any) -> Iterator[Json]:
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, dict))
