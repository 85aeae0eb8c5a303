"""What a thread is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_gym.ingest.codex.rows import JsonObject, Row
from otel_gym.wire.items.shapes import Item


@dataclass(slots=True)
class Call:
    """A tool call; ``output`` is the item that answered it, ``facts`` what Codex told of how it ran."""

    row: Row
    item: Item
    output_row: Row | None = None
    output: Item | None = None
    arrival: int = 0
    facts: JsonObject = field(default_factory=dict)
    facts_line: int = -1

    @property
    def call_id(self) -> str:
        return str(self.item["call_id"])


@dataclass(slots=True)
class Generation:
    """``is_over``: it ended, or something else follows it; ``is_whole``: Codex got its end, and so its usage.

    ``last_ns`` is the time of the last record of it.
    """

    first: Row
    start_ns: int
    last_ns: int
    key: int | None
    model: str | None
    effort: str | None
    items: list[Item] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    is_over: bool = False
    is_whole: bool = False
    is_compaction: bool = False
    response_id: str | None = None
    usage: JsonObject | None = None


@dataclass(slots=True)
class Said:
    """What stands between generations: a message of the user or of the harness, a boundary, a fault."""

    kind: str
    row: Row
    item: Item


USER, CONTEXT, BOUNDARY, FAULT = "user", "context", "boundary", "fault"
COMPLETED, FAILED, INTERRUPTED = "completed", "failed", "interrupted"


@dataclass(slots=True)
class Turn:
    """``end`` None: the file ends, or goes on with another turn, and never told how this one ended."""

    first: Row
    parent_turn_id: str | None = None
    turn_id: str | None = None
    is_told: bool = True
    generations: list[Generation] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    end: str | None = None
    end_ns: int | None = None
    error: JsonObject | None = None
    duration_ms: float | None = None
    usage: JsonObject | None = None

    @property
    def hands_over(self) -> bool:
        """Whether the agent's last word asked for no tool."""
        return bool(self.generations) and not self.generations[-1].calls
