"""Makes a long session of Claude Code: 54,000 lines, 70 MB, with known token totals.

    python bench/large_session.py FILE [--lines N]

The lines are shaped as those of 2.1.332: one a content block, the usage repeated on each; parallel calls; results with
``toolUseResult`` beside them; attachments between. Texts are source code of this Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spans import source_text

LINES = 54_000
SESSION = "6f1c2f0a-5f3e-4a8e-9a54-0d1b8c0e7a11"
MODEL = "claude-sonnet-4-6"


@dataclass
class Totals:
    """What a right reader counts; the prompt counts its cache once."""

    generations: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class _Session:
    def __init__(self, seed: int) -> None:
        self.totals = Totals()
        self._draw = random.Random(seed)
        self._text = source_text(2)
        self._parent: str | None = None
        self._uuids = 0
        self._milliseconds = 1_795_996_383_000

    def lines(self) -> Iterator[dict[str, Any]]:
        while True:
            yield self._line("user", {"message": {"role": "user", "content": self.text(400)}})
            for _ in range(self._draw.randint(3, 12)):
                yield from self._generation()

    def text(self, most: int) -> str:
        length = min(most * 6, int(self._draw.lognormvariate(5.4, 1)) * most // 400 + 20)
        start = self._draw.randrange(len(self._text) - length)
        return self._text[start : start + length]

    def _generation(self) -> Iterator[dict[str, Any]]:
        self.totals.generations += 1
        number = self.totals.generations
        usage = self._usage(number)
        calls = [f"toolu_{number:06d}{place}" for place in range(self._draw.choice((0, 1, 1, 1, 2, 3)))]
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": self.text(600), "signature": "ZmFrZQ=="}]
        blocks.append({"type": "text", "text": self.text(300)})
        for call in calls:
            arguments = {"command": self.text(200), "description": "as asked"}
            blocks.append({"type": "tool_use", "id": call, "name": "Bash", "input": arguments})
        for place, block in enumerate(blocks):
            message = {
                "id": f"msg_{number:08d}",
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "content": [block],
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": usage,
            }
            yield self._line(
                "assistant", {"message": message, "apiBlockIndex": place, "requestId": f"req_{number:08d}"}
            )
        for call in calls:
            yield self._result(call)
        if self._draw.random() < 0.1:
            yield self._line("attachment", {"attachment": {"type": "total_tokens_reminder", "tokens": 1_000_000}})

    def _usage(self, number: int) -> dict[str, Any]:
        uncached, written = self._draw.randint(1, 9), self._draw.randint(100, 900)
        cached, completion = 20_000 + 50 * (number % 2000), self._draw.randint(50, 700)
        self.totals.prompt_tokens += uncached + written + cached
        self.totals.completion_tokens += completion
        self.totals.cached_tokens += cached
        return {
            "input_tokens": uncached,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "output_tokens": completion,
            "output_tokens_details": {"thinking_tokens": 0},
            "service_tier": "standard",
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": written},
        }

    def _result(self, call: str) -> dict[str, Any]:
        output = self.text(900)
        block = {"tool_use_id": call, "type": "tool_result", "content": output, "is_error": False}
        result = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        return self._line("user", {"message": {"role": "user", "content": [block]}, "toolUseResult": result})

    def _line(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._uuids += 1
        self._milliseconds += self._draw.randint(5, 900)
        uuid = f"00000000-0000-4000-8000-{self._uuids:012d}"
        seconds, rest = divmod(self._milliseconds, 1000)
        line = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": f"{_utc(seconds)}.{rest:03d}Z",
            "userType": "external",
            "entrypoint": "sdk-cli",
            "cwd": "/workspace",
            "sessionId": SESSION,
            "version": "2.1.332",
            "gitBranch": "HEAD",
        }
        self._parent = uuid
        return line


def _utc(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def make_session(path: Path, lines: int = LINES, seed: int = 1) -> Totals:
    """Writes at least so many lines, up to the end of a generation; returns what it holds."""
    session = _Session(seed)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for line in session.lines():
            is_between = line["type"] == "user" and "toolUseResult" not in line
            if written >= lines and is_between:
                return session.totals
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            written += 1
    raise AssertionError("a session never ends by itself")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=LINES)
    options = parser.parse_args()
    print(make_session(options.file, options.lines), f"{options.file.stat().st_size / 10**6:.1f} MB")


if __name__ == "__main__":
    main()
