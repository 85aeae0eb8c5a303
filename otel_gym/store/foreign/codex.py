"""Codex's own telemetry (``[otel] trace_exporter``): some hundreds of spans a turn, of which four kinds matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from otel_gym import conventions as names
from otel_gym.store.executions import SpanIds, ids_of
from otel_gym.store.foreign.dialect import (
    AGENT_NAME,
    CACHE_WRITE,
    CHAT,
    CONVERSATION_ID,
    EXECUTE_TOOL,
    INVOKE_AGENT,
    OPERATION,
    PROVIDER,
    REASONING_TOKENS,
    REQUEST_MODEL,
    STREAM,
    TOOL_CALL_ID,
    TOOL_NAME,
    Attributes,
    ForeignDialect,
    text_of,
    with_attributes,
)
from otel_gym.store.span import StoredSpan

_TURN, _STEP, _ATTEMPT = "run_turn", "run_sampling_request", "try_run_sampling_request"
_CALL, _REQUEST, _STREAM = "codex.sampling", "stream_request", "model_client.stream_responses_api"
_OPERATIONS = {_TURN: INVOKE_AGENT, _CALL: CHAT}
_USAGE = "gen_ai.usage."
_DISPATCH = "dispatch"


def _is_made(span: StoredSpan) -> bool:
    return "code.module.name" in span.attributes and str(span.attributes["code.module.name"]).startswith("codex_")


def _read(span: StoredSpan, attributes: Attributes) -> None:
    operation = _OPERATIONS.get(span.name)
    if attributes.get("codex.tool.phase") == _DISPATCH and "call_id" in attributes:
        operation = EXECUTE_TOOL
        attributes.setdefault(TOOL_NAME, text_of(attributes, "tool_name") or span.name)
        attributes.setdefault(TOOL_CALL_ID, attributes["call_id"])
    if operation is not None:
        attributes[OPERATION] = operation
    if operation == INVOKE_AGENT:
        attributes.setdefault(AGENT_NAME, "codex")


def _gather(spans: Sequence[StoredSpan]) -> list[StoredSpan]:
    """A call's model and usage stand on spans beside it, its request on one; a step is what asks until it is done."""
    children: dict[SpanIds, list[StoredSpan]] = {}
    by_id = {ids_of(span): span for span in spans}
    for span in spans:
        if span.parent_span_id is not None:
            children.setdefault((span.trace_id, span.parent_span_id), []).append(span)
    changed: dict[SpanIds, StoredSpan] = {}
    steps: dict[str | None, int] = {}
    for span in sorted(spans, key=lambda each: (each.start_ns, each.span_id)):
        if span.name == _STEP:
            steps[span.parent_span_id] = steps.get(span.parent_span_id, 0) + 1
            changed[ids_of(span)] = with_attributes(span, gym__step__index=steps[span.parent_span_id])
        elif span.name == _CALL:
            attempt = by_id.get((span.trace_id, span.parent_span_id or ""))
            if attempt is not None and attempt.name == _ATTEMPT:
                changed |= _of_attempt(span, attempt, children)
    return [changed.get(ids_of(span), span) for span in spans]


def _of_attempt(
    call: StoredSpan, attempt: StoredSpan, children: Mapping[SpanIds, list[StoredSpan]]
) -> dict[SpanIds, StoredSpan]:
    told: Attributes = {STREAM: True, PROVIDER: "openai"}
    changed = {}
    model = text_of(attempt.attributes, "model")
    if model is not None:
        told[REQUEST_MODEL] = model
    for below in _below(attempt, children):
        if below.name == _REQUEST and below.parent_span_id == attempt.span_id:
            changed[ids_of(below)] = replace(below, parent_span_id=call.span_id)
        if below.name == _STREAM and below.attributes.get("wire_api") == "responses":
            told[names.DIALECT] = "responses"
        told |= {name: value for name, value in below.attributes.items() if name.startswith(_USAGE)}
    if told.get(CACHE_WRITE) == 0:
        del told[CACHE_WRITE]  # what the provider does not say, Codex writes as 0
    changed[ids_of(call)] = with_attributes(call, **told)
    return changed


def _below(span: StoredSpan, children: Mapping[SpanIds, list[StoredSpan]]) -> Iterator[StoredSpan]:
    waiting, seen = [span], {ids_of(span)}
    while waiting:
        for child in children.get(ids_of(waiting.pop()), ()):
            if ids_of(child) not in seen:  # a damaged file may hold a cycle
                seen.add(ids_of(child))
                waiting.append(child)
                yield child


DIALECT = ForeignDialect(
    name="Codex",
    made_by="Codex 0.171.0, with `[otel] trace_exporter`",
    is_made=_is_made,
    renamed={
        CONVERSATION_ID: ("conversation.id",),
        REASONING_TOKENS: ("codex.usage.reasoning_output_tokens",),
    },
    read=_read,
    derived=(
        (
            OPERATION,
            f"`{_TURN}` → `invoke_agent`, `{_CALL}` → `chat`, a tool's `dispatch` → `execute_tool`",
        ),
        ("gym.step.index", f"the number of a `{_STEP}` in its turn"),
        (REQUEST_MODEL, f"`model` of the `{_ATTEMPT}` above"),
        (
            "gen_ai.usage.*",
            f"of the `handle_responses` beside it, a cache write of 0 aside; `{_REQUEST}` is part of it",
        ),
        (f"{TOOL_NAME}, {TOOL_CALL_ID}", "`tool_name`, `call_id`"),
        (names.DIALECT, "`wire_api`"),
    ),
    lacks=(
        "ids of answers and requests, finish reasons, what was said, arguments and results of tools (some are in its "
        "log records, which are not read)",
        "HTTP retries: they are hidden within a call; whether a tool failed",
    ),
    gather=_gather,
)
