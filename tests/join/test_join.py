"""`join`: model calls beside the rollouts that made them, exactly or as a named gap."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.views.join_export import COLUMNS
from otel_gym.views.model_calls_export import COUNT, NUMBER, TEXT
from otel_gym.views.model_calls_export import JSON as JSON_TEXT
from otel_gym.views.rollout_rows import with_member

from .conftest import Invoke, capture_line, write_lines

FIXTURES = Path(__file__).parent.parent / "fixtures" / "gym_captures"
CAPTURE = "ng_model_call_capture"


@pytest.fixture
def store(tmp_path: Path, invoke: Invoke) -> Path:
    """One call each of 0-0, 0-1, 1-0, and of 1-0's second attempt."""
    for number, rollout_id in enumerate(("0-0", "0-1", "1-0", "1-0-a1")):
        write_lines(tmp_path / "c" / f"{rollout_id}.capture.jsonl", capture_line(f"call-{number}"))
    assert invoke("import", "gym-captures", tmp_path / "c", "--run", "A", "--dir", tmp_path / "s").exit_code == 0
    return tmp_path / "s"


def row(task: int, rollout: int, **said: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": 1.0, **said}


def joined(invoke: Invoke, rows: Path, store: Path, *options: Any, code: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """The rows that come out, and the report."""
    report = rows.with_name("report.json")
    result = invoke("join", rows, "--dir", store, "--report", report, *options)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()], json.loads(report.read_text())


def ids(row: Any) -> list[str]:
    return [call["model_call_id"] for call in row[CAPTURE]["calls"]]


def codes(row: Any) -> list[str]:
    return [gap["code"].removeprefix("model_call_capture_") for gap in row[CAPTURE].get("gaps", [])]


def test_a_damaged_capture_is_attached_as_nemo_gym_does(tmp_path: Path, invoke: Invoke) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    shutil.copy(FIXTURES / "0-0.capture.jsonl", captures)
    (captures / "5-5.capture.incomplete").touch()
    invoke("import", "gym-captures", captures, "--dir", tmp_path / "s")
    rows = write_lines(tmp_path / "r.jsonl", row(0, 0), row(9, 9), row(5, 5))
    found, _ = joined(invoke, rows, tmp_path / "s")
    summary = json.loads((FIXTURES / "summary.json").read_text())
    attachment = found[0][CAPTURE]
    # The text, so that the order of the names counts.
    assert json.dumps(attachment) == json.dumps(json.loads((FIXTURES / "attachment_0-0.json").read_text()))
    assert [found[1][CAPTURE], found[2][CAPTURE]] == [
        summary["attachment_missing_file"],
        summary["attachment_incomplete"],
    ]
    assert attachment["metrics"] == summary["metrics"]
    assert sorted(attachment) == summary["attachment_keys"]
    assert sorted(attachment["calls"][0]) == summary["attachment_call_keys"]


def test_a_row_is_found_by_its_indices_its_attempt_or_its_id(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = write_lines(
        tmp_path / "r.jsonl",
        row(1, 0, _ng_attempt_index=1),
        row(1, 0, _ng_attempt_index=0),
        {"_ng_rollout_id": "0-1", "_ng_task_index": 7, "_ng_rollout_index": 7},
        {"rollout_id": "0-0"},
    )
    found, report = joined(invoke, rows, store)
    assert [ids(each) for each in found] == [["call-3"], ["call-2"], ["call-1"], ["call-0"]]
    assert (report["joined"], report["orphans"], report["unmatched"]) == (4, [], [])


def test_nothing_else_of_a_row_changes(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    texts = [
        '{"_ng_task_index":0,"_ng_rollout_index":0,"n":123456789012345678901234567890,"f":1e-07,"g":1.10,"a":"\\u00e9é"}',
        '{ "z": 1, "_ng_rollout_id" : "0-1" , "a": {"b": [ 1 ] } }',
        '{"_ng_rollout_id":"1-0","d":' + "7" * 5000 + "}",
    ]
    rows = write_lines(tmp_path / "r.jsonl", *texts)
    result = invoke("join", rows, "--dir", store)
    for text, line in zip(texts, result.stdout.splitlines(), strict=True):
        assert line.startswith(text[:-1].rstrip())
        assert line.count(CAPTURE) == 1
    # Joined again it says the same.
    again = write_lines(tmp_path / "again.jsonl", *result.stdout.splitlines())
    assert invoke("join", again, "--dir", store).stdout == result.stdout


def test_payloads_come_only_if_they_are_asked_for(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = write_lines(tmp_path / "r.jsonl", row(0, 0))
    [plain], _ = joined(invoke, rows, store)
    assert not {"request", "response", "request_raw", "response_raw"} & set(plain[CAPTURE]["calls"][0])
    [whole], _ = joined(invoke, rows, store, "--include-payloads")
    [call] = whole[CAPTURE]["calls"]
    assert call["request"]["messages"] == [{"role": "user", "content": "hi"}]
    assert list(call)[20:24] == ["request", "response", "request_raw", "response_raw"]


def test_what_does_not_fit_is_named_and_listed(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = write_lines(tmp_path / "r.jsonl", row(0, 0), row(3, 0), row(0, 1), row(0, 1))
    result = invoke("join", rows, "--dir", store)
    assert [codes(json.loads(line)) for line in result.stdout.splitlines()] == [
        [],
        ["no_records"],
        ["duplicate_rows"],
        ["duplicate_rows"],
    ]
    said = result.stderr
    assert "1 row without a rollout in the store:\notel-gym:   3-0 (line 2)" in said
    assert "1 rollout that several rows name:\notel-gym:   0-1 (line 3, 4)" in said
    assert "2 rollouts without a row:\notel-gym:   A/1-0: 1 model call, superseded\notel-gym:   A/1-0-a1: 1" in said
    found, report = joined(invoke, rows, store)
    assert [ids(each) for each in found] == [["call-0"], [], [], []]
    assert found[2][CAPTURE]["metrics"]["num_calls"] is None
    assert report["duplicates"] == [{"lines": [3, 4], "rollout_id": "0-1"}]
    assert report["orphans"] == [
        {"run_id": "A", "rollout_id": "1-0", "calls": 1, "superseded": True},
        {"run_id": "A", "rollout_id": "1-0-a1", "calls": 1},
    ]


def test_of_two_runs_none_is_guessed(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    """R075"""
    write_lines(tmp_path / "b" / "0-0.capture.jsonl", capture_line("call-B"))
    invoke("import", "gym-captures", tmp_path / "b", "--run", "B", "--dir", store)
    rows = write_lines(tmp_path / "r.jsonl", row(0, 0))
    [either], report = joined(invoke, rows, store)
    assert (ids(either), codes(either)) == ([], ["ambiguous_run"])
    assert report["ambiguous"] == [{"lines": [1], "rollout_id": "0-0", "runs": ["A", "B"]}]
    [named], _ = joined(invoke, rows, store, "--run", "B")
    assert ids(named) == ["call-B"]
    rows = write_lines(tmp_path / "both.jsonl", row(0, 0, run_id="A"), row(0, 0, run_id="B"))
    assert [ids(each) for each in joined(invoke, rows, store)[0]] == [["call-0"], ["call-B"]]


def test_a_missing_reward_is_not_0(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    """R102"""
    rows = write_lines(
        tmp_path / "r.jsonl",
        row(0, 0),
        row(0, 1, reward=0.0),
        row(1, 0, reward=None, judge_failed=True),
        {"_ng_task_index": 8, "_ng_rollout_index": 0},
        row(8, 1, reward=0.0, mask_sample=True, failure_kind="verifier_error"),
        row(1, 0, _ng_attempt_index=1, reward=True),
    )
    found, report = joined(invoke, rows, store)
    assert (report["mean_reward"], report["scored"], report["missing"]) == (0.5, 2, 4)
    assert report["statuses"] == {"ok": 2, "judge_failed": 1, "no_model_calls": 1, "masked": 1, "no_reward": 1}
    assert found[2]["judge_failed"] is True


def test_bad_rows_are_said_and_cost_themselves_only(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = write_lines(
        tmp_path / "r.jsonl",
        row(0, 0),
        "{torn",
        "[1]",
        "",
        {"x": 1},
        {"_ng_task_index": "0", "_ng_rollout_index": True},
        {"_ng_rollout_id": "../x"},
        row(0, 1),
    )
    found, report = joined(invoke, rows, store, code=1)
    assert [codes(each) for each in found] == [[], ["no_rollout_id"], ["no_rollout_id"], ["no_rollout_id"], []]
    assert (report["bad_rows"], [each["line"] for each in report["nameless"]]) == (2, [5, 6, 7])
    said = invoke("join", rows, "--dir", store).stderr
    assert (
        f"{rows}:2: no JSON (expecting property name enclosed in double quotes, column 2); the line is left out" in said
    )
    assert f"{rows}:7: '../x' is no rollout id; give it _ng_task_index and _ng_rollout_index, or _ng_rollout_id" in said


def test_an_attachment_stays_where_the_store_has_nothing(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = write_lines(tmp_path / "r.jsonl", row(8, 8, **{CAPTURE: {"rollout_id": "8-8", "calls": [1]}}))
    [kept], report = joined(invoke, rows, store)
    assert (kept[CAPTURE]["calls"], report["kept"], report["unmatched"]) == ([1], 1, [])


def test_the_newest_execution_counts_and_the_others_are_a_gap(tmp_path: Path, invoke: Invoke) -> None:
    otel_gym.configure(directory=tmp_path / "s", run_id="A")
    for _ in range(2):
        with otel_gym.rollout(0, 0):
            pass
    assert otel_gym.flush(10)
    [again], _ = joined(invoke, write_lines(tmp_path / "r.jsonl", row(0, 0)), tmp_path / "s")
    assert again[CAPTURE]["gaps"] == [
        {"code": "model_call_capture_no_records"},
        {"code": "model_call_capture_other_executions", "detail": "count=1"},
    ]


def test_parquet_has_the_row_as_it_was_and_its_sums(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    texts = ['{"_ng_rollout_id":"0-0","reward":0.25,"n":1.10}', '{"_ng_rollout_id":"9-9","reward":null}']
    rows = write_lines(tmp_path / "r.jsonl", *texts)
    result = invoke("join", rows, "--dir", store, "-o", tmp_path / "o.parquet")
    assert result.exit_code == 0, result.output
    first, second = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert (first["run_id"], first["reward"], first["num_calls"], first["tokens_in"]) == ("A", 0.25, 1, 7)
    assert (second["reward"], second["status"], second["num_calls"]) == (None, "no_model_calls", 0)
    assert [first["row"], second["row"]] == texts
    assert json.loads(first[CAPTURE])["rollout_id"] == "0-0"


def test_rows_may_come_compressed_or_from_a_pipe(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = tmp_path / "r.jsonl.gz"
    rows.write_bytes(gzip.compress(json.dumps(row(0, 0)).encode()))
    [found], _ = joined(invoke, rows, store)
    assert ids(found) == ["call-0"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, bytes])
def test_packed_rows_on_stdin_were_not_unpacked_and_damage_named_a_temporary_file(
    pack: Callable[[bytes], bytes], store: Path
) -> None:
    rows = pack(json.dumps(row(0, 0)).encode() + b"\n{torn\n")
    done = CliRunner().invoke(app, ["join", "-", "--dir", str(store)], input=rows)
    assert (done.exit_code, ids(json.loads(done.stdout))) == (1, ["call-0"])
    assert "otel-gym: stdin:2: no JSON" in done.stderr


@pytest.mark.parametrize("option", ["-o", "--report"])
def test_output_onto_the_rows_deleted_those_that_cannot_be_read(
    option: str, store: Path, tmp_path: Path, invoke: Invoke
) -> None:
    rows = write_lines(tmp_path / "r.jsonl", row(0, 0), "{torn")
    before = rows.read_bytes()
    (tmp_path / "soft.jsonl").symlink_to(rows)
    (tmp_path / "hard.jsonl").hardlink_to(rows)
    for name in ("r.jsonl", "soft.jsonl", "hard.jsonl"):
        refused = invoke("join", rows, option, tmp_path / name, "--dir", store)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{option} {tmp_path / name} is the file that is joined" in refused.stderr
    command = f"{sys.executable} -m otel_gym.cli join - {option} {rows} --dir {store} < {rows}"
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 2
    assert rows.read_bytes() == before
    same = invoke("join", rows, "-o", tmp_path / "o.jsonl", "--report", tmp_path / "o.jsonl", "--dir", store)
    assert (same.exit_code, (tmp_path / "o.jsonl").exists()) == (2, False)


def test_latencies_summed_up_to_0_6000000000000001_where_nemo_gym_says_0_6(tmp_path: Path, invoke: Invoke) -> None:
    calls = [capture_line(f"c{number}", latency_ms=latency) for number, latency in enumerate((0.1, 0.2, 0.3))]
    write_lines(tmp_path / "c" / "0-0.capture.jsonl", *calls)
    invoke("import", "gym-captures", tmp_path / "c", "--dir", tmp_path / "s")
    [found], _ = joined(invoke, write_lines(tmp_path / "r.jsonl", row(0, 0)), tmp_path / "s")
    assert found[CAPTURE]["metrics"]["latency_total_ms"] == 0.6


def test_the_page_lists_the_columns_of_parquet() -> None:
    page = (Path(__file__).parents[2] / "docs" / "join.md").read_text().partition("<!-- columns")[2]
    cells = (line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `"))
    types = {TEXT: "string", JSON_TEXT: "string", COUNT: "int64", NUMBER: "double"}
    listed = [(name, said.strip()) for names, said in cells for name in re.findall(r"`(\w+)`", names)]
    assert listed == [(name, types[column]) for name, column in COLUMNS]


def test_a_folder_or_nothing_is_refused(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        assert invoke("join", path, "--dir", store).exit_code == 2
    odd = invoke("join", write_lines(tmp_path / "r.jsonl", row(0, 0)), "--dir", store, "-o", tmp_path / "o.csv")
    assert (odd.exit_code, "name it .jsonl or .parquet" in odd.stderr) == (2, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text() | st.just(CAPTURE), JSON, max_size=6), st.integers(), st.booleans())
def test_any_row_keeps_all_but_the_attachment(row: dict[str, Any], seed: int, ascii_only: bool) -> None:
    indent = random.Random(seed).choice([None, (",", ":"), (" ,", " : ")])
    try:
        text = json.dumps(row, ensure_ascii=ascii_only, separators=indent).encode()
    except UnicodeEncodeError:
        return
    found = json.loads(with_member(text, CAPTURE, b'{"calls":[]}'))
    assert found == {**row, CAPTURE: {"calls": []}}
    assert [name for name in found if name != CAPTURE] == [name for name in row if name != CAPTURE]
