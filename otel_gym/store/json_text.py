"""JSON text in attributes: read and written by the compiled encoder, and by Python's own where that refuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def parsed(text: Any) -> Any:
    """The value of a JSON text; None for what is none."""
    if not isinstance(text, str):
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:  # NaN, a lone surrogate, a number beyond 64 bits
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
