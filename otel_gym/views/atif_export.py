"""A rollout → its ATIF files: the document of each agent, what it refers to, and media.

What was imported from ATIF comes back as it was; all else is made from its trajectory.
"""

from __future__ import annotations

import json

from otel_gym import conventions as names
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.atif import atif_of
from otel_gym.views.atif_spans import atif_files_of_spans
from otel_gym.views.rewards import reward_of
from otel_gym.views.trajectory import trajectories

ATIF = "atif"


def atif_files(rollout: RolloutSpans, version: str, *, embed_subagents: bool = True) -> dict[str, bytes]:
    """The files by their paths below one folder, the main document first. Of several agents that ran on their own each
    after the first has a folder of its own. ValueError for a version that is not written.
    """
    executions = rollout.executions()
    spans = executions.counting.spans
    if any(span.attributes.get(names.SOURCE) == ATIF for span in spans):
        return {name: _json(document) for name, document in atif_files_of_spans(spans).items()}
    files: dict[str, bytes] = {}
    for number, trajectory in enumerate(trajectories(rollout)):
        export = atif_of(
            trajectory,
            rollout_id=rollout.rollout_id,
            run_id=rollout.run_id,
            version=version,  # type: ignore[arg-type]
            reward=reward_of(executions, executions.counting),
            agent_version=_agent_version(spans),
            embed_subagents=embed_subagents,
        )
        folder = f"agent-{number + 1}/" if number else ""
        files |= {folder + name: content for name, content in export.files().items()}
    return files


def _agent_version(spans: list[StoredSpan]) -> str | None:
    for span in spans:
        version = span.attributes.get("gen_ai.agent.version") or span.attributes.get(names.SOURCE_VERSION)
        if isinstance(version, str):
            return version
    return None


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")
