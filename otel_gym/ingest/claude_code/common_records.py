"""What ``records`` does with the records that a long session is made of, for those that were read by their types."""

from __future__ import annotations

from otel_gym.ingest.claude_code.agent_log import AgentLog, Call, ToolRun
from otel_gym.ingest.claude_code.common_lines import AssistantLine, Block, Line, ResultLine, ToolUseBlock
from otel_gym.ingest.claude_code.lines import Damage, json_text
from otel_gym.ingest.claude_code.records import answered_run, is_agent_tool
from otel_gym.ingest.claude_code.session import SessionLog
from otel_gym.ingest.claude_code.tool_results import add_result
from otel_gym.records.steps import nano_of_text


def read_common(session: SessionLog, log: AgentLog, line: Line, index: int, damage: Damage) -> None:
    if line.version != log.version:
        log.version = line.version
        session.versions.append(line.version)
    if line.uuid in log.said:
        return  # the same record again
    if isinstance(line, AssistantLine):
        _read_answer(log, line, index)
    else:
        _read_results(log, line, index, damage)


def _read_answer(log: AgentLog, line: AssistantLine, index: int) -> None:
    message, time_ns = line.message, nano_of_text(line.timestamp)
    key = f"{line.request_ref or '-'} {line.request_id or '-'} {message.id or '-'}"
    call = log.add_call(key if key != _NO_IDS else f"record {line.uuid or index}", index, time_ns)
    if not call.places:
        # All of its lines have the same: its key is made of them.
        call.response_id, call.request_id = message.id or None, line.request_id or None
        call.request_ref = line.request_ref or None
    call.model = call.model or message.model or None
    call.requested_model = call.requested_model or line.requested_model or None
    call.effort = call.effort or line.effort or None
    call.stop_reason = message.stop_reason or call.stop_reason
    if isinstance(message.usage, dict) and message.usage != call.usage:  # else the line repeats it
        call.saw_usage(message.usage)
    number = line.api_block_index
    for block in message.content:
        _read_block(log, call, line.uuid, None if number is None or number < 0 else number, block, index, time_ns)


_NO_IDS = "- - -"


def _read_block(
    log: AgentLog, call: Call, uuid: str, number: int | None, block: Block, index: int, time_ns: int | None
) -> None:
    if not call.add_place(number, block):
        return
    log.note_said(uuid, block)
    if type(block) is not ToolUseBlock:
        return
    given = block.input
    block.arguments, block.input = json_text(given), {}
    if block.id and block.id not in log.runs:
        run = ToolRun(block.id, block.name, str(block.arguments), index, log.last_ns, time_ns is not None)
        if is_agent_tool(block.name):
            run.is_for_agent(given)
        log.runs[block.id] = run
        call.runs.append(run)


def _read_results(log: AgentLog, line: ResultLine, index: int, damage: Damage) -> None:
    time_ns = nano_of_text(line.timestamp)
    for block in line.message.content:
        run = answered_run(log, block.tool_use_id, index, time_ns, damage)
        if run is not None:
            add_result(run, block.content, block.is_error, line.tool_use_result, None)
            log.note_said(line.uuid, run)
