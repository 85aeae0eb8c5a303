"""The stream-json output of a run, brought into the form of the transcript.

It says less: each record of a message repeats the usage with which the message began, so that the output is counted
only where the stream's own events were asked for, or the record says how the message stopped. Older versions give no
times and no request ids. Nobody's prompt is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from otel_gym.ingest.claude_code.agent_log import AgentLog, Call, FailedCall
from otel_gym.ingest.claude_code.lines import Damage, Row
from otel_gym.ingest.claude_code.records import read_row, set_totals, time_of
from otel_gym.ingest.claude_code.session import SessionLog, call_key
from otel_gym.wire.items.shapes import objects_of
from otel_gym.wire.usage import token_count

# Its words for what the transcript calls otherwise.
_NAMES = {
    "session_id": "sessionId",
    "request_id": "requestId",
    "tool_use_result": "toolUseResult",
    "isSynthetic": "isMeta",
}
_COMPACTION = {
    "trigger": "trigger",
    "pre_tokens": "preTokens",
    "post_tokens": "postTokens",
}
_QUIET = frozenset({"control_request", "control_response", "control_cancel_request", "keep_alive", "tool_progress"})


class StreamReader:
    """Reads the records of one run in their order."""

    def __init__(self, session: SessionLog) -> None:
        self._session = session
        self._agents_of_calls: dict[str, str] = {}
        # By the call that spawned an agent: the message that its stream is at. Final words by message.
        self._streamed: dict[str, str] = {}
        self._finals: dict[str, Row] = {}
        self._calls_of_messages: dict[str, Call] = {}
        self._awaits_summary = False
        self._earlier_cost: float | None = None

    def begin_run(self) -> None:
        """What follows was printed by another process, that resumed the session."""
        self._earlier_cost = self._session.main.totals.cost_usd

    def read(self, row: Row, index: int, damage: Damage) -> None:
        read = _READERS.get(row["type"])
        if read is not None:
            read(self, row, index, damage)
        elif row["type"] not in _QUIET:
            read_row(self._session, self._session.main, row, index, damage)

    def _log_of(self, row: Row) -> AgentLog:
        call_id = row.get("parent_tool_use_id")
        if not isinstance(call_id, str):
            return self._session.main
        agent_id = row.get("agent_id")
        known = self._agents_of_calls.setdefault(call_id, agent_id if isinstance(agent_id, str) else call_id)
        log = self._session.agent(known)
        log.spawned_by = call_id
        kind = row.get("subagent_type")
        log.agent_type = kind if isinstance(kind, str) else log.agent_type
        return log

    def read_assistant(self, row: Row, index: int, damage: Damage) -> None:
        log, renamed = self._log_of(row), _renamed(row)
        message = row.get("message")
        if isinstance(message, dict):
            renamed["message"] = {**message, "usage": self._usage(message)}
            if row.get("error") and message.get("model") == "<synthetic>":
                renamed["isApiErrorMessage"] = True
        read_row(self._session, log, renamed, index, damage)
        call = log.calls.get(call_key(renamed, index))
        if call is not None and call.response_id is not None:
            self._calls_of_messages[call.response_id] = call
            self._finish(call.response_id)

    def _usage(self, message: Row) -> Any:
        usage = message.get("usage")
        if not isinstance(usage, dict) or message.get("stop_reason") is not None:
            return usage
        return {name: count for name, count in usage.items() if name != "output_tokens"}

    def read_event(self, row: Row, index: int, damage: Damage) -> None:
        """Of the model's own stream only what its last words say of the whole message."""
        event = row.get("event")
        if not isinstance(event, dict):
            damage.unknown(index, "a stream_event without an event")
            return
        of_agent, message = str(row.get("parent_tool_use_id")), event.get("message")
        if event.get("type") == "message_start" and isinstance(message, dict):
            message_id = self._streamed[of_agent] = str(message.get("id"))
            # An id that comes again names another message.
            self._finals.pop(message_id, None)
            self._calls_of_messages.pop(message_id, None)
        elif event.get("type") == "message_delta":
            message_id = self._streamed.get(of_agent, "")
            self._finals[message_id] = event
            self._finish(message_id)

    def _finish(self, message_id: str) -> None:
        call, final = self._calls_of_messages.get(message_id), self._finals.get(message_id)
        if call is None or final is None:
            return
        delta, usage = final.get("delta"), final.get("usage")
        if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
            call.stop_reason = delta["stop_reason"]
        if isinstance(usage, dict):
            call.usage = {**(call.usage or {}), **usage}

    def read_user(self, row: Row, index: int, damage: Damage) -> None:
        renamed = _renamed(row)
        if self._awaits_summary and row.get("isSynthetic") is True:
            self._awaits_summary = False
            renamed["isCompactSummary"] = True
        for meta in objects_of(row.get("tool_result_meta")):
            denial = meta.get("non_execution_kind")
            if isinstance(denial, str):
                renamed["toolDenialKind"] = denial
        read_row(self._session, self._log_of(row), renamed, index, damage)

    def read_system(self, row: Row, index: int, damage: Damage) -> None:
        subtype, main = row.get("subtype"), self._session.main
        if subtype == "init":
            row = {**row, "version": row.get("claude_code_version")}
        elif subtype == "api_retry":
            main.add_note(_retry(row, main, index))
            return
        elif subtype == "compact_boundary":
            self._awaits_summary = True
            row = {**row, "compactMetadata": _compaction(row.get("compact_metadata"))}
        elif subtype == "task_started" and isinstance(row.get("tool_use_id"), str):
            self._note_agent(row)
        elif subtype == "task_notification":
            said = {"tool-use-id": row.get("tool_use_id"), "task-id": row.get("task_id"), "status": row.get("status")}
            self._session.noticed({name: str(value) for name, value in said.items() if value}, time_of(row))
            return
        read_row(self._session, main, row, index, damage)

    def _note_agent(self, row: Row) -> None:
        if row.get("task_type") == "local_agent" and isinstance(row.get("task_id"), str):
            self._agents_of_calls.setdefault(row["tool_use_id"], row["task_id"])

    def read_result(self, row: Row, index: int, damage: Damage) -> None:
        main = self._session.main
        before = main.totals.duration_ms or 0.0
        set_totals(main, row.get("duration_ms"), row.get("total_cost_usd"), row.get("modelUsage"))
        if main.totals.duration_ms is not None:
            main.totals.duration_ms += before
        if self._earlier_cost is not None and not _counts_on(main.version):
            main.totals.cost_usd = self._earlier_cost + (main.totals.cost_usd or 0.0)
            main.totals.usage = None
        if row.get("is_error") is True:
            turn = main.turns[-1] if main.turns else main.open_turn("turn without calls", index, None)
            if turn.error is None:
                turn.error = str(row.get("result") or row.get("subtype") or "")
        main.end_turn()


def _counts_on(version: str | None) -> bool:
    """Whether a resumed run says what the whole session cost; older versions began anew."""
    numbers = [int(number) for number in re.findall(r"\d+", version or "")]
    return numbers > [2, 1, 199]


def _renamed(row: Row) -> Row:
    return {_NAMES.get(name, name): value for name, value in row.items()}


def _compaction(said: Any) -> Row:
    facts: Row = said if isinstance(said, dict) else {}
    renamed: Row = {ours: facts.get(theirs) for theirs, ours in _COMPACTION.items()}
    messages, segment = facts.get("preserved_messages"), facts.get("preserved_segment")
    if isinstance(messages, dict):
        renamed["preservedMessages"] = messages
    elif isinstance(segment, dict):
        renamed["preservedSegment"] = {"headUuid": segment.get("head_uuid"), "tailUuid": segment.get("tail_uuid")}
    return renamed


def _retry(row: Row, log: AgentLog, index: int) -> FailedCall:
    attempt = token_count(row.get("attempt"))
    error = row.get("error")
    return FailedCall(
        index,
        log.moment(time_of(row)),
        error if isinstance(error, str) else None,
        None,
        token_count(row.get("error_status")),
        attempt=attempt - 1 if attempt else None,
    )


_READERS: dict[str, Callable[[StreamReader, Row, int, Damage], None]] = {
    "assistant": StreamReader.read_assistant,
    "stream_event": StreamReader.read_event,
    "user": StreamReader.read_user,
    "system": StreamReader.read_system,
    "result": StreamReader.read_result,
}
