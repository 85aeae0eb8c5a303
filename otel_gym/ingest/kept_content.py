"""What of an imported span may be kept where no content is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from otel_gym import conventions as names
from otel_gym.content_policy import ContentPolicy
from otel_gym.conventions import is_content

_ERROR_TYPE = re.compile(r"[a-z][a-z0-9_.]*|\d{3}|\w+(?:Error|Exception|Disconnect|Timeout)|_OTHER")
_ERROR_NAMES = frozenset({"error.type", names.ERROR_CATEGORY})
# What errors may repeat of content.
_MORE_CONTENT = frozenset({names.RESPONSE_ERROR, "exception.message"})


def kept_attributes(attributes: Mapping[str, Any], policy: ContentPolicy) -> dict[str, Any]:
    """Those that are known, and may be kept; a value that is a function is made here."""
    wanted = ((name, value) for name, value in attributes.items() if policy.bodies or not may_say_content(name, value))
    made = ((name, value() if callable(value) else value) for name, value in wanted)
    return {name: value for name, value in made if value is not None}


def may_say_content(name: str, value: Any) -> bool:
    """Whether it holds what was said, asked or answered.

    ``error.type`` does where a source says more there than a class or a code.
    """
    if is_content(name) or name in _MORE_CONTENT:
        return True
    return name in _ERROR_NAMES and _ERROR_TYPE.fullmatch(str(value)) is None
