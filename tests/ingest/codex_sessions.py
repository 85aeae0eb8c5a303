"""Sessions of Codex 0.171.0 in the form that tests read, and ways to make others of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_gym.ingest.codex import read_codex
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.span import StoredSpan

SESSIONS = Path(__file__).parent.parent / "fixtures" / "codex"
PRINTED = SESSIONS / "printed"

Record = dict[str, Any]


class Spans:
    """The spans of one rollout by what they are."""

    def __init__(self, rollout: ImportedRollout) -> None:
        self.rollout = rollout
        self.all = stored_spans(rollout)
        self._by_id = {span.span_id: span for span in self.all}

    def of(self, operation: str) -> list[StoredSpan]:
        return [span for span in self.all if span.attributes.get("gen_ai.operation.name") == operation]

    @property
    def turns(self) -> list[StoredSpan]:
        return self.of("invoke_agent")

    @property
    def chats(self) -> list[StoredSpan]:
        return self.of("chat")

    @property
    def tools(self) -> list[StoredSpan]:
        return self.of("execute_tool")

    @property
    def steps(self) -> list[StoredSpan]:
        return [span for span in self.all if span.name == "agent_step"]

    def parent(self, span: StoredSpan) -> StoredSpan:
        return self._by_id[span.parent_span_id or ""]

    def below(self, span: StoredSpan) -> list[StoredSpan]:
        return [other for other in self.all if other.parent_span_id == span.span_id]


def only(path: Path) -> Spans:
    [rollout] = read_codex(path)
    return Spans(rollout)


def session(name: str) -> Spans:
    return only(SESSIONS / name)


def records(name: str, file: int = 0) -> list[Record]:
    path = sorted((SESSIONS / name / "sessions").iterdir())[file]
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write(directory: Path, lines: Iterable[Mapping[str, Any] | str], thread: str = "t") -> Path:
    """A session file of these records; a text is a line as it is."""
    path = directory / f"rollout-2026-11-29T23-32-14-{thread}.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    path.write_text("".join(texts), "utf-8")
    return path


def until(lines: Sequence[Record], kind: str, nth: int = 1) -> list[Record]:
    """The records up to the nth of a kind: a record's type, or that of its payload. It is among them."""
    places = [place for place, line in enumerate(lines) if kind in (line["type"], line["payload"].get("type"))]
    return list(lines[: places[nth - 1] + 1])


def event(lines: Sequence[Record], **payload: Any) -> Record:
    """An event right behind the last record."""
    return {**lines[-1], "ordinal": lines[-1]["ordinal"] + 1, "type": "event_msg", "payload": payload}


def attribute(span: StoredSpan, name: str) -> Any:
    """The value of an attribute that is JSON."""
    return json.loads(span.attributes[name])


def said(span: StoredSpan) -> list[tuple[str, Any]]:
    return [
        (event.name, json.loads(event.attributes["gym.item"]))
        for event in span.events
        if "gym.item" in event.attributes
    ]
