"""What a line of ``wire.jsonl`` says by itself: who sent it, which calls it completed, why no transcript has it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from otel_gym.wire.bodies import decode_body
from otel_gym.wire.sse import SseFramer

Line = dict[str, Any]

_BASE64 = "base64:"
_TERMINAL = frozenset({"message_stop", "response.completed", "response.incomplete"})
_FAILURES = frozenset({"error", "response.failed"})
_CLAUDE_SESSION = re.compile(r"session_?(?:id)?[\"\\:_ ]+([0-9a-f]{8}-[0-9a-f-]{27})")
# How Claude Code and Codex ask for a summary of what was said so far.
_COMPACTION_PROMPTS = (
    "Your task is to create a detailed summary",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools",
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
)


def session_of(line: Line) -> str | None:
    """The root session that sent it: by header, or, in older versions of Claude Code, by the metadata of its body."""
    headers = headers_of(line, "request_headers")
    for name in ("x-claude-code-session-id", "session-id"):
        if name in headers:
            return headers[name]
    user_id = str((request_of(line).get("metadata") or {}).get("user_id"))
    found = _CLAUDE_SESSION.search(user_id)
    return found[1] if found else None


def headers_of(line: Line, name: str) -> dict[str, str]:
    given = line.get(name) or []
    pairs = given.items() if isinstance(given, dict) else given
    return {str(key).lower(): str(value) for key, value in pairs}


def request_of(line: Line) -> dict[str, Any]:
    body = line.get("request_body")
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return {}
    return body if isinstance(body, dict) else {}


def response_body(line: Line) -> bytes:
    parts = []
    for _, text in line.get("chunks") or []:
        is_binary = text.startswith(_BASE64)
        parts.append(
            base64.b64decode(text.removeprefix(_BASE64)) if is_binary else text.encode("utf-8", "surrogatepass")
        )
    body = b"".join(parts)
    coding = headers_of(line, "response_headers").get("content-encoding")
    return decode_body(body, coding).content if coding else body


def events_of(line: Line) -> Iterator[dict[str, Any]]:
    """The objects that were streamed."""
    framer = SseFramer()
    for event in [*framer.feed(response_body(line)), *framer.close()]:
        try:
            value = json.loads(event.data)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def plain_response(line: Line) -> dict[str, Any]:
    try:
        value = json.loads(response_body(line))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def completed_calls(line: Line) -> list[tuple[Any, Any]]:
    """(id, name) of each tool call of which the wire brought the end."""
    calls: list[tuple[Any, Any]] = []
    started: dict[Any, tuple[Any, Any]] = {}
    for event in events_of(line):
        kind, block, item = event.get("type"), event.get("content_block") or {}, event.get("item") or {}
        if kind == "content_block_start" and block.get("type") == "tool_use":
            started[event.get("index")] = (block.get("id"), block.get("name"))
        elif kind == "content_block_stop" and event.get("index") in started:
            calls.append(started.pop(event.get("index")))
        elif kind == "response.output_item.done" and item.get("type") in ("function_call", "custom_tool_call"):
            calls.append((item.get("call_id"), item.get("name")))
    content = plain_response(line).get("content")
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            calls.append((block.get("id"), block.get("name")))
    return calls


def result_errors(lines: Iterable[Line]) -> dict[str, bool]:
    """tool_use_id → is_error, as requests sent it."""
    sent: dict[str, bool] = {}
    for line in lines:
        for message in request_of(line).get("messages") or []:
            content = message.get("content")
            for block in content if isinstance(content, list) else ():
                if block.get("type") == "tool_result":
                    sent.setdefault(block.get("tool_use_id"), block.get("is_error") is True)
    return sent


def reason_of(line: Line, lines: list[Line], has_session: bool) -> str | None:
    """Why no transcript tells of the exchange; None: it should."""
    if not has_session:
        return "failed" if _has_failed(line) else "no_session_file"
    if _has_failed(line):
        return "failed"
    if _asks_for_a_summary(line):
        return "compaction"
    if not _is_delivered(line):
        return "not_delivered"
    if not _has_content(line):
        return "empty_reply"
    if not request_of(line).get("tools"):
        return "auxiliary"
    return None


def _has_failed(line: Line) -> bool:
    if line.get("ended") == "server_drop_no_response" or (line.get("status") or 200) >= 400:
        return True
    return any(event.get("type") in _FAILURES for event in events_of(line))


def _is_delivered(line: Line) -> bool:
    events = list(events_of(line))
    if events:
        return any(event.get("type") in _TERMINAL for event in events)
    return bool(plain_response(line)) and line.get("ended") == "complete"


def _has_content(line: Line) -> bool:
    if plain_response(line).get("content") or plain_response(line).get("output"):
        return True
    return any(event.get("type") in ("content_block_start", "response.output_item.done") for event in events_of(line))


def _asks_for_a_summary(line: Line) -> bool:
    metadata = headers_of(line, "request_headers").get("x-codex-turn-metadata", "")
    if '"request_kind":"compaction"' in metadata.replace(" ", ""):
        return True
    request = request_of(line)
    said = request.get("messages") or request.get("input") or []
    last = json.dumps(said[-1], ensure_ascii=False) if said else ""
    return any(prompt in last for prompt in _COMPACTION_PROMPTS)
