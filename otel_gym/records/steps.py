"""What an agent did, as a list of steps: the one form that a trajectory is made from.

``TrajectoryBuilder`` and the reader of spans both make this list, and ``records.trajectory`` makes the output from it.
A step is one generation and the tools that it called. Times are ISO 8601 in UTC; None means unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import field

from otel_gym.records.answers import Answer
from otel_gym.wire.items.shapes import CALL_TYPES, Item
from otel_gym.wire.usage import UNKNOWN, TokenStats


class ToolResult(msgspec.Struct):
    """What a tool gave back for one call, and how it ran.

    ``output`` is a text or a list of parts, None where there is none (the tool failed before it had one).
    """

    call_id: str | None
    output: Any = None
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: float | None = None
    error_message: str | None = None
    error_data: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    has_output: bool = True


class AgentStep(msgspec.Struct):
    """``items`` in the order in which the model made them, ``results`` in the order in which they arrived.

    ``answer``: the same as ``items``, which are not made then, where nobody asks for items. ``started_ns`` and
    ``ended_ns``: the two times as numbers, where they are at hand.

    ``error``: why the call gave no answer; ``is_unfinished``: it was cut off, by a kill for one.
    """

    items: list[Item] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    model: str | None = None
    stop_reason: str | None = None
    response_id: str | None = None
    request_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    usage: TokenStats = UNKNOWN
    provider_usage: dict[str, Any] | None = None
    error: str | None = None
    is_unfinished: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    started_ns: int | None = None
    ended_ns: int | None = None

    def start_ns(self) -> int | None:
        """When it began, in UTC nanoseconds."""
        return unix_nano(self.started_at) if self.started_ns is None else self.started_ns

    def end_ns(self) -> int | None:
        return unix_nano(self.ended_at) if self.ended_ns is None else self.ended_ns

    def calls(self) -> list[Item]:
        """Those of its items that call a tool."""
        return [item for item in self.items if item.get("type") in CALL_TYPES]


class UserMessage(msgspec.Struct):
    """What a user said: it opens a turn, or comes in the middle of one. Also what the harness said in its own name."""

    item: Item


class ContextBoundary(msgspec.Struct):
    """The context was made anew: later generations saw ``content`` instead of what came before.

    ``boundary`` as ATIF says it: ``replace``, ``append`` or ``truncate``. ``keeps_instructions``: the system and
    developer messages that the agent began with stay before it.
    """

    content: list[Item]
    kind: str = "compaction"
    boundary: str = "replace"
    trigger: str | None = None
    timestamp: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    keeps_instructions: bool = True


Entry = AgentStep | UserMessage | ContextBoundary


class AgentRun(msgspec.Struct, eq=False):
    """What one agent did, before anything is made of it. ``entries`` may be made as they are asked for, then once.

    ``spawned_by``: the id of the tool call that started it; ``gaps``: what is known to be missing, as (code, detail).
    The rest is as in ``AgentTelemetry``.
    """

    entries: Iterable[Entry]
    agent: str | None = None
    source: str | None = None
    session_id: str | None = None
    duration_ms: float | None = None
    total_cost_usd: float | None = None
    provider_usage: dict[str, Any] | None = None
    dropped_records: int = 0
    agent_id: str | None = None
    spawned_by: str | None = None
    subagents: list[AgentRun] = field(default_factory=list)
    gaps: list[tuple[str, str | None]] = field(default_factory=list)


# Neither is remembered: a cache of times that are asked for twice costs more than it saves.
def iso_time(unix_nano: int | None) -> str | None:
    """UTC nanoseconds as ISO 8601, to the microsecond (to the millisecond where it is a whole one)."""
    if unix_nano is None:
        return None
    milliseconds, rest = divmod(unix_nano, 10**6)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    digits = str(100_000 + milliseconds)  # two of seconds behind the first, which is faster than two formats
    more = f"{rest // 1000:03d}" if rest >= 1000 else ""
    return f"{_to_the_minute(minutes)}:{digits[1:3]}.{digits[3:]}{more}Z"


@lru_cache(maxsize=64)  # what follows on each other is near in time
def _to_the_minute(minutes: int) -> str:
    return datetime.fromtimestamp(minutes * 60, UTC).isoformat()[:16]


def unix_nano(iso: Any) -> int | None:
    """ISO 8601 as UTC nanoseconds; None for what is no time, names no zone, or is none that a span can have."""
    try:
        moment = datetime.fromisoformat(iso)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        return None
    since = moment - _EPOCH
    nano = (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
    return nano if 0 < nano < _TOO_LATE else None


def span_time(unix_nano: int) -> int | None:
    """The time, where a span can have it: from 1970 to 2262. Else it is unknown."""
    return unix_nano if 0 < unix_nano < _TOO_LATE else None


_TOO_LATE = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
