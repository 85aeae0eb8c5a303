"""NVIDIA Dynamo's own spans: ``http-request`` of its frontend, and the router's below it.

With a ``traceparent`` they stand below the client's span, in its trace.
"""

from __future__ import annotations

import math
from typing import Any

from otel_gym.conventions import DYNAMO_PREFIX
from otel_gym.store.foreign.dialect import (
    CHAT,
    INPUT_TOKENS,
    OPERATION,
    OUTPUT_TOKENS,
    REQUEST_MODEL,
    RESPONSE_ID,
    Attributes,
    ForeignDialect,
    count_of,
    text_of,
)
from otel_gym.store.span import StoredSpan

_REQUEST, _ROUTER = "http-request", "kv_router."
_REQUEST_ID = DYNAMO_PREFIX + "request_id"
_MARKS = ("request_id", "x_request_id", "request.outcome")
# By the end of the path: the operation, and what stands before Dynamo's id of the request in the answer's.
_ANSWERS = {
    "/chat/completions": (CHAT, "chatcmpl-"),
    "/completions": ("text_completion", "cmpl-"),
    "/responses": (CHAT, "resp_"),
    "/messages": (CHAT, None),
}
_DURATIONS = ("ttft_ms", "avg_itl_ms")
_WORKERS = ("prefill_worker_id", "decode_worker_id")


def _is_made(span: StoredSpan) -> bool:
    if span.name == _REQUEST:
        return "uri" in span.attributes and any(mark in span.attributes for mark in _MARKS)
    return span.name.startswith(_ROUTER)


def _read(span: StoredSpan, attributes: Attributes) -> None:
    if span.name != _REQUEST:
        return
    for name in _DURATIONS:
        duration = _number(attributes.get(name))
        if duration is not None:
            attributes.setdefault(DYNAMO_PREFIX + name, duration)
    for name in _WORKERS:  # decimal: above 2^53
        if attributes.get(name) is not None:
            attributes.setdefault(DYNAMO_PREFIX + name, str(attributes[name]))
    path = str(attributes.get("uri")).partition("?")[0].rstrip("/")
    operation, prefix = next((told for end, told in _ANSWERS.items() if path.endswith(end)), (None, None))
    request_id, model = text_of(attributes, _REQUEST_ID), text_of(attributes, "model")
    if operation is None or request_id is None or model is None:
        return
    attributes.setdefault(OPERATION, operation)
    attributes.setdefault(REQUEST_MODEL, model)
    if prefix is not None:
        attributes.setdefault(RESPONSE_ID, prefix + request_id)
    for ours, theirs in ((INPUT_TOKENS, "input_tokens"), (OUTPUT_TOKENS, "output_tokens")):
        count = count_of(attributes.get(theirs))
        if count is not None:
            attributes.setdefault(ours, count)


def _number(value: Any) -> float | None:
    """Some come as texts."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


DIALECT = ForeignDialect(
    name="Dynamo",
    made_by="Dynamo 1.6.1 with `OTEL_EXPORT_ENABLED=1`, by what its spans were seen to say",
    is_made=_is_made,
    renamed={
        _REQUEST_ID: ("request_id",),
        DYNAMO_PREFIX + "x_request_id": ("x_request_id",),
    },
    read=_read,
    derived=(
        (OPERATION, "of an `http-request` to a model's endpoint: `chat`, `text_completion`"),
        (RESPONSE_ID, "`chatcmpl-`, `cmpl-` or `resp_`, by the endpoint, before `request_id`"),
        (f"{REQUEST_MODEL}, gen_ai.usage.*", "`model`, `input_tokens`, `output_tokens`, also where they are texts"),
        (f"{DYNAMO_PREFIX}*", "`ttft_ms`, `avg_itl_ms`, ids of the workers"),
    ),
    lacks=("content, finish reasons, tool calls, cached tokens: its trace records have them",),
)
