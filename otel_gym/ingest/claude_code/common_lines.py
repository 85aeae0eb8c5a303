"""The records that a long session is made of, read by their types: much faster than as plain objects.

Only what says nothing unusual fits: an answer's text, thought or call; a result that is a text. Any other line is
read by ``lines.parse``, which takes everything, so that nothing depends on what fits here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from otel_gym.ingest.claude_code.lines import json_text
from otel_gym.records.answers import Answer
from otel_gym.wire.items.shapes import Item, function_call_item, message_item, reasoning_item

No = Literal[False] | None
Fact = str | int | float | bool | None | UnsetType
_NO_USAGE = msgspec.Raw(b"null")
# Of a message that the harness made up, because the model gave none or broke off.
SYNTHETIC_MODEL = "<synthetic>"


class TextBlock(msgspec.Struct, tag_field="type", tag="text", gc=False):
    text: str
    citations: None = None

    def item(self) -> Item:
        return message_item("assistant", self.text)

    def add_to(self, answer: Answer) -> None:
        answer.messages.append(self.text)

    def texts(self) -> tuple[str, ...]:
        return (self.text,)


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking", gc=False):
    thinking: str
    signature: str | None = None

    def item(self) -> Item:
        return reasoning_item(self.thinking, self.signature)

    def add_to(self, answer: Answer) -> None:
        answer.add_reasoning(self.thinking)

    def texts(self) -> tuple[str, ...]:
        return (self.thinking, self.signature or "")


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use", gc=False):
    id: str
    name: str
    input: dict[str, Any]

    def item(self) -> Item:
        return function_call_item(self.id, self.name, json_text(self.input))

    def add_to(self, answer: Answer) -> None:
        answer.calls.append({"call_id": self.id, "name": self.name, "arguments": self.input})

    def texts(self) -> tuple[str, ...]:
        return (self.name, json_text(self.input))


Block = TextBlock | ThinkingBlock | ToolUseBlock


class AssistantMessage(msgspec.Struct, gc=False):
    content: list[Block]
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = _NO_USAGE


class AssistantLine(msgspec.Struct, tag_field="type", tag="assistant", rename="camel", gc=False):
    message: AssistantMessage
    uuid: str
    timestamp: str
    version: str
    request_id: str | None = None
    request_ref: str | None = None
    request_session_id: str | None = None
    requested_model: str | None = None
    effort: str | None = None
    api_block_index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    is_sidechain: No = None
    is_api_error_message: No = None


class ResultNote(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """What ``tool_results`` reads of what the harness noted beside a result."""

    stdout: Fact = UNSET
    stderr: Fact = UNSET
    interrupted: Fact = UNSET
    timed_out_after_ms: Fact = UNSET
    background_task_id: Fact = UNSET
    persisted_output_path: Fact = UNSET
    persisted_output_size: Fact = UNSET
    return_code_interpretation: Fact = UNSET
    agent_id: Fact = UNSET
    agent_type: Fact = UNSET
    status: Fact = UNSET
    output_file: Fact = UNSET
    duration_ms: Fact = UNSET
    total_duration_ms: Fact = UNSET
    total_tool_use_count: Fact = UNSET
    is_async: Fact = UNSET


class ResultBlock(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    tool_use_id: str
    content: str
    is_error: bool | None = None


class UserMessage(msgspec.Struct, gc=False):
    content: list[ResultBlock]


class ResultLine(msgspec.Struct, tag_field="type", tag="user", rename="camel", gc=False):
    message: UserMessage
    uuid: str
    timestamp: str
    version: str
    tool_use_result: ResultNote | list[msgspec.Raw] | str | None = None
    is_sidechain: No = None
    tool_denial_kind: None = None

    def noted(self) -> Any:
        """What the harness noted beside the result."""
        noted = self.tool_use_result
        return msgspec.to_builtins(noted) if isinstance(noted, ResultNote) else noted


Line = AssistantLine | ResultLine

_decode = msgspec.json.Decoder(Line).decode


def common_line(line: bytes) -> Line | None:
    """None for a line that does not fit."""
    try:
        if not line.isascii():
            line.decode()  # what is passed over is not looked at by the decoder, and has to be text as well
        found = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    is_made_up = type(found) is AssistantLine and found.message.model == SYNTHETIC_MODEL
    return None if is_made_up else found
