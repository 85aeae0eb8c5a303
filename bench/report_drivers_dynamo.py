"""Driver of fault reports on Dynamo's traces: rows of several generations, and of one that nobody knows yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_gym.ingest.dynamo import read_dynamo
from otel_gym.records.dynamo import SCHEMAS
from report_bench import Bench, Driver, has_files
from report_problems import Object, unequal_of_known


def drive_trace(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``trace.jsonl``: the calls of its import, oldest first, and the schemas that it was refused for."""
    rollouts = read_dynamo(folder / "trace.jsonl")
    calls = [
        span
        for rollout in rollouts
        for span in rollout.spans
        if span.attributes.get("gen_ai.operation.name") in ("chat", "execute_tool")
    ]
    calls.sort(key=lambda span: span.start_ns)
    damage = [text for rollout in rollouts for text in rollout.damage]
    refused = [name for text in damage for name in re.findall(r"schema '([^']*)' is not known", text)]
    found: Object = {
        "records": len(calls),
        "session_id": [span.attributes.get("gym.agent_context.session_id") for span in calls],
        "trajectory_id": [span.attributes.get("gym.agent_context.trajectory_id") for span in calls],
        "request_id": [span.attributes.get("gym.dynamo.request_id") for span in calls],
        "rejected": refused,
    }
    yield from (f"{text}: unexpected" for text in damage if not any(name in text for name in refused))
    yield from (f"{schema} is known, and refused" for schema in refused if schema in SCHEMAS)
    yield from unequal_of_known(found, expected)


DYNAMO_DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = ((has_files("trace.jsonl"), drive_trace),)
