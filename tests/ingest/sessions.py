"""Sessions of Claude Code for the tests: recorded ones, and records made for one trap each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.span import StoredSpan

RECORDED = Path(__file__).parent.parent / "fixtures" / "claude_code"
USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 9}


def write_session(path: Path, records: Iterable[dict[str, Any] | str]) -> Path:
    """One record a second, each with what every record has; a text is a line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for second, record in enumerate(records):
        if isinstance(record, str):
            lines.append(record)
            continue
        stamp = {"uuid": f"{path.stem}-{second}", "timestamp": f"2026-11-29T00:00:{second:02}.000Z"}
        lines.append(json.dumps({"sessionId": "S1", "version": "2.1.332", **stamp, **record}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return path


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def answer(message_id: str | None, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": "toy-c", "content": list(blocks), "usage": USAGE}
    if message_id is None:
        del message["id"]
    return {"type": "assistant", "message": {**message, **more.pop("message", {})}, **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(call_id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": content, **more.pop("block", {})}], **more)


class Spans:
    """Spans of rollouts as a reader finds them."""

    def __init__(self, rollouts: ImportedRollout | list[ImportedRollout]) -> None:
        self.rollouts = rollouts if isinstance(rollouts, list) else [rollouts]
        self.all: list[StoredSpan] = [span for rollout in self.rollouts for span in stored_spans(rollout)]

    def named(self, operation: str) -> list[StoredSpan]:
        return [span for span in self.all if span.attributes.get("gen_ai.operation.name") == operation]

    @property
    def chats(self) -> list[StoredSpan]:
        return self.named("chat")

    @property
    def tools(self) -> list[StoredSpan]:
        return self.named("execute_tool")

    @property
    def turns(self) -> list[StoredSpan]:
        return self.named("invoke_agent")

    @property
    def steps(self) -> list[StoredSpan]:
        return [span for span in self.all if span.name == "agent_step"]

    def tool(self, call_id: str) -> StoredSpan:
        [span] = [span for span in self.tools if span.attributes["gen_ai.tool.call.id"] == call_id]
        return span

    def events(self, name: str) -> list[dict[str, Any]]:
        return [dict(event.attributes) for span in self.turns for event in span.events if event.name == name]

    def said_by_users(self) -> list[str]:
        """What opened turns or came in their middle, not what the harness wrote in the user's name."""
        items = [json.loads(event["gym.item"]) for event in self.events("gym.user_message")]
        return [item["content"][0]["text"] for item in items if item.get("origin") != "harness"]


def read(path: Path) -> Spans:
    return Spans(read_claude_code(path))


def items(span: StoredSpan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(span.attributes["gym.output.items"])
    return found


def extra(span: StoredSpan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(span.attributes.get("gym.tool.extra", "{}"))
    return found
