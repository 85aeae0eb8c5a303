"""Trajectories and their generations as rows of JSON, each with the run and rollout that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_gym.records.trajectory import Trajectory
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.json_lines import Row
from otel_gym.views.trajectory import trajectories


def trajectory_rows(rollouts: Iterable[RolloutSpans]) -> Iterator[Row]:
    """A row an agent that ran on its own; agents that its calls spawned stand in its ``subagents``."""
    for rollout in rollouts:
        for trajectory in trajectories(rollout):
            yield {**_place(rollout), **trajectory.model_dump()}


def generation_rows(rollouts: Iterable[RolloutSpans]) -> Iterator[Row]:
    """A row a generation, those of subagents behind those of the agent that spawned them."""
    for rollout in rollouts:
        for trajectory in trajectories(rollout):
            for agent in _with_subagents(trajectory):
                telemetry = agent.agent_telemetry
                place = {
                    **_place(rollout),
                    "agent": telemetry.agent,
                    "agent_id": agent.agent_id,
                    "spawned_by": agent.spawned_by,
                    "source": telemetry.source,
                    "session_id": telemetry.session_id,
                }
                for generation in agent.generations:
                    yield {**place, **generation.model_dump()}


def _place(rollout: RolloutSpans) -> Row:
    return {"run_id": rollout.run_id, "rollout_id": rollout.rollout_id}


def _with_subagents(trajectory: Trajectory) -> Iterator[Trajectory]:
    yield trajectory
    for subagent in trajectory.subagents:
        yield from _with_subagents(subagent)
