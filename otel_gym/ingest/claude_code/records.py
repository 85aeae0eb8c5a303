"""Records of Claude Code → what the agents of one session did.

Each kind of record is one function, found in a table. A record of the transcript is read as it is; one of the
stream-json output is brought into the same form first (``stream_json``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from otel_gym.ingest.claude_code.agent_log import AgentLog, BoundaryNote, Call, FailedCall, ToolRun
from otel_gym.ingest.claude_code.common_lines import SYNTHETIC_MODEL
from otel_gym.ingest.claude_code.lines import Damage, Row, json_text, text_of
from otel_gym.ingest.claude_code.session import SessionLog, call_key, number_of
from otel_gym.ingest.claude_code.tool_results import add_result, notice_of
from otel_gym.records.steps import unix_nano
from otel_gym.wire.items.messages import item_of_block, media_part
from otel_gym.wire.items.shapes import Item, message_item, objects_of, text_part
from otel_gym.wire.usage import token_count

_NOTICE = "<task-notification>"
_INTERRUPTION = "[Request interrupted by user"
_CUT_NOTE = "cut off mid-stream"
_LOCAL = ("<local-command-", "<command-name>", "<command-message>", "<bash-input>", "<bash-stdout>", "<bash-stderr>")
_ERROR_TYPE = re.compile(r'"error":\{"type":"(\w+)"')
# Marks an item that the harness, not the user, wrote.
_BY_HARNESS = {"origin": "harness"}

# Kinds that say nothing of what the agent did; any other kind that no function below reads is counted as dropped.
_BOOKKEEPING = frozenset(
    [
        "last-prompt",
        "mode",
        "tools-used",
        "atis-latch",
        "summary",
        "file-history-snapshot",
        "custom-title",
        "ai-title",
        "agent-name",
        "agent-color",
        "agent-setting",
        "tag",
        "pr-link",
        "progress",
        "permission-mode",
        "task-summary",
        "worktree-state",
        "content-replacement",
        "speculation-accept",
        "attribution-snapshot",
        "api-request-shape",
        "api-request-blob",
    ]
)
_QUIET_SYSTEM = frozenset(
    [
        "model_fallback",
        "informational",
        "local_command",
        "turn_duration",
        "stop_hook_summary",
        "microcompact_boundary",
        "memory_saved",
        "away_summary",
        "bridge_status",
        "agents_killed",
        "api_metrics",
        "permission_retry",
        "scheduled_task_fire",
        "thinking",
        "init",
        "status",
        "thinking_tokens",
        "task_started",
        "task_progress",
        "task_updated",
        "background_tasks_changed",
        "permission_denied",
        "hook_started",
        "hook_progress",
        "hook_response",
        "ui_invalidate",
        "files_persisted",
    ]
)


def read_row(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    """Adds a record to the log of the agent that it belongs to."""
    kind = row["type"]
    version = row.get("version")
    if isinstance(version, str):
        session.saw_version(log, version)
    read = _READERS.get(kind)
    if read is not None:
        read(session, log, row, index, damage)
    elif kind not in _BOOKKEEPING:
        damage.unknown(index, f"type {kind!r}")


def time_of(row: Row) -> int | None:
    return unix_nano(row.get("timestamp"))


# What the model said.


def _read_assistant(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    message = row.get("message")
    if not isinstance(message, dict):
        damage.unknown(index, "an assistant record without a message")
        return
    if message.get("model") == SYNTHETIC_MODEL or row.get("isApiErrorMessage") is True:
        _read_failure(log, row, message, index)
        return
    if row.get("uuid") in log.said:
        return  # the same record again
    time_ns = time_of(row)
    call = log.add_call(call_key(row, index), index, time_ns)
    _describe(call, row, message)
    for block in objects_of(message.get("content")):
        _read_block(log, call, row, block, index, time_ns)


def _describe(call: Call, row: Row, message: Row) -> None:
    call.response_id = call.response_id or text_of(message.get("id"))
    call.request_id = call.request_id or text_of(row.get("requestId"))
    call.request_ref = call.request_ref or text_of(row.get("requestRef"))
    call.model = call.model or text_of(message.get("model"))
    call.requested_model = call.requested_model or text_of(row.get("requestedModel"))
    call.effort = call.effort or text_of(row.get("effort"))
    call.stop_reason = text_of(message.get("stop_reason")) or call.stop_reason
    usage = message.get("usage")
    if isinstance(usage, dict):
        call.saw_usage(usage)


def _read_block(log: AgentLog, call: Call, row: Row, block: Item, index: int, time_ns: int | None) -> None:
    given, is_call = block.get("input"), block.get("type") == "tool_use"
    arguments = json_text({} if given is None else given) if is_call else ""
    if is_call and not isinstance(given, str):
        block = {**block, "input": arguments}  # an item takes a text as it is
    text = json_text(item_of_block("assistant", block))
    if not call.add_place(token_count(row.get("apiBlockIndex")), text):
        return
    log.note_said(row.get("uuid"), text)
    if is_call:
        given = {} if given is None else given
        name = str(block.get("name"))
        log.add_run(call, text_of(block.get("id")), name, given, index, time_ns is not None)


def _read_failure(log: AgentLog, row: Row, message: Row, index: int) -> None:
    """A message that the harness made up, because the model gave none or broke off."""
    if row.get("isApiErrorMessage") is not True:
        return
    said = " ".join(str(block.get("text", "")) for block in objects_of(message.get("content")))
    cut, last = text_of(row.get("streamCutCause")), log.last_call()
    if cut and last is not None:
        last.is_cut = True
    kind = text_of(row.get("apiErrorType")) or cut or text_of(row.get("apiError")) or text_of(row.get("error"))
    time_ns = log.moment(time_of(row))
    status = token_count(row.get("apiErrorStatus"))
    log.add_note(FailedCall(index, time_ns, kind, said or None, status, text_of(row.get("requestId"))))
    if log.turns:
        log.turns[-1].error = said or kind or ""


# What was said to it.


def _read_user(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str | list):
        damage.unknown(index, "a user record without content")
        return
    if row.get("uuid") in log.said:
        return  # the same record again
    time_ns = time_of(row)
    if isinstance(content, list):
        results = [block for block in objects_of(content) if block.get("type") == "tool_result"]
        for block in results:
            _read_result(session, log, row, block, index, time_ns, damage)
        if results:
            content = [block for block in objects_of(content) if block.get("type") != "tool_result"]
    if content or not isinstance(content, list):
        _read_said(session, log, row, content, index, time_ns)


def _read_result(
    session: SessionLog, log: AgentLog, row: Row, block: Item, index: int, time_ns: int | None, damage: Damage
) -> None:
    run = answered_run(log, str(block.get("tool_use_id")), index, time_ns, damage)
    if run is not None:
        content, is_error = block.get("content"), block.get("is_error")
        add_result(run, content, is_error, row.get("toolUseResult"), row.get("toolDenialKind"))
        log.note_said(row.get("uuid"), run)


def answered_run(log: AgentLog, call_id: str, index: int, time_ns: int | None, damage: Damage) -> ToolRun | None:
    """The call whose result came; None where it had one, or where there is no such call."""
    run = log.run_of(call_id)
    if run is None:
        damage.orphan(index, call_id)
        return None
    if run.arrival is not None:
        return None
    run.ended_ns = max(log.moment(time_ns), run.started_ns)
    run.time_known = run.time_known and time_ns is not None
    run.arrival = log.next_arrival()
    return run


def _read_said(
    session: SessionLog, log: AgentLog, row: Row, content: str | list[Any], index: int, time_ns: int | None
) -> None:
    """Who wrote it: the user, or the harness in the user's name."""
    uuid = text_of(row.get("uuid"))
    parts = [text_part("user", content)] if isinstance(content, str) else _parts(content)
    text = next((part["text"] for part in parts if isinstance(part.get("text"), str)), "")
    origin = row.get("origin")
    if row.get("isCompactSummary") is True:
        log.add_summary(parts, index, time_ns)
    elif text.startswith(_NOTICE) or (isinstance(origin, dict) and origin.get("kind") == "task-notification"):
        log.moment(time_ns)
        session.noticed(notice_of(text), time_ns)
    elif text.startswith((*_LOCAL, _INTERRUPTION)):
        log.add_user_item(message_item("user", parts) | _BY_HARNESS, index, time_ns, uuid)
        if text.startswith(_INTERRUPTION):
            _mark_interrupted(log)
    elif row.get("isMeta") is True:
        _read_meta(log, row, parts, text, index, time_ns)
    else:
        log.open_turn(uuid or f"record {index}", index, time_ns)
        log.add_user_item(message_item("user", parts), index, time_ns, uuid)


def _parts(content: list[Any]) -> list[Item]:
    return [
        text_part("user", block.get("text") or "") if block.get("type") == "text" else media_part(block)
        for block in objects_of(content)
    ]


def _mark_interrupted(log: AgentLog) -> None:
    call = log.last_call()
    for run in call.runs if call is not None else ():
        if "rejected" in run.extra:
            run.extra["interrupted"] = True


def _read_meta(log: AgentLog, row: Row, parts: list[Item], text: str, index: int, time_ns: int | None) -> None:
    """A note of the harness reaches the model as a reminder, and is kept no more than those are."""
    last = log.last_call()
    if _CUT_NOTE in text and last is not None:
        last.is_cut = True
    if row.get("ownNote") is True or row.get("turnCompanion") is True or text.startswith("<system-reminder>"):
        log.moment(time_ns)
        return
    log.add_user_item(message_item("user", parts) | _BY_HARNESS, index, time_ns, text_of(row.get("uuid")))


def _read_attachment(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    """Of the many things that are attached only a message that was typed while the agent worked is kept."""
    attached = row.get("attachment")
    log.moment(time_of(row))
    if not isinstance(attached, dict) or attached.get("type") != "queued_command":
        return
    prompt = attached.get("prompt")
    text = prompt if isinstance(prompt, str) else ""
    if text.startswith(_NOTICE):
        session.noticed(notice_of(text), time_of(row))
    elif isinstance(prompt, str | list) and attached.get("commandMode") in (None, "prompt"):
        parts = [text_part("user", prompt)] if isinstance(prompt, str) else _parts(prompt)
        log.add_user_item(message_item("user", parts), index, time_of(row), text_of(row.get("uuid")))


def _read_queue(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    content = row.get("content")
    if row.get("operation") == "enqueue" and isinstance(content, str) and content.startswith(_NOTICE):
        session.noticed(notice_of(content), time_of(row))


# What the harness noted.


def _read_system(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    subtype = str(row.get("subtype"))
    if subtype == "compact_boundary":
        _read_boundary(log, row, index)
    elif subtype == "api_error":
        _read_api_error(log, row, index)
    elif subtype in _QUIET_SYSTEM:
        log.moment(time_of(row))
    else:
        damage.unknown(index, f"system {subtype!r}")


def _read_boundary(log: AgentLog, row: Row, index: int) -> None:
    said = row.get("compactMetadata")
    facts: dict[str, Any] = said if isinstance(said, dict) else {}
    # Its record is made before its summary's, and stamped after it.
    time_ns = time_of(row)
    log.add_boundary(
        BoundaryNote(
            index,
            log.last_ns if time_ns is None else time_ns,
            trigger=text_of(facts.get("trigger")),
            tokens_before=token_count(facts.get("preTokens")),
            tokens_after=token_count(facts.get("postTokens")),
            kept=log.texts_of(_kept_uuids(log, facts)),
        )
    )


def _kept_uuids(log: AgentLog, facts: dict[str, Any]) -> list[str]:
    messages, segment = facts.get("preservedMessages"), facts.get("preservedSegment")
    uuids = messages.get("uuids") if isinstance(messages, dict) else None
    if isinstance(uuids, list):
        return [uuid for uuid in uuids if isinstance(uuid, str)]
    if isinstance(segment, dict):
        return log.uuids_between(str(segment.get("headUuid")), str(segment.get("tailUuid")))
    return []


def _read_api_error(log: AgentLog, row: Row, index: int) -> None:
    said = row.get("error")
    error: dict[str, Any] = said if isinstance(said, dict) else {}
    connection = error.get("connection")
    retry = token_count(row.get("retryAttempt"))
    log.add_note(
        FailedCall(
            index,
            log.moment(time_of(row)),
            text_of(connection.get("code")) if isinstance(connection, dict) else _type_of(error),
            text_of(error.get("formatted")) or text_of(error.get("message")),
            token_count(error.get("status")),
            text_of(error.get("requestId")),
            retry - 1 if retry else None,
        )
    )


def _type_of(error: dict[str, Any]) -> str | None:
    """The provider's own word, which stands in the text of its answer."""
    named = _ERROR_TYPE.search(str(error.get("message")))
    return named[1] if named else text_of(error.get("type"))


def _read_cost(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    usage = row.get("modelUsage")
    set_totals(log, row.get("totalDuration"), row.get("totalCostUSD"), usage)


def set_totals(log: AgentLog, duration_ms: Any, cost_usd: Any, usage: Any) -> None:
    """The harness counts on over the whole session: the last word holds."""
    log.totals.duration_ms = number_of(duration_ms)
    log.totals.cost_usd = number_of(cost_usd)
    log.totals.usage = usage if isinstance(usage, dict) else None


def _read_request(session: SessionLog, log: AgentLog, row: Row, index: int, damage: Damage) -> None:
    request_id = text_of(row.get("id"))
    if request_id is None or not session.bodies:
        return
    session.requests[request_id] = session.bodies[-1].add_request(request_id, row, time_of(row))


_READERS: dict[str, Callable[[SessionLog, AgentLog, Row, int, Damage], None]] = {
    "assistant": _read_assistant,
    "user": _read_user,
    "attachment": _read_attachment,
    "system": _read_system,
    "queue-operation": _read_queue,
    "cost-state": _read_cost,
    "api-request": _read_request,
}
