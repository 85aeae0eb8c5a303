"""OpenTelemetry's own GenAI instrumentations: openai-v2, genai-openai, and what util-genai makes."""

from __future__ import annotations

from otel_gym import conventions as names
from otel_gym.store.foreign.dialect import (
    CHAT,
    ERROR_TYPE,
    FINISH_REASONS,
    OPERATION,
    Attributes,
    ForeignDialect,
    has_scope,
)
from otel_gym.store.span import StoredSpan

_OPENAI = ("opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.openai_v2")


def _read(span: StoredSpan, attributes: Attributes) -> None:
    of_openai = span.scope_name is not None and span.scope_name.startswith(_OPENAI)
    if of_openai and attributes.get(OPERATION) == CHAT and "openai.api.type" not in attributes:
        attributes.setdefault(names.DIALECT, "chat")
    reasons = attributes.get(FINISH_REASONS)
    if isinstance(reasons, list) and "error" in reasons and ERROR_TYPE not in attributes:
        attributes.setdefault(names.ERROR_CATEGORY, "exception")


DIALECT = ForeignDialect(
    name="OpenTelemetry GenAI",
    made_by="`opentelemetry-instrumentation-openai-v2` 2.4b0, `-genai-openai` 1.3b0, `opentelemetry-util-genai` 1.3b0",
    is_made=has_scope(*_OPENAI, "opentelemetry.util.genai"),
    renamed={},
    read=_read,
    derived=(
        (names.DIALECT, "`chat`, where `openai.api.type` says nothing else"),
        (names.ERROR_CATEGORY, "`exception` where a finish reason `error` is all that tells of a broken stream"),
    ),
    lacks=(
        "content, unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for it on spans; reasoning of Chat",
        "cached and reasoning tokens that are 0; usage of a stream that was not asked to include it",
        "HTTP status, the provider's request id; a stream that is left unclosed has no span at all",
    ),
)
