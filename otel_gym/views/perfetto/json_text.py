"""JSON as Perfetto's engine reads it right: in UTF-8, almost without escapes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson

from otel_gym.content import safe_json
from otel_gym.views.perfetto.shapes import Args

_ESCAPED = re.compile(r"[\x00-\x1f\\]")


def json_args(args: Args) -> str:
    if not args:
        return "{}"
    text = _json(args)
    if b"\\" in text and not _is_read_right(args):
        text = _json(_readable(args))
    return text.decode()


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return safe_json(value).encode()


def _is_read_right(args: Args) -> bool:
    """Told at once of what most arguments are: False of all else."""
    for name, value in args.items():
        if type(value) is str:
            if '"' in value:
                if value.endswith("\\"):
                    return False
            elif "\\" in value or not value.isprintable():
                return False
        elif type(value) is list:
            if not all(type(item) is str and "\\" not in item and item.isprintable() for item in value):
                return False
        elif type(value) is not int and type(value) is not bool:
            return False
        if "\\" in name or not name.isprintable():
            return False
    return True


@lru_cache(maxsize=4096)
def json_text(text: str) -> str:
    return _json(_readable(text)).decode()


@lru_cache(maxsize=4096)
def _readable_name(name: str) -> str:
    return _ESCAPED.sub("_", name)


def _readable(value: Any) -> Any:
    """Perfetto decodes escapes only in a text that holds a quotation mark, and takes the end of one that ends with a
    backslash for a part of it: such texts are put between quotation marks.
    """
    if isinstance(value, str):
        is_misread = _ESCAPED.search(value) and ('"' not in value or value.endswith("\\"))
        return f'"{value}"' if is_misread else value
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, dict):
        return {_readable_name(str(name)): _readable(item) for name, item in value.items()}
    return value
