"""Whether a value is a JSON Schema of draft 07, which the conventions ask of a tool's parameters.

Clients send other drafts and errors too. What draft 07 asks of each keyword stands in one table; keywords that it
does not know, it allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any


def is_draft_07(schema: Any) -> bool:
    """Walks the schema with a stack of its own, so that no depth is too much."""
    pending = [schema]
    while pending:
        schema = pending.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            return False
        for keyword, value in schema.items():
            allows = KEYWORDS.get(keyword)
            if allows and not allows(value):
                return False
            pending += _subschemas(keyword, value)
    return True


def _subschemas(keyword: str, value: Any) -> Iterator[Any]:
    if keyword in _ONE_SCHEMA:
        yield value
    elif keyword == "items":
        yield from value if isinstance(value, list) else [value]
    elif keyword in _SCHEMA_LISTS:
        yield from value
    elif keyword in _SCHEMA_MAPS:
        yield from value.values()
    elif keyword == "dependencies":
        yield from (item for item in value.values() if not isinstance(item, list))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == math.floor(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_set_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_items(value: Any) -> bool:
    return bool(value) if isinstance(value, list) else isinstance(value, dict | bool)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_set_of_texts(item) for item in value.values() if isinstance(item, list))


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _is_set_of_texts(value) and _TYPES.issuperset(value)
    return isinstance(value, str) and value in _TYPES


_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_ONE_SCHEMA = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then"}
)
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_SCHEMA_MAPS = ("definitions", "patternProperties", "properties")

KEYWORDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("$comment", "$id", "$ref", "$schema", "description", "format", "pattern", "title"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("readOnly", "uniqueItems"), _is_flag),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _is_number),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), _is_size),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(_SCHEMA_LISTS, _is_filled_list),
    **dict.fromkeys(_SCHEMA_MAPS, _is_map),
    "dependencies": _is_dependencies,
    "items": _is_items,
    "multipleOf": _is_positive,
    "required": _is_set_of_texts,
    "type": _is_type,
}
