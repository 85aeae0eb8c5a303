"""Drivers of fault reports on joins: rollout rows with their rewards, and references to calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from otel_gym.agent_identity import agent_context_from
from otel_gym.records.call_references import AMBIGUOUS, CONFLICT, UNMATCHED, CallReference, join_references
from otel_gym.store.dynamo_files import records_of_trace
from otel_gym.store.reader import open_store
from otel_gym.views.dynamo_join import AskedCall, DynamoTrace, request_id_of_answer
from otel_gym.views.join import Join
from report_bench import Bench, Driver, has_files
from report_problems import Object, unequal_of_known


def drive_rewards(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``rollouts.jsonl``: rows, joined with a store that has no call; what is said of their rewards."""
    with TemporaryDirectory(prefix="otel_gym_report_") as directory:
        (Path(directory) / "spans").mkdir()
        joining = Join(open_store(directory), folder / "rollouts.jsonl")
        rows = list(joining.rows())
    yield from map(str, joining.damage)
    report = joining.report
    found: Object = {
        "mean_reward": report.mean_reward,
        "scored": report.scored,
        "missing": report.missing,
        "rows": report.rows,
        "status": [row.status for row in rows],
        "statuses": report.statuses,
        "rewards": [row.row.reward for row in rows],
    }
    yield from unequal_of_known(found, expected)


def drive_references(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``records.json`` with ``calls`` and ``refs``: which step's call is which, and what cannot be told."""
    given = json.loads((folder / "records.json").read_bytes())
    references = [
        CallReference(ref["step"], ref.get("model_call_id"), ref.get("model_ref"), ref.get("response_id"))
        for ref in given["refs"]
    ]
    found = join_references(references, given["calls"])

    def owners(code: str) -> list[object]:
        return [gap.owner for gap in found.gaps if gap.code == code]

    gaps = {
        "ambiguous": owners(AMBIGUOUS),
        "unmatched_ref": owners(UNMATCHED),
        "conflicting": owners(CONFLICT),
        "unowned_calls": [call["model_call_id"] for call in found.unowned],
    }
    joined = [[reference.owner, call["model_call_id"]] for reference, call in found.joined]
    yield from unequal_of_known({"joined": joined}, {key: value for key, value in expected.items() if key != "gaps"})
    yield from unequal_of_known(gaps, expected.get("gaps", {}))


def drive_dynamo(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``dynamo.jsonl``: a trace; ``calls.jsonl``: calls as their harness knows them, with the tools asked for.

    All calls are joined at once, and a rollout at a time.
    """
    lines = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines() if line.strip()]
    rollouts: dict[object, list[Object]] = {}
    for line in lines:
        rollouts.setdefault(line.get("rollout_id"), []).append(line)
    for calls in ([lines], list(rollouts.values())):
        trace, damage = DynamoTrace(), []
        for _, record in records_of_trace(folder / "dynamo.jsonl", damage.append):
            trace.add(record)
        yield from map(str, damage)
        yield from unequal_of_known(_joined(trace, calls), expected)


def _joined(trace: DynamoTrace, rollouts: list[list[Object]]) -> Object:
    joined = [trace.join([_asked(line) for line in lines]) for lines in rollouts]
    calls = [call for each in joined for call in each.calls]
    tools = [run for each in joined for run in each.tools if run.tool is not None]
    return {
        "model_pairs": [[call.asked.name, call.request.metrics.request_id] for call in calls if call.request],
        "tool_pairs": [
            [run.tool.context.agent_id, run.call_id, run.tool.status, run.tool.event.duration_ms] for run in tools
        ],
        "unmatched_tools": [
            [tool.context.agent_id, tool.event.tool_call_id] for tool in trace.tools if not tool.is_joined
        ],
        "unmatched_requests": [each.metrics.request_id for each in trace.requests if each.joined_to is None],
        "unmatched_calls": [call.asked.name for call in calls if call.request is None],
    }


def _asked(line: Object) -> AskedCall:
    answer = line.get("request_id") or line.get("response_id")
    return AskedCall(
        name=str(line.get("x_request_id") or answer),
        x_request_id=line.get("x_request_id"),
        request_id=request_id_of_answer(answer),
        context=agent_context_from(line),
        tools=[call["call_id"] for call in line.get("tool_calls") or ()],
    )


def _has_references(folder: Path) -> bool:
    file = folder / "records.json"
    given = json.loads(file.read_bytes()) if file.is_file() else None
    return isinstance(given, dict) and {"calls", "refs"} <= given.keys()


JOIN_DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = (
    (has_files("rollouts.jsonl"), drive_rewards),
    (_has_references, drive_references),
    (has_files("calls.jsonl", "dynamo.jsonl"), drive_dynamo),
)
