"""What an ATIF document is made from: an agent's items and generations, of a trajectory or as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_gym.content import known
from otel_gym.records.steps import AgentRun, AgentStep, Entry
from otel_gym.views.atif_steps import Json, Steps
from otel_gym.wire.usage import TokenStats

if TYPE_CHECKING:
    from otel_gym.records.trajectory import Generation, Trajectory


@dataclass(slots=True)
class Told:
    """``steps`` gives, once, what a maker of steps makes of it. What is said of all of them is known when the last was
    taken.
    """

    run: AgentRun
    steps: Callable[[Steps], Iterator[Json]]
    subagents: list[Told] = field(default_factory=list)
    has_generations: bool = True
    gaps: list[Json] = field(default_factory=list)
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
        start, end = step.started_at, step.ended_at
        if start is not None and (self.started_at is None or start < self.started_at):
            self.started_at = start
        if end is not None and (self.ended_at is None or end > self.ended_at):
            self.ended_at = end

    def is_complete(self) -> bool:
        if self.is_known_complete is not None:
            return self.is_known_complete
        return not (self.gaps or self.run.dropped_records or self._is_unfinished)


def told_by_run(run: AgentRun) -> Told:
    told = Told(run, lambda steps: steps.made_of(_seen(run.entries, told)))
    told.gaps = [known({"code": code, "detail": detail}) for code, detail in run.gaps]
    told.subagents = [told_by_run(subagent) for subagent in run.subagents]
    return told


def _seen(entries: Iterable[Entry], told: Told) -> Iterator[Entry]:
    for entry in entries:
        if isinstance(entry, AgentStep):
            told.saw(entry)
        yield entry


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
    steps = {generation.agent_step_no: _step_of(generation) for generation in generations}
    told = Told(
        run,
        lambda maker: maker.made(trajectory.items(), dict(steps)),
        [told_by_trajectory(subagent) for subagent in trajectory.subagents],
        bool(generations),
        [known(gap.model_dump()) for gap in trajectory.gaps],
        trajectory.complete,
    )
    for step in steps.values():
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
