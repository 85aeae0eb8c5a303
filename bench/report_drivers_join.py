"""Drivers of fault reports on joins: rollout rows with their rewards, and references to calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from otel_gym.records.call_references import AMBIGUOUS, CONFLICT, UNMATCHED, CallReference, join_references
from otel_gym.store.reader import open_store
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


def _has_references(folder: Path) -> bool:
    file = folder / "records.json"
    given = json.loads(file.read_bytes()) if file.is_file() else None
    return isinstance(given, dict) and {"calls", "refs"} <= given.keys()


JOIN_DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = (
    (has_files("rollouts.jsonl"), drive_rewards),
    (_has_references, drive_references),
)
