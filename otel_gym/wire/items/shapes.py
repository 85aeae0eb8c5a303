"""How items look, whatever the dialect that they came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Item = dict[str, Any]

# Not sets: what stands in the place of a type may be any JSON value, of which lists have no hash.
CALL_TYPES = ("function_call", "custom_tool_call")
# A call's type → that of its output.
OUTPUT_TYPES = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def message_item(role: str, content: Any) -> Item:
    """A message; ``content`` is a text, or a list of parts that stay as they are."""
    if isinstance(content, str):
        content = [text_part(role, content)]
    return {"type": "message", "role": role, "content": content}


def text_part(role: str, text: str) -> Item:
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def reasoning_item(text: str | None, encrypted: str | None = None) -> Item:
    """Reasoning; ``encrypted``: what the provider wants back, a signature or the reasoning itself."""
    item: Item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}] if text else []}
    if encrypted is not None:
        item["encrypted_content"] = encrypted
    return item


def function_call_item(call_id: Any, name: Any, arguments: Any) -> Item:
    """A call; ``arguments`` that are no text become their JSON."""
    if not isinstance(arguments, str):
        arguments = compact_json({} if arguments is None else arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def function_output_item(call_id: Any, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def objects_of(values: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list; of what is no list, none."""
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())
