"""What a replay needs of a request and of a tool, and of which agent each is. Times are whole UNIX ms, as Dynamo's."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple


class MooncakeError(ValueError):
    """Records that give no trace; the text names the record, and says what to do."""


class Session(NamedTuple):
    """An agent of a rollout; ``agent`` None: calls that stand below no agent.

    ``is_said``: a Dynamo, or the harness before it, names the agent so: that name is the session's id in the trace.
    """

    rollout: str
    agent: str | None
    is_said: bool = False

    @property
    def name(self) -> str:
        if self.agent is None:
            return self.rollout
        return self.agent if self.is_said else f"{self.rollout}:{self.agent}"


@dataclass(slots=True)
class Request:
    """``hashes``: one a block of the prompt, equal where the prompts up to there are."""

    request_id: str
    session: Session
    parent: Session | None
    start_ms: int
    end_ms: int
    block_size: int
    input_length: int
    output_length: int
    hashes: array[int]
    span_id: str

    @property
    def place(self) -> str:
        return place_of(self.session.rollout, self.request_id, self.span_id)

    @property
    def order(self) -> tuple[int, int, str]:
        return self.start_ms, self.end_ms, self.request_id


def place_of(rollout: str, request_id: str, span_id: str) -> str:
    return f"rollout {rollout}, request {request_id} (span {span_id})"


@dataclass(slots=True)
class ClaudeLink:
    """What Claude Code's transcript proves of a tool: the requests that asked for it and got its result, and the agent
    that it started."""

    source_request_id: str
    consumer_request_id: str | None
    child_session_id: str | None
    execution_mode: str

    @property
    def is_background(self) -> bool:
        return self.execution_mode == "background"


@dataclass(slots=True)
class Tool:
    session: Session
    start_ms: int
    end_ms: int
    call_id: str
    tool_class: str
    status: str
    duration_ms: float
    output_bytes: int | None
    output_tokens: int | None
    error_type: str | None
    claude: ClaudeLink | None

    @property
    def place(self) -> str:
        return f"rollout {self.session.rollout}, tool {self.tool_class} {self.call_id}"


@dataclass(slots=True)
class Recorded:
    """``failed``: calls that a server refused; ``payloads``: bodies of requests that Dynamo did not record: both are no
    requests. ``of_agent_trace``: a Dynamo of 2026-06 or before recorded some of it."""

    requests: list[Request] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    failed: int = 0
    payloads: int = 0
    of_agent_trace: bool = False


@dataclass(slots=True)
class Skipped:
    """What cannot be replayed: ends the export where it must be whole, else is left out and told."""

    is_lenient: bool
    texts: list[str] = field(default_factory=list)

    def met(self, place: str, problem: str, cure: str) -> None:
        """MooncakeError unless lenient."""
        if not self.is_lenient:
            raise MooncakeError(f"{place}: {problem}; {cure}, or leave out what cannot be replayed with --lenient")
        self.texts.append(f"{place}: {problem}: left out")
