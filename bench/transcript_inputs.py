"""What a model was sent, in a form in which a transcript and the wire can be compared.

Compared are the order of roles and item types, an item's own text, call ids, names, parsed arguments and the text of
results; what the harness adds (reminders) is removed on both sides, neighbouring texts of one role are one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]
Normal = tuple[Any, ...]

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_HARNESS_ROLES = frozenset({"system", "developer"})
# Codex's own context messages.
_HARNESS_TEXTS = ("<environment_context>", "<user_instructions>", "<permissions instructions>", "# AGENTS.md")


@dataclass(frozen=True)
class Verdict:
    kind: str
    detail: str = ""


def normal_items(items: Iterable[Item]) -> list[Normal]:
    found: list[Normal] = []
    for item in items:
        normal = _normal(item)
        if normal is None:
            continue
        if found and normal[0] == "message" and found[-1][:2] == normal[:2]:
            found[-1] = (*normal[:2], f"{found[-1][2]}\n{normal[2]}")
        else:
            found.append(normal)
    return found


def difference(ours: list[Normal], theirs: list[Normal]) -> Verdict:
    """``equal``, or how they differ first."""
    if ours == theirs:
        return Verdict("equal")
    if sorted(map(repr, ours)) == sorted(map(repr, theirs)):
        return Verdict("another order")
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return Verdict(_kind(one, other), f"{str(one)[:160]} | {str(other)[:160]}")
    longer, side = (ours, "transcript") if len(ours) > len(theirs) else (theirs, "wire")
    rest = longer[min(len(ours), len(theirs))]
    return Verdict(f"only in the {side}: {rest[0]}", str(rest)[:300])


def _kind(one: Normal, other: Normal) -> str:
    if one[0] != other[0]:
        return f"{one[0]} where the wire has {other[0]}"
    if one[0] == "result" and one[1] == other[1]:
        return "text of a result"
    return f"other {one[0]}"


def _normal(item: Item) -> Normal | None:
    kind = item.get("type", "message")
    if kind == "message":
        text = _text(item.get("content"))
        if item.get("role") in _HARNESS_ROLES or text.startswith(_HARNESS_TEXTS) or not text:
            return None
        return ("message", item.get("role"), text)
    if kind == "reasoning":
        return ("reasoning", _text(item.get("summary")), item.get("encrypted_content"))
    if kind in ("function_call", "custom_tool_call"):
        return ("call", item.get("call_id"), item.get("name"), _arguments(item))
    if kind in ("function_call_output", "custom_tool_call_output"):
        return ("result", item.get("call_id"), _text(item.get("output")))
    return (kind,)


def _arguments(item: Item) -> str:
    given = item.get("arguments", item.get("input"))
    try:
        return json.dumps(json.loads(given), sort_keys=True)
    except (TypeError, ValueError):
        return str(given)


def _text(content: Any) -> str:
    if isinstance(content, list):
        content = "\n".join(
            str(part.get("text") or f"[{part.get('type')}]") for part in content if isinstance(part, dict)
        )
    return _REMINDER.sub("\n", "" if content is None else str(content)).strip()
