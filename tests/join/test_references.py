"""R106: calls that an agent names are joined by exact keys, and what is not sure is a named gap."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_gym.records.call_references import (
    AMBIGUOUS,
    CONFLICT,
    UNMATCHED,
    UNOWNED,
    CallReference,
    JoinedReferences,
    join_references,
    references_of_observations,
)

from .conftest import Invoke, capture_line, write_lines

BENCH = Path(__file__).parent.parent.parent / "bench"
SERVER = {"type": "responses_api_models", "name": "policy_model"}


def call(call_id: str, response_id: str | None = None, model_ref: Any = None) -> dict[str, Any]:
    return {"model_call_id": call_id, "response_id": response_id, "model_ref": model_ref}


def told(found: JoinedReferences) -> list[tuple[str, Any, str | None]]:
    return [(gap.code, gap.owner, gap.detail) for gap in found.gaps]


def test_equal_response_ids_are_ambiguous_and_nobody_is_given_either() -> None:
    calls = [call("m1", "r1"), call("m2", "rX"), call("m3", "rX"), call("m4")]
    references = [CallReference(step, response_id=name) for step, name in ((1, "r1"), (2, "rX"), (3, "r404"))]
    found = join_references(references, calls)
    assert [(reference.owner, joined["model_call_id"]) for reference, joined in found.joined] == [(1, "m1")]
    assert told(found) == [
        (AMBIGUOUS, 2, "rX"),
        (UNMATCHED, 3, "r404"),
        *((UNOWNED, None, name) for name in ("m2", "m3", "m4")),
    ]


def test_the_same_answer_of_two_servers_is_told_by_the_server() -> None:
    other = {**SERVER, "name": "judge"}
    calls = [call("m1", "r", SERVER), call("m2", "r", other)]
    assert join_references([CallReference("a", None, other, "r")], calls).joined[0][1]["model_call_id"] == "m2"
    assert told(join_references([CallReference("a", None, None, "r")], calls))[0] == (UNMATCHED, "a", "r")


def test_an_id_that_contradicts_the_rest_names_nothing() -> None:
    assert told(join_references([CallReference("a", "m1", None, "r2")], [call("m1", "r1")]))[0][0] == UNMATCHED


def test_a_call_of_two_owners_is_nobodys_and_of_one_owner_is_once() -> None:
    found = join_references([CallReference("a", "m1"), CallReference("b", "m1")], [call("m1")])
    assert (found.joined, told(found)) == ([], [(CONFLICT, "a", "m1"), (CONFLICT, "b", "m1"), (UNOWNED, None, "m1")])
    twice = join_references([CallReference("a", "m1"), CallReference("a", None, None, "r")], [call("m1", "r")])
    assert (len(twice.joined), twice.gaps) == (1, [])


@pytest.mark.parametrize(
    "odd", [None, [], {}, {"records": 5}, {"records": [1, {"model_calls": 5}, {"model_calls": [1]}]}]
)
def test_observations_of_any_shape_are_read(odd: Any) -> None:
    assert references_of_observations(odd) == []


def test_join_lists_the_references_that_it_cannot_join(tmp_path: Path, invoke: Invoke) -> None:
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", capture_line("a"), capture_line("b", 1_790_000_001.0))
    invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    named = [{"model_call_id": "a"}, {"model_ref": SERVER, "response_id": "r404"}]
    observations = {"source": "simple_agent", "records": [{"invocation_id": "root", "model_calls": named}]}
    row = {"_ng_rollout_id": "0-0", "ng_agent_observations": observations}
    rows = write_lines(tmp_path / "r.jsonl", row)
    result = invoke("join", rows, "--dir", tmp_path / "s", "--report", tmp_path / "report.json")
    assert json.loads(result.stdout)["ng_agent_observations"] == observations
    said = [(each["code"], each["invocation_id"], each["detail"]) for each in read(tmp_path)["references"]]
    assert said == [(UNMATCHED, "root", "r404"), (UNOWNED, None, "b")]
    assert f"0-0 (line 1): {UNMATCHED}: r404" in result.stderr


def read(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("report_drivers_join")


def test_the_drivers_of_join_reports_tell_right_from_wrong(tmp_path: Path, drivers: ModuleType) -> None:
    def driven(folder: Path, expected: Any) -> list[str]:
        driver = next(driver for fits, driver in drivers.JOIN_DRIVERS if fits(folder))
        return list(driver(folder, expected, None))

    rows = ({"rollout_id": "0-0", "reward": 1.0}, {"rollout_id": "0-1", "reward": 0.0}, {"rollout_id": "0-2"})
    write_lines(tmp_path / "rewards" / "rollouts.jsonl", *rows)
    assert driven(tmp_path / "rewards", {"mean_reward": 0.5, "scored": 2, "missing": 1}) == []
    assert driven(tmp_path / "rewards", {"mean_reward": 1 / 3}) != []
    given = {"calls": [call("m1", "r1")], "refs": [{"step": 1, "response_id": "r1"}, {"step": 2, "response_id": "r2"}]}
    write_lines(tmp_path / "refs" / "records.json", given)
    gaps = {"ambiguous": [], "unmatched_ref": [2], "unowned_calls": []}
    assert driven(tmp_path / "refs", {"joined": [[1, "m1"]], "gaps": gaps}) == []
    assert driven(tmp_path / "refs", {"joined": [[1, "m1"]], "gaps": {**gaps, "ambiguous": [2]}}) != []
