"""Messages that came as one attribute a field: ``gen_ai.prompt.3.tool_calls.0.name``, ``llm.input_messages.3…``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]


def objects_below(attributes: Mapping[str, Any], prefix: str) -> list[Tree]:
    """The objects at ``prefix.0``, ``prefix.1`` …, in order; inner lists of the same kind become lists."""
    tree: Tree = {}
    start = prefix + "."
    for name, value in attributes.items():
        if name.startswith(start):
            _put(tree, name[len(start) :].split("."), value)
    found = _with_lists(tree)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _put(tree: Tree, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    if path:
        tree.setdefault(path[-1], value)


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    inner = {name: _with_lists(value) for name, value in tree.items()}
    if inner and all(name.isascii() and name.isdigit() and len(name) < 7 for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner
