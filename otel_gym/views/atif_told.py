"""What an ATIF document is made from: an agent's items and generations, of a trajectory or as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from otel_gym.content import known
from otel_gym.records.output import boundary_item, items_of_step, said_item
from otel_gym.records.steps import AgentRun, AgentStep, ContextBoundary, UserMessage
from otel_gym.wire.items.shapes import Item
from otel_gym.wire.usage import TokenStats

if TYPE_CHECKING:
    from otel_gym.records.trajectory import Generation, Trajectory


@dataclass(slots=True)
class Told:
    """``items`` gives them once, and ``generations`` holds each one before its items come. What is said of all of them
    is known when the last was taken.
    """

    run: AgentRun
    items: Callable[[], Iterable[Item]]
    generations: dict[int, AgentStep] = field(default_factory=dict)
    subagents: list[Told] = field(default_factory=list)
    has_generations: bool = True
    gaps: list[dict[str, Any]] = field(default_factory=list)
    is_known_complete: bool | None = None
    models: set[str | None] = field(default_factory=set)
    without_usage: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    _is_unfinished: bool = False

    def saw(self, step: AgentStep) -> None:
        self.models.add(step.model)
        self.without_usage += step.usage.tokens_in is None
        self._is_unfinished = self._is_unfinished or step.is_unfinished
        if step.started_at is not None:
            self.started_at = min(self.started_at or step.started_at, step.started_at)
        if step.ended_at is not None:
            self.ended_at = max(self.ended_at or step.ended_at, step.ended_at)

    def is_complete(self) -> bool:
        if self.is_known_complete is not None:
            return self.is_known_complete
        return not self.run.dropped_records and not self._is_unfinished


def told_by_run(run: AgentRun) -> Told:
    told = Told(run, lambda: _items_of(run, told))
    told.subagents = [told_by_run(subagent) for subagent in run.subagents]
    return told


def _items_of(run: AgentRun, told: Told) -> Iterator[Item]:
    number = 0
    for entry in run.entries:
        if isinstance(entry, UserMessage):
            yield said_item(entry.item)
        elif isinstance(entry, ContextBoundary):
            yield boundary_item(entry)
        else:
            number += 1
            told.generations[number] = entry
            told.saw(entry)
            yield from items_of_step(entry, number)


def told_by_trajectory(trajectory: Trajectory) -> Told:
    telemetry = trajectory.agent_telemetry
    run = AgentRun(
        (),
        agent=telemetry.agent,
        source=telemetry.source,
        session_id=telemetry.session_id,
        duration_ms=telemetry.duration_ms,
        total_cost_usd=telemetry.total_cost_usd,
        provider_usage=telemetry.provider_usage,
        dropped_records=telemetry.dropped_records,
        agent_id=trajectory.agent_id,
        spawned_by=trajectory.spawned_by,
    )
    generations = sorted(trajectory.generations, key=lambda generation: generation.agent_step_no)
    told = Told(
        run,
        trajectory.items,
        {generation.agent_step_no: _step_of(generation) for generation in generations},
        [told_by_trajectory(subagent) for subagent in trajectory.subagents],
        bool(generations),
        [known(gap.model_dump()) for gap in trajectory.gaps],
        trajectory.complete,
    )
    for step in told.generations.values():
        told.saw(step)
    return told


def _step_of(generation: Generation) -> AgentStep:
    usage = generation.usage
    return AgentStep(
        model=generation.model,
        stop_reason=generation.stop_reason,
        response_id=generation.response_id,
        request_id=generation.request_id,
        started_at=generation.started_at,
        ended_at=generation.ended_at,
        usage=TokenStats(
            usage.input_tokens,
            usage.output_tokens,
            usage.output_tokens_details.reasoning_tokens,
            usage.total_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.input_tokens_details.cache_creation_tokens,
        ),
        error=generation.error,
        is_unfinished=generation.unfinished,
        extra=generation.extra,
    )
