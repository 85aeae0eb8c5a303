"""Which tool call started which subagent."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gym.ingest.claude_code.agent_log import AgentLog, ToolRun, UserNote
from otel_gym.ingest.claude_code.lines import json_text
from otel_gym.ingest.claude_code.session import SessionLog


def spawned_by_runs(session: SessionLog) -> dict[int, list[AgentLog]]:
    """The subagents that each tool run started: by their own notes, by the run's result, at last by the prompt."""
    spawned: dict[int, list[AgentLog]] = {}
    left = list(session.agents.values())
    for find in (_run_named, _run_of_result, _run_of_prompt):
        unknown: list[AgentLog] = []
        for log in left:
            others = [other for other in (session.main, *session.agents.values()) if other is not log]
            run = find(log, others, session, spawned)
            if run is None:
                unknown.append(log)
            else:
                spawned.setdefault(id(run), []).append(log)
        left = unknown
    return spawned


_Spawned = dict[int, list[AgentLog]]


def _run_named(log: AgentLog, others: Iterable[AgentLog], session: SessionLog, spawned: _Spawned) -> ToolRun | None:
    if log.spawned_by is None:
        return None
    parent = session.agents.get(log.parent_agent_id or "")
    first = [parent] if parent is not None and parent is not log else []
    return next((other.runs[log.spawned_by] for other in [*first, *others] if log.spawned_by in other.runs), None)


def _run_of_result(log: AgentLog, others: Iterable[AgentLog], session: SessionLog, spawned: _Spawned) -> ToolRun | None:
    runs = (run for other in others for run in other.runs.values())
    return next((run for run in runs if run.extra.get("agent_id") == log.agent_id), None)


def _run_of_prompt(log: AgentLog, others: Iterable[AgentLog], session: SessionLog, spawned: _Spawned) -> ToolRun | None:
    """A call whose result is not there yet names no agent."""
    first = next((note for turn in log.turns for note in turn.notes if isinstance(note, UserNote)), None)
    for run in (run for other in others for run in other.runs.values()):
        if first is None or run.prompt is None or id(run) in spawned:
            continue
        if json_text(run.prompt) in first.item:
            return run
    return None


def unspawned_first(session: SessionLog, spawned: _Spawned) -> list[AgentLog]:
    """Agents that no call is known to have started come before the others, of which those of a circle are left."""
    by_call = {log.agent_id for logs in spawned.values() for log in logs}
    return sorted(session.agents.values(), key=lambda log: log.agent_id in by_call)
