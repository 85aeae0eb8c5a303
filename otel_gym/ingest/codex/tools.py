"""What a tool call was, what it gave back, how it ran and whether it failed."""

from __future__ import annotations

import json
import re
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import finite_number, known
from otel_gym.ingest.codex.rows import JsonObject, object_of, text_of
from otel_gym.ingest.codex.turns import INTERRUPTED, Call, Turn
from otel_gym.wire.items.shapes import Item, compact_json

# What only repeats other parts of the record.
_REPEATED_FACTS = frozenset({"id", "call_id", "turn_id", "thread_id", "parsed_cmd", "stdout", "formatted_output"})
_REPEATED_ITEM_PARTS = frozenset({"type", "id", "call_id", "name", "arguments", "input", "status"})
_FAILED_STATUSES = frozenset({"failed", "error"})

# Codex tells of a call that it could not run in the text for the model alone.
_REFUSALS = (
    "apply_patch verification failed",
    "collab spawn failed",
    "exec_command failed",
    "failed to parse function arguments",
    "invalid agent id",
    "tool call error:",
    "unable to locate image",
    "unsupported call:",
    "unsupported custom tool call:",
)
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.MULTILINE)
_ABORTED = re.compile(r"(?:Wall time: [\d.]+ seconds\n)?(?:command )?aborted\b", re.IGNORECASE)


def name_of(item: Item) -> str:
    """Of a call whose type is its name (``tool_search_call``), the type."""
    return text_of(item, "name") or str(item.get("type")).removesuffix("_call")


def arguments_of(item: Item) -> str | None:
    """JSON; a function's arguments as the model wrote them."""
    arguments = item.get("arguments", item.get("action"))
    if isinstance(arguments, str):
        return arguments
    if arguments is not None:
        return compact_json(arguments)
    return compact_json({"input": item["input"]}) if "input" in item else None


def result_of(output: Item | None) -> str | None:
    if output is None:
        return None
    value = output.get("output")
    if isinstance(value, dict) and "content" in value:
        value = value["content"]
    if value is None:
        value = {name: part for name, part in output.items() if name not in _REPEATED_ITEM_PARTS}
    return compact_json({"content": value} if isinstance(value, str) else value)


def tool_attributes(call: Call, turn: Turn) -> dict[str, Any]:
    """Attributes of its span; ``gym.tool.error`` only where the tool failed."""
    error = error_of(call, turn)
    extra = extra_of(call, turn)
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name_of(call.item),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.call_id,
        "gen_ai.tool.call.arguments": arguments_of(call.item),
        "gen_ai.tool.call.result": result_of(call.output),
        names.SOURCE_INDEX: call.row.index,
        names.TOOL_INDEX: call.arrival or None,
        names.TOOL_EXTRA: compact_json(extra) if extra else None,
        names.TOOL_ERROR: compact_json(error) if error else None,
        "error.type": "tool_error" if error else None,
    }


def error_of(call: Call, turn: Turn) -> JsonObject | None:
    """What ``gym.tool.error`` says; a call that the user stopped, or that outlived its result, did not fail."""
    if was_aborted(call, turn) or _ended_with_session(call):
        return None
    text = _text_of_output(call.output)
    if text.startswith(_REFUSALS):
        return {"message": text}
    exit_code, status = exit_code_of(call), text_of(call.facts, "status")
    if exit_code in (None, 0) and status not in _FAILED_STATUSES and not _told_failure(call):
        return None
    data = known({"exit_code": exit_code, "status": status})
    return {"message": _message(call, exit_code, text), **({"data": data} if data else {})}


def ended_ns(call: Call, turn: Turn) -> int | None:
    """When its result was there; None: nothing tells that it ended.

    A result is written behind those of the calls before it, and not before the answer has ended: where Codex told
    earlier that the tool was done, that counts.
    """
    if call.output_row is None:
        return None if turn.end_ns is None else max(turn.end_ns, call.row.time_ns)
    written_ns = max(call.output_row.time_ns, call.row.time_ns)
    told_ms = call.facts.get("completed_at_ms")
    told_ns = told_ms * 10**6 if type(told_ms) is int else written_ns
    return told_ns if call.row.time_ns <= told_ns <= written_ns else written_ns


def extra_of(call: Call, turn: Turn) -> JsonObject:
    """What Codex told of the run. Its own duration begins late: it is kept under the name that Codex gives it."""
    facts = {name: value for name, value in call.facts.items() if name not in _REPEATED_FACTS and value is not None}
    extra: JsonObject = {"kind": facts.pop("type")} if "type" in facts else {}
    seconds = _seconds(facts.pop("duration", None))
    if seconds is not None:
        extra["reported_duration_ms"] = round(seconds * 1000, 6)
    for name in ("started_at_ms", "completed_at_ms"):
        if name in facts:
            extra[f"reported_{name}"] = facts.pop(name)
    output = facts.get("aggregated_output")
    if isinstance(output, str) and output in _text_of_output(call.output):
        del facts["aggregated_output"]
    extra |= facts
    exit_code = exit_code_of(call)
    if exit_code is not None:
        extra["exit_code"] = exit_code
    if "namespace" in call.item:
        extra["namespace"] = call.item["namespace"]
    if was_aborted(call, turn):
        extra["aborted"] = True
    return extra


def was_aborted(call: Call, turn: Turn) -> bool:
    """Stopped by the user: its turn was, and it gave no result of its own."""
    if turn.end != INTERRUPTED:
        return False
    if call.output is None or call.facts.get("exit_code") == -1:
        return True
    return _ABORTED.match(_text_of_output(call.output)) is not None


def exit_code_of(call: Call) -> int | None:
    """As Codex told, else as the text for the model says in its head."""
    told = call.facts.get("exit_code")
    if type(told) is int:
        return told
    former = _former_metadata(_text_of_output(call.output))
    if type(former.get("exit_code")) is int:
        return int(former["exit_code"])
    head, _, _ = _text_of_output(call.output).partition("\nOutput:\n")
    found = _EXIT_CODE.search(head) if name_of(call.item) in _WITH_EXIT_CODE else None
    return int(found.group(1)) if found else None


def _former_metadata(text: str) -> JsonObject:
    """What former versions told the model beside a command's output, as JSON."""
    if not text.startswith('{"output":'):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return object_of(value, "metadata") if isinstance(value, dict) else {}


_WITH_EXIT_CODE = frozenset({"exec_command", "write_stdin", "shell", "shell_command", "local_shell", "apply_patch"})


def _ended_with_session(call: Call) -> bool:
    """A command in the background that Codex ended after its result had been given."""
    if call.output_row is None or call.facts_line < call.output_row.line:
        return False
    return call.facts.get("exit_code") == -1


def _told_failure(call: Call) -> bool:
    output = (call.output or {}).get("output")
    said = output.get("success") if isinstance(output, dict) else None
    return False in (said, call.facts.get("success")) or bool(_fault(call))


def _fault(call: Call) -> str | None:
    """The error of an MCP call, say; its result may be ``{"Err": …}`` in events."""
    error: Any = call.facts.get("error") or object_of(call.facts, "result").get("Err")
    if isinstance(error, dict):
        return text_of(error, "message") or compact_json(error)
    return error if isinstance(error, str) and error else None


def _message(call: Call, exit_code: int | None, text: str) -> str:
    if exit_code not in (None, 0):
        return f"Exit code {exit_code}"
    return _fault(call) or text_of(call.facts, "stderr") or text or "failed"


def _seconds(duration: Any) -> float | None:
    if not isinstance(duration, dict):
        return None
    seconds, nanos = finite_number(duration.get("secs")), finite_number(duration.get("nanos"))
    return None if seconds is None or nanos is None else seconds + nanos / 10**9


def _text_of_output(output: Item | None) -> str:
    value: Any = (output or {}).get("output")
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
