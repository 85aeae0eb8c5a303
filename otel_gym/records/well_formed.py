"""Values that a strict JSON writer takes: what is derived from a body, never the body itself."""

from __future__ import annotations

import json
import math
from typing import Any

from otel_gym.content import safe_text


def well_formed(value: Any) -> Any:
    """``value`` itself if it is strict JSON, else a copy with null for NaN and Infinity and U+FFFD for lone surrogates.

    Any depth of nesting passes; a value is never changed in place.
    """
    return value if _is_strict_json(value) else _cleaned(value)


def _is_strict_json(value: Any) -> bool:
    # The C encoder looks at a whole body faster than any walk in Python.
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        return False
    return True


def _cleaned(value: Any) -> Any:
    whole = [value]
    containers: list[Any] = [whole]  # copies of ours, whose items are still as they came
    while containers:
        container = containers.pop()
        keys = range(len(container)) if isinstance(container, list) else list(container)
        for key in keys:
            item = container[key] = _cleaned_item(container[key])
            if isinstance(item, list | dict):
                containers.append(item)
    return whole[0]


def _cleaned_item(item: Any) -> Any:
    if isinstance(item, str):
        return safe_text(item)
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {safe_text(name): value for name, value in item.items()}
    return list(item) if isinstance(item, list) else item
