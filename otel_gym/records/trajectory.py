"""The trajectory of an agent in the shape of a Responses payload, with its steps, tools and tokens told apart.

``output`` holds each item once, in order. What the model made and what its tools gave back carry ``agent_step_no``
(from 1); user messages and context boundaries stand between the steps and carry none. A plain Responses payload is
taken as it is and given back as it was: what nobody set is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from otel_gym.records.output import output_of
from otel_gym.records.said import EXECUTION
from otel_gym.records.steps import AgentStep, Entry
from otel_gym.wire.items.shapes import Item
from otel_gym.wire.usage import TokenStats, sum_of_known

SCHEMA_VERSION = "1.0"


class ToolError(BaseModel):
    message: str | None = None
    data: Any = None


class ToolExecution(BaseModel):
    """How a tool call ran; times are ISO 8601, ``duration_ms`` is by a monotonic clock where there was one."""

    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: float | None = None
    error: ToolError | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class InputTokensDetails(BaseModel):
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int | None = None


class Usage(BaseModel):
    """Tokens; ``input_tokens`` is the whole prompt, cached tokens counted once. None: nobody said."""

    input_tokens: int | None = None
    input_tokens_details: InputTokensDetails = Field(default_factory=InputTokensDetails)
    output_tokens: int | None = None
    output_tokens_details: OutputTokensDetails = Field(default_factory=OutputTokensDetails)
    total_tokens: int | None = None


class Generation(BaseModel):
    """One answer of a model; it may have no items, where a call was killed or failed."""

    model_config = ConfigDict(protected_namespaces=())

    agent_step_no: int
    model: str | None = None
    stop_reason: str | None = None
    response_id: str | None = None
    request_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    usage: Usage = Field(default_factory=Usage)
    provider_usage: dict[str, Any] | None = None
    error: str | None = Field(default=None, description="Why the call was no success, as error_category of its record.")
    unfinished: bool = Field(default=False, description="The call was cut off before it ended.")
    extra: dict[str, Any] = Field(default_factory=dict)


class AgentTelemetry(BaseModel):
    """``source``: ``in_process``, ``transcript``, ``stream_json``, ``capture`` or ``atif``.

    ``provider_usage`` and ``total_cost_usd`` are what the harness said of the whole run, in its own words.
    ``dropped_records``: records of the source that were not understood.
    """

    schema_version: str = SCHEMA_VERSION
    agent: str | None = None
    source: str | None = None
    session_id: str | None = None
    num_agent_steps: int = 0
    duration_ms: float | None = None
    total_cost_usd: float | None = None
    provider_usage: dict[str, Any] | None = None
    dropped_records: int = 0


class Gap(BaseModel):
    """Something that is known to be missing, or that could not be joined."""

    code: str
    detail: str | None = None


def _typed(item: Any) -> Any:
    """An item that leaves out its type is a message."""
    return {"type": "message", **item} if isinstance(item, dict) and "type" not in item else item


# An item of the Responses API, any of its types, as it is. Of a tool's output ``execution`` is a ToolExecution.
TrajectoryItem = Annotated[dict[str, Any], BeforeValidator(_typed)]


class Trajectory(BaseModel):
    """One agent's run. ``subagents`` are agents that its tool calls spawned (``spawned_by`` is the call's id)."""

    output: list[TrajectoryItem] = Field(default_factory=list)
    generations: list[Generation] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage, description="Sum of the generations; subagents' are in their own.")
    agent_telemetry: AgentTelemetry = Field(default_factory=AgentTelemetry)
    agent_id: str | None = None
    spawned_by: str | None = None
    subagents: list[Trajectory] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)
    complete: bool = Field(default=True, description="Every call ended and nothing is known to be missing.")

    def items(self) -> list[Item]:
        """``output``: plain JSON objects, which are not to be changed."""
        return self.output


def trajectory_of(entries: Sequence[Entry], telemetry: AgentTelemetry, gaps: Iterable[Gap] = ()) -> Trajectory:
    """The trajectory of a list of steps."""
    steps = [entry for entry in entries if isinstance(entry, AgentStep)]
    gaps = list(gaps)
    return Trajectory.model_construct(
        output=list(output_of(entries)),
        generations=[_generation(number, step) for number, step in enumerate(steps, 1)],
        usage=usage_of(summed([step.usage for step in steps])),
        agent_telemetry=telemetry.model_copy(update={"num_agent_steps": len(steps)}),
        gaps=gaps,
        complete=not gaps and not telemetry.dropped_records and not any(step.is_unfinished for step in steps),
    )


def usage_of(stats: TokenStats) -> Usage:
    return Usage(
        input_tokens=stats.tokens_in,
        input_tokens_details=InputTokensDetails(
            cached_tokens=stats.cached_tokens, cache_creation_tokens=stats.cache_creation_tokens
        ),
        output_tokens=stats.tokens_out,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=stats.tokens_reasoning),
        total_tokens=stats.tokens_total,
    )


def summed(usages: Iterable[TokenStats]) -> TokenStats:
    """Field by field what is known; a field that none knows stays unknown."""
    known = list(usages)
    return TokenStats(**{name: sum_of_known(getattr(stats, name) for stats in known) for name in _COUNTS})


def concurrent_calls(output: Iterable[Item]) -> list[tuple[str, str]]:
    """Pairs of call ids whose executions overlapped in time, by their start and end."""
    ran = [
        (execution["started_at"], execution["completed_at"], item["call_id"])
        for item in output
        if (execution := item.get(EXECUTION)) and execution.get("started_at") and execution.get("completed_at")
    ]
    ran.sort()
    return [(one[2], other[2]) for at, one in enumerate(ran) for other in ran[at + 1 :] if other[0] < one[1]]


_COUNTS = tuple(TokenStats._fields)


def _generation(number: int, step: AgentStep) -> Generation:
    return Generation(
        agent_step_no=number,
        model=step.model,
        stop_reason=step.stop_reason,
        response_id=step.response_id,
        request_id=step.request_id,
        started_at=step.started_at,
        ended_at=step.ended_at,
        usage=usage_of(step.usage),
        provider_usage=step.provider_usage,
        error=step.error,
        unfinished=step.is_unfinished,
        extra=step.extra,
    )
