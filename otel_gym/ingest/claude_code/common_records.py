"""What ``records`` does with the records that a long session is made of, for those that were read by their types."""

from __future__ import annotations

from otel_gym.ingest.claude_code.agent_log import AgentLog
from otel_gym.ingest.claude_code.common_lines import AssistantLine, Line, ResultLine, ToolUseBlock
from otel_gym.ingest.claude_code.copies import check_owner
from otel_gym.ingest.claude_code.lines import Damage
from otel_gym.ingest.claude_code.records import answered_run
from otel_gym.ingest.claude_code.session import SessionLog, key_of
from otel_gym.ingest.claude_code.tool_results import add_result
from otel_gym.records.steps import unix_nano


def read_common(session: SessionLog, log: AgentLog, line: Line, index: int, damage: Damage) -> None:
    if line.version != log.version:
        session.saw_version(log, line.version)
    if line.uuid in log.said:
        return  # the same record again
    if isinstance(line, AssistantLine):
        _read_answer(session, log, line, index)
    else:
        _read_results(log, line, index, damage)


def _read_answer(session: SessionLog, log: AgentLog, line: AssistantLine, index: int) -> None:
    if line.request_session_id is not None:
        check_owner(line.request_session_id, session.session_id)
    message, time_ns = line.message, unix_nano(line.timestamp)
    key = key_of(line.request_ref, line.request_id, message.id, line.uuid or index)
    call = log.add_call(key, index, time_ns)
    if not call.places:  # the ids are in its key
        call.response_id = message.id or None
        call.request_id = line.request_id or None
        call.request_ref = line.request_ref or None
    call.model = call.model or message.model or None
    call.requested_model = call.requested_model or line.requested_model or None
    call.effort = call.effort or line.effort or None
    call.stop_reason = message.stop_reason or call.stop_reason
    call.saw_usage_text(bytes(message.usage))
    new = [block for block in message.content if call.add_place(line.api_block_index, block)]
    for block in new:
        if type(block) is ToolUseBlock:
            log.add_run(call, block.id, block.name, block.input, index, time_ns is not None)
    if new:
        log.said[line.uuid] = tuple(new)


def _read_results(log: AgentLog, line: ResultLine, index: int, damage: Damage) -> None:
    time_ns = unix_nano(line.timestamp)
    for block in line.message.content:
        run = answered_run(log, block.tool_use_id, index, time_ns, damage)
        if run is not None:
            add_result(run, block.content, block.is_error, line.noted(), None)
            log.note_said(line.uuid, run)
