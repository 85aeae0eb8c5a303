"""Claude Code's own telemetry (``CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1``): spans ``claude_code.*``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.store.executions import ids_of
from otel_gym.store.foreign.dialect import (
    AGENT_ID,
    AGENT_NAME,
    CACHE_READ,
    CACHE_WRITE,
    CHAT,
    CONVERSATION_ID,
    ERROR_TYPE,
    EXECUTE_TOOL,
    FINISH_REASONS,
    INVOKE_AGENT,
    OPERATION,
    OUTPUT_TOKENS,
    REQUEST_MODEL,
    RESPONSE_ID,
    TOOL_CALL_ID,
    TOOL_NAME,
    TOOL_RESULT,
    Attributes,
    ForeignDialect,
    has_scope,
    text_of,
    with_attributes,
)
from otel_gym.store.span import STATUS_ERROR, SpanEvent, StoredSpan
from otel_gym.wire.items.shapes import message_item

_INTERACTION, _REQUEST = "claude_code.interaction", "claude_code.llm_request"
_TOOL, _RUN = "claude_code.tool", "claude_code.tool.execution"
_OPERATIONS = {_INTERACTION: INVOKE_AGENT, _REQUEST: CHAT, _TOOL: EXECUTE_TOOL}
_OUTPUT_EVENT = "tool.output"


def _read(span: StoredSpan, attributes: Attributes) -> None:
    operation = _OPERATIONS.get(span.name)
    if operation is None:
        return
    attributes.setdefault(OPERATION, operation)
    if operation == INVOKE_AGENT:
        attributes.setdefault(AGENT_NAME, "claude-code")
    elif operation == CHAT:
        _read_request(attributes)
    else:
        output = next((event.attributes.get("output") for event in span.events if event.name == _OUTPUT_EVENT), None)
        if isinstance(output, str):
            attributes.setdefault(TOOL_RESULT, safe_json({"content": output}))


def _read_request(attributes: Attributes) -> None:
    attributes.setdefault(names.DIALECT, "messages")
    request_id = text_of(attributes, names.REQUEST_ID)
    if request_id is not None and attributes.get(RESPONSE_ID) == request_id:
        del attributes[RESPONSE_ID]  # it is no answer's
    stop = text_of(attributes, "stop_reason")
    if stop is not None:
        attributes.setdefault(FINISH_REASONS, [stop])
    first_content = attributes.get("first_content_ms")
    if isinstance(first_content, int | float) and math.isfinite(first_content):
        attributes.setdefault(names.FIRST_CONTENT_NS, round(first_content * 10**6))
    if attributes.get("success") is False:
        status = text_of(attributes, "status_code") or attributes.get("status_code")
        attributes.setdefault(ERROR_TYPE, str(status or text_of(attributes, "error") or "_OTHER"))


def _gather(spans: Sequence[StoredSpan]) -> list[StoredSpan]:
    """The run of a tool says how the tool ended; the run of an agent is a turn of that agent."""
    by_id = {ids_of(span): span for span in spans}
    agent_ids = _agents_below(spans)
    changed: dict[tuple[str, str], StoredSpan] = {}
    for span in spans:
        parent = by_id.get((span.trace_id, span.parent_span_id or ""))
        if span.name == _INTERACTION:
            changed[ids_of(span)] = _with_prompt(span)
        elif span.name == _RUN and parent is not None and parent.name == _TOOL:
            changed |= _of_run(span, parent, agent_ids.get(ids_of(span)))
    return [changed.get(ids_of(span), span) for span in spans]


def _agents_below(spans: Sequence[StoredSpan]) -> dict[tuple[str, str], str]:
    """The runs of tools that calls of another agent stand below, with its id."""
    found: dict[tuple[str, str], str] = {}
    for span in spans:
        agent_id = text_of(span.attributes, "agent_id")
        if span.name == _REQUEST and agent_id is not None and span.parent_span_id is not None:
            found.setdefault((span.trace_id, span.parent_span_id), agent_id)
    return found


def _of_run(run: StoredSpan, tool: StoredSpan, agent_id: str | None) -> dict[tuple[str, str], StoredSpan]:
    changed = {}
    if run.status == STATUS_ERROR and tool.status != STATUS_ERROR:
        error = text_of(run.attributes, ERROR_TYPE)
        more = {ERROR_TYPE: error} if error is not None else {}
        failed = with_attributes(tool, **more)
        changed[ids_of(tool)] = replace(failed, status=STATUS_ERROR, status_message=run.status_message)
    if agent_id is not None:
        more = {OPERATION: INVOKE_AGENT, AGENT_ID: agent_id, CONVERSATION_ID: agent_id}
        kind = text_of(tool.attributes, "subagent_type")
        changed[ids_of(run)] = with_attributes(run, **more, **({AGENT_NAME: kind} if kind is not None else {}))
    return changed


def _with_prompt(span: StoredSpan) -> StoredSpan:
    prompt = text_of(span.attributes, "user_prompt")
    if prompt is None or prompt == "<REDACTED>":
        return span
    item = safe_json(message_item("user", prompt))
    return replace(span, events=[*span.events, SpanEvent(names.USER_MESSAGE_EVENT, span.start_ns, {names.ITEM: item})])


DIALECT = ForeignDialect(
    name="Claude Code",
    made_by="Claude Code 2.1.332, with CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1",
    is_made=has_scope("com.anthropic.claude_code"),
    renamed={
        REQUEST_MODEL: ("model",),
        names.REQUEST_ID: ("request_id",),
        OUTPUT_TOKENS: ("output_tokens",),
        CACHE_READ: ("cache_read_tokens",),
        CACHE_WRITE: ("cache_creation_tokens",),
        TOOL_NAME: ("tool_name",),
        TOOL_CALL_ID: ("tool_use_id",),
        CONVERSATION_ID: ("session.id",),
    },
    read=_read,
    derived=(
        (OPERATION, f"`{_INTERACTION}` → `invoke_agent`, `{_REQUEST}` → `chat`, `{_TOOL}` → `execute_tool`"),
        (RESPONSE_ID, "none: what stands there is the id of the request"),
        (FINISH_REASONS, "`stop_reason`"),
        (names.FIRST_CONTENT_NS, "`first_content_ms`"),
        (TOOL_RESULT, f"`output` of the event `{_OUTPUT_EVENT}`; error and status by `{_RUN}` below"),
        (f"{AGENT_ID}, {AGENT_NAME}", f"of a subagent: `agent_id` of its requests, on the `{_RUN}` above them"),
        ("event `gym.user_message`", "`user_prompt`, where it is not `<REDACTED>`"),
        (names.DIALECT, "`messages`"),
    ),
    lacks=(
        "what the model said, its tool calls' arguments and its reasoning; the answer's id",
        "attempts: one span covers all retries of a request (an event each tells of them)",
        "tools that ran when the process was told to stop: their spans are never exported",
    ),
    gather=_gather,
)
