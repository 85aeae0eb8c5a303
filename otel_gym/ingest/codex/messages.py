"""Items of a thread: what the model made, and of the messages that it got, which a user said."""

from __future__ import annotations

import re
from typing import Any

from otel_gym.ingest.codex.rows import JsonObject, object_of, text_of
from otel_gym.wire.items.shapes import Item, message_item, objects_of

# Codex's own notes on an item: they never leave it.
_NOTES = "internal_chat_message_metadata_passthrough"
_MODEL_MADE = frozenset({"reasoning", "compaction", "compaction_summary", "context_compaction"})
_KNOWN_TYPES = frozenset({"message", "agent_message", "ghost_snapshot", *_MODEL_MADE})

# What the harness puts into messages of the user, by its tags: for versions that do not note who said a thing.
_HARNESS_TAGS = (
    "apps_instructions",
    "collaboration_mode",
    "environment_context",
    "INSTRUCTIONS",
    "model_switch",
    "permissions instructions",
    "personality_spec",
    "plugins_instructions",
    "skill",
    "skills_instructions",
    "subagent_notification",
    "turn_aborted",
    "user_instructions",
    "user_shell_command",
)
_HARNESS_TEXT = re.compile(rf"\s*(?:<({'|'.join(_HARNESS_TAGS)})\b.*</\1>\s*\Z|# AGENTS\.md instructions)", re.DOTALL)


def plain(item: JsonObject) -> Item:
    """The item as the API has it."""
    return {name: value for name, value in item.items() if name != _NOTES}


def is_known(item: JsonObject) -> bool:
    kind = str(item.get("type"))
    return kind in _KNOWN_TYPES or kind.endswith(("_call", "_call_output", "_output"))


def is_output(item: JsonObject) -> bool:
    return str(item.get("type")).endswith("_output") and isinstance(item.get("call_id"), str)


def is_made_by_model(item: JsonObject, metadata: JsonObject) -> bool:
    if metadata.get("client_authored") is True or _sources(item) - {"model", "assistant"}:
        return False
    kind = str(item.get("type"))
    if kind == "message":
        return item.get("role") == "assistant"
    return kind in _MODEL_MADE or kind.endswith("_call")


def is_said_by_user(item: JsonObject) -> bool:
    """By what Codex notes of where its parts come from, else by the tags that its own messages carry."""
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    kinds, sources = _kinds(item), _sources(item)
    if kinds or sources:
        return any(kind.startswith("user.") for kind in kinds) or "user" in sources
    return not all(_HARNESS_TEXT.match(text) for text in _texts(item))


def _kinds(item: JsonObject) -> list[str]:
    kinds = object_of(item, _NOTES).get("content_item_kinds")
    return [kind for kind in kinds if isinstance(kind, str) and kind != "unknown"] if isinstance(kinds, list) else []


def _sources(item: JsonObject) -> set[str]:
    """Who made the parts of a message: ``user``, ``harness``, ``tool`` …; nothing is noted of what a model made."""
    parts = objects_of(object_of(item, _NOTES).get("content_item_metadata"))
    return {source for part in parts if (source := text_of(object_of(part, "provenance"), "type")) is not None}


def _texts(item: JsonObject) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    return [str(part.get("text", "")) for part in objects_of(content)] or [""]


def base_instructions(meta: JsonObject) -> Item | None:
    """What Codex sends before everything else, and does not write as an item."""
    said: Any = meta.get("base_instructions")
    text = said.get("text") if isinstance(said, dict) else said
    return message_item("developer", text) if isinstance(text, str) and text else None
