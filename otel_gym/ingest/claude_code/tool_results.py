"""The result of a tool call, as the model saw it and as the harness noted it beside."""

from __future__ import annotations

import re
from typing import Any

from otel_gym.ingest.claude_code.agent_log import ToolRun
from otel_gym.wire.items.messages import tool_result_output
from otel_gym.wire.items.shapes import objects_of

# What the harness calls it → how gym.tool.extra does. Only what is short: the output itself is the result.
_FACTS = {
    "interrupted": "interrupted",
    "timedOutAfterMs": "timed_out_after_ms",
    "backgroundTaskId": "background_task_id",
    "persistedOutputPath": "persisted_output_path",
    "persistedOutputSize": "persisted_output_size",
    "returnCodeInterpretation": "return_code_interpretation",
    "agentId": "agent_id",
    "agentType": "agent_type",
    "status": "status",
    "outputFile": "output_file",
    "durationMs": "duration_ms",
    "totalToolUseCount": "tool_use_count",
}
_FACT_TYPES = (str, int, float)  # made once: a union would be made for each value
_STREAMS = {"stdout": "has_stdout", "stderr": "has_stderr"}
_EXIT_CODE = re.compile(r"^(?:Error: )?Exit code (\d+)")
# How the result of a subagent ends where the harness keeps nothing beside it.
_AGENT_ID = re.compile(r"^agentId: (\w+)", re.MULTILINE)
_WRAPPED = re.compile(r"^<tool_use_error>(.*)</tool_use_error>$", re.DOTALL)
# How those versions put it that do not say toolDenialKind.
_REJECTED = ("The user doesn't want to proceed with this tool use", "User rejected tool use")


def add_result(run: ToolRun, content: Any, is_error: Any, noted: Any, denial: Any) -> None:
    """``noted`` is what the harness keeps beside the result; ``denial``: why the tool was not let run."""
    output = tool_result_output(content)
    run.output = output
    if isinstance(noted, dict):
        _add_facts(run.extra, noted)
    if run.prompt is not None and "agent_id" not in run.extra and (named := _AGENT_ID.search(_text_of(output))):
        run.extra["agent_id"] = named[1]
    if isinstance(is_error, bool):
        run.extra["is_error"] = is_error
    if is_error is not True:
        return
    text = _text_of(output)
    exit_code = _EXIT_CODE.match(text) or (_EXIT_CODE.match(noted) if isinstance(noted, str) else None)
    if isinstance(denial, str) or text.startswith(_REJECTED):
        run.extra["rejected"] = denial if isinstance(denial, str) else "user-rejected"
        return
    wrapped = _WRAPPED.match(text)
    run.error = {"message": wrapped[1] if wrapped else text}
    if exit_code:
        run.extra["exit_code"] = int(exit_code[1])
        run.error["data"] = {"exit_code": int(exit_code[1])}


def _add_facts(extra: dict[str, Any], noted: dict[str, Any]) -> None:
    for name, value in noted.items():
        if name in _FACTS and isinstance(value, _FACT_TYPES):
            extra[_FACTS[name]] = value
        elif name in _STREAMS and isinstance(value, str):
            extra[_STREAMS[name]] = bool(value)
    total_ms = noted.get("totalDurationMs")
    if isinstance(total_ms, int | float):
        extra["duration_ms"] = total_ms
    if noted.get("isAsync") is True or "backgroundTaskId" in noted:
        extra["is_receipt"] = True


def _text_of(output: Any) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(str(part.get("text", "")) for part in objects_of(output))


_NOTICE_FIELDS = re.compile(r"<(tool-use-id|task-id|status)>(.*?)</\1>", re.DOTALL)


def notice_of(text: str) -> dict[str, str]:
    """What a ``<task-notification>`` says of a background task that ended."""
    return dict(_NOTICE_FIELDS.findall(text))
