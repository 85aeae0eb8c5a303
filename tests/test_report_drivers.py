"""The drivers of fault reports on the store tell right from wrong, on damage of every shape that the reports have."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent / "bench"
RECORD = '{"rollout_id":"0-0","call_index":%d,"text":"%s"}'


Drive = Callable[..., list[str]]


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("report_drivers_store")


@pytest.fixture
def drive(drivers: ModuleType) -> Drive:
    def of(folder: Path, name: str, content: bytes, **expected: Any) -> list[str]:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        driver = next(driver for fits, driver in drivers.STORE_DRIVERS if fits(folder))
        return list(driver(folder, expected, None))

    return of


def record(index: int, text: str = "a") -> bytes:
    return (RECORD % (index, text)).encode()


DAMAGE = {
    "torn": (record(0) + b"\n" + record(1)[:40], [0], 1),
    "torn inside a character": (record(0) + b"\n" + record(1, "世")[:-3], [0], 1),
    "glued behind a torn one": (record(0)[:-9] + record(2) + b"\n", [2], 1),
    "two on a line": (record(0) + record(1) + b"\n", [0, 1], 0),
    "spliced": (record(0)[:17] + record(1) + b"\n" + record(0)[17:] + b"\n" + record(2) + b"\n", [1, 2], 2),
    "a tail behind a whole one": (record(0) + record(1)[20:] + b"\n", [0], 1),
    "torn behind an inner object": (b'{"rollout_id":"0-0","call_index":1,"r":{"x":1}' + record(2) + b"\n", [2], 1),
    "NUL": (record(0) + b"\0\0\0\n\0\0" + record(1) + b"\n", [0, 1], 2),
    "separators in a text": (record(0, "\u2028\x85") + b"\r\n" + record(1) + b"\r\n", [0, 1], 0),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_carried_over_to_our_lines_and_read_around(
    tmp_path: Path, drivers: ModuleType, drive: Drive, name: str
) -> None:
    content, records, torn = DAMAGE[name]
    assert drivers.carried_over(content).count(b"\n") == content.count(b"\n")
    assert drive(tmp_path, "x.jsonl", content, records=records, torn_lines=torn) == []
    assert len(drive(tmp_path, "x.jsonl", content, records=[*records, 9], torn_lines=torn + 1)) == 2


def test_a_line_that_is_being_written_is_no_warning_to_who_follows(tmp_path: Path, drive: Drive) -> None:
    """R066"""
    content = record(0) + b"\n" + record(1)[:20]
    assert drive(tmp_path, "live.jsonl", content, records=[0], warnings_in_follow_mode=0) == []


def test_runs_times_and_skew_are_driven(tmp_path: Path, drive: Drive) -> None:
    rows = [{"run_id": run, "rollout_id": "0-0", "call_index": 0, "tokens_in": 7} for run in "AB"]
    content = "\n".join(map(json.dumps, rows)).encode()
    assert drive(tmp_path / "r", "r.jsonl", content, groups=[["B", "0-0", 7], ["A", "0-0", 7]]) == []
    assert (
        drive(tmp_path / "t", "times.json", b'[{"unix_ms":0.25},{"unix_s":"1.000000001"}]', ns=[250000, 10**9 + 1])
        == []
    )
    spans = b'{"span_id":"p","start_ns":5,"end_ns":9}\n{"span_id":"c","parent_span_id":"p","start_ns":1,"end_ns":3}'
    assert drive(tmp_path / "s", "spans.jsonl", spans, skew_flagged=["c"], **{"c.start_ns": 1}) == []


def test_a_key_that_nothing_checks_is_not_driven(tmp_path: Path, drivers: ModuleType, drive: Drive) -> None:
    with pytest.raises(drivers.NotDrivenError):
        drive(tmp_path, "x.jsonl", record(0), colour="blue")


CLIENT = '{"name":"chat m","span_id":"a1","trace_id":"t","kind":"CLIENT","attributes":%s}'
SERVER = '{"name":"chat m","span_id":"b1","parent_span_id":"a1","trace_id":"t","kind":"SERVER","attributes":%s}'
ANSWER = '{"gen_ai.operation.name":"chat","gen_ai.response.id":"x","gen_ai.usage.output_tokens":2}'
OLD = '{"gen_ai.system":"openai","gen_ai.request.model":"m","gen_ai.usage.completion_tokens":2}'


def test_one_call_of_two_layers_is_one_generation(tmp_path: Path, drive: Drive) -> None:
    """R033."""
    spans = f"{CLIENT}\n{SERVER}\n" % (ANSWER, ANSWER)
    assert drive(tmp_path / "r", "spans.jsonl", spans.encode(), generations=1, tokens_out=2) == []
    assert drive(tmp_path / "r", "spans.jsonl", spans.encode(), generations=2, tokens_out=4) != []


def test_old_names_tell_what_new_ones_do(tmp_path: Path, drive: Drive) -> None:
    """R041."""
    spans = f"{CLIENT}\n" % OLD
    assert (
        drive(tmp_path / "r", "spans.jsonl", spans.encode(), provider=["openai"], tokens_out=[2], cached_tokens=[None])
        == []
    )
    assert drive(tmp_path / "r", "spans.jsonl", spans.encode(), tokens_out=[0]) != []


def test_a_schema_that_nobody_knows_must_be_refused_by_name(
    drivers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_dynamo = importlib.import_module("report_drivers_dynamo")
    rows = [
        {"schema": "dynamo.agent.trace.v1", "agent_context": {"workflow_id": "w", "program_id": "w:a"}},
        {"schema": "dynamo.request.trace.v1", "agent_context": {"session_id": "w"}},
        {"schema": "dynamo.future.v9"},
    ]
    lines = [
        json.dumps(
            row | {"event_type": "request_end", "event_time_unix_ms": at + 1, "request": {"request_id": str(at)}}
        )
        for at, row in enumerate(rows)
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines) + "\n")
    right = {"records": 2, "session_id": ["w", "w"], "rejected": ["dynamo.future.v9"]}
    assert list(of_dynamo.drive_trace(tmp_path, right, None)) == []
    assert list(of_dynamo.drive_trace(tmp_path, right | {"rejected": []}, None)) != []
    assert list(of_dynamo.drive_trace(tmp_path, right | {"records": 3}, None)) != []
