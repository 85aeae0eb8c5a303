"""What ``records`` does with the records that a long session is made of, for those that were read by their types."""

from __future__ import annotations

from otel_gym.ingest.claude_code.agent_log import AgentLog, Call
from otel_gym.ingest.claude_code.common_lines import AssistantLine, Block, Line, ResultLine, ToolUseBlock
from otel_gym.ingest.claude_code.lines import Damage
from otel_gym.ingest.claude_code.records import answered_run
from otel_gym.ingest.claude_code.session import SessionLog, key_of
from otel_gym.ingest.claude_code.tool_results import add_result
from otel_gym.records.steps import nano_of_text
from otel_gym.wire.usage import token_count


def read_common(session: SessionLog, log: AgentLog, line: Line, index: int, damage: Damage) -> None:
    session.saw_version(log, line.version)
    if line.uuid in log.said:
        return  # the same record again
    if isinstance(line, AssistantLine):
        _read_answer(log, line, index)
    else:
        _read_results(log, line, index, damage)


def _read_answer(log: AgentLog, line: AssistantLine, index: int) -> None:
    message, time_ns = line.message, nano_of_text(line.timestamp)
    key = key_of(line.request_ref, line.request_id, message.id, line.uuid or index)
    call = log.add_call(key, index, time_ns)
    call.response_id = call.response_id or message.id or None
    call.request_id = call.request_id or line.request_id or None
    call.request_ref = call.request_ref or line.request_ref or None
    call.model = call.model or message.model or None
    call.requested_model = call.requested_model or line.requested_model or None
    call.effort = call.effort or line.effort or None
    call.stop_reason = message.stop_reason or call.stop_reason
    call.saw_usage_text(bytes(message.usage))
    for block in message.content:
        _read_block(log, call, line, block, index, time_ns)


def _read_block(log: AgentLog, call: Call, line: AssistantLine, block: Block, index: int, time_ns: int | None) -> None:
    if not call.add_place(token_count(line.api_block_index), block):
        return
    log.note_said(line.uuid, block)
    if type(block) is ToolUseBlock:
        log.add_run(call, block.id, block.name, block.input, index, time_ns is not None)


def _read_results(log: AgentLog, line: ResultLine, index: int, damage: Damage) -> None:
    time_ns = nano_of_text(line.timestamp)
    for block in line.message.content:
        run = answered_run(log, block.tool_use_id, index, time_ns, damage)
        if run is not None:
            add_result(run, block.content, block.is_error, line.noted(), None)
            log.note_said(line.uuid, run)
