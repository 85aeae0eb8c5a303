"""What `doctor` finds, and how it ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..store.lines import encoded, live_file, write
from .conftest import Invoke

Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def rows(invoke: Invoke) -> Rows:
    def of(*arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in invoke("doctor", "--json", *arguments).stdout.splitlines()]

    return of


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def test_a_whole_store_is_clean(example_store: Path, invoke: Invoke) -> None:
    result = invoke("doctor", example_store)
    assert result.exit_code == 0
    assert "nothing was lost" in result.stdout
    assert "damage: none" in result.stdout


def test_damage_is_told_with_file_line_byte_and_cure(example_store: Path, invoke: Invoke, rows: Rows, tmp_path) -> None:
    store = tmp_path / "store"
    shutil.copytree(example_store, store)
    file = next((store / "spans" / "rollout_id=2-0").glob("*.jsonl"))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:77])
    (damage,) = of_kind(rows(store), "damage")
    assert (damage["path"], damage["offset"], damage["lost"]) == (str(file), len(whole), True)
    assert "torn at the end" in damage["problem"] and "was read" in damage["cure"]
    lines = whole.count(b"\n")
    result = invoke("doctor", store)
    assert result.exit_code == 1
    assert f"{file}:{lines + 1}: torn" in result.stdout
    assert "something was lost" in result.stdout


def test_what_processes_counted_is_told_with_what_to_do(tmp_path: Path, invoke: Invoke, rows: Rows) -> None:
    write(live_file(tmp_path), encoded("1"))
    (tmp_path / "counts").mkdir()
    counts = tmp_path / "counts" / "svc.host.1.abcd.json"
    counts.write_text('{"uncaptured_calls": 3, "lost_spans": 0}')
    assert invoke("doctor", tmp_path).exit_code == 0
    (counted,) = of_kind(rows(tmp_path), "counted")
    assert (counted["writer"], counted["number"], counted["is_loss"]) == ("svc.host.1.abcd", 3, False)
    assert "/ng-rollout/" in counted["cure"]
    counts.write_text('{"lost_spans": 2}')
    assert invoke("doctor", tmp_path).exit_code == 1
    counts.write_text("{")
    assert invoke("doctor", tmp_path).exit_code == 1


def test_unfinished_rerun_and_ambiguous_rollouts_are_told(tmp_path: Path, invoke: Invoke, rows: Rows) -> None:
    first = encoded("1", "rollout", start=0, end=10, run="r")
    second = encoded("2", "rollout", trace="b", start=20, end=30, run="r")
    write(live_file(tmp_path), first, second, encoded("3", start=99, trace="c", run="r"))
    write(tmp_path / "open" / "w.jsonl", encoded("9", "rollout", rollout="2-0", run="r", end=None))
    found = {(row["kind"], row["rollout_id"]): row["finding"] for row in rows(tmp_path) if "finding" in row}
    assert found.keys() == {("run_again", "1-0"), ("ambiguous", "1-0"), ("unfinished", "2-0")}
    assert "ran 2 times" in found["run_again", "1-0"]
    assert invoke("doctor", tmp_path).exit_code == 0


def test_misspelt_settings_and_those_that_hold_are_told(
    example_store: Path, invoke: Invoke, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_DIRR", "x")
    monkeypatch.setenv("OTEL_GYM_DIR", str(example_store))
    found = rows()
    assert "did you mean OTEL_GYM_DIR?" in of_kind(found, "setting_problem")[0]["problem"]
    set_here = {row["name"]: row["value"] for row in of_kind(found, "setting") if row["is_set"]}
    assert set_here == {"OTEL_GYM_DIR": str(example_store)}
    assert "! OTEL_GYM_DIRR is no setting" in invoke("doctor").stdout


def test_without_a_store_there_is_nothing_to_examine(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("doctor", tmp_path / "none")
    assert result.exit_code == 2
    assert "OTEL_GYM_QUEUE_BYTES" in result.stdout  # the settings are told all the same
