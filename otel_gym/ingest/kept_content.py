"""What of an imported span may be kept where no content is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from otel_gym import conventions as names
from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY
from otel_gym.tracing.content_policy import ContentPolicy

_ERROR_TYPE = re.compile(r"[a-z][a-z0-9_.]*|\d{3}|\w+(?:Error|Exception|Disconnect|Timeout)|_OTHER")
_ERROR_NAMES = frozenset({"error.type", names.ERROR_CATEGORY})
# What was said, asked and answered: left out where no content is to be kept.
_CONTENT = frozenset(
    {
        REQUEST_BODY,
        RESPONSE_BODY,
        names.CAPTURE_CONTENT,
        names.RESPONSE_ERROR,
        names.OUTPUT_ITEMS,
        names.ITEM,
        names.TOOL_ERROR,
        names.TOOL_EXTRA,
        names.PROMPT_TOKEN_IDS,
        names.COMPLETION_TOKEN_IDS,
        names.ATIF_EXTRA,
        names.ATIF_AGENT_EXTRA,
        names.ATIF_FINAL_EXTRA,
        names.ATIF_MESSAGE,
        names.ATIF_METRICS_EXTRA,
        names.ATIF_NOTES,
        names.ATIF_RESULT_EXTRA,
        names.ATIF_RESULT_SUBAGENT_REF,
        names.ATIF_TOOL_DEFINITIONS,
        "exception.message",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
    }
)


def kept_attributes(attributes: Mapping[str, Any], policy: ContentPolicy) -> dict[str, Any]:
    """Those that are known, and may be kept; a value that is a function is made here."""
    wanted = ((name, value) for name, value in attributes.items() if policy.bodies or not is_content(name, value))
    made = ((name, value() if callable(value) else value) for name, value in wanted)
    return {name: value for name, value in made if value is not None}


def is_content(name: str, value: Any) -> bool:
    """Whether it says what was said, asked or answered.

    ``error.type`` does where a source says more there than a class or a code.
    """
    return name in _CONTENT or (name in _ERROR_NAMES and _ERROR_TYPE.fullmatch(str(value)) is None)
