"""`export model-calls`: the records as JSON lines and Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from otel_gym.records.model_call import ModelCallRecord
from otel_gym.views.model_calls_export import COLUMNS, SCHEMA, json_line, write_json_lines, write_parquet

from ..store.lines import encoded, live_file, write
from .conftest import Invoke


def test_a_line_is_the_record_with_its_run_and_rollout(example_store: Path, invoke: Invoke) -> None:
    result = invoke("export", "model-calls", "run-1/1-0", "--dir", example_store)
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first.pop("run_id"), first.pop("rollout_id")) == ("run-1", "1-0")
    record = ModelCallRecord.model_validate(first)
    assert record.tool_calls[0].name == "get_weather"
    assert (record.call_index, second["call_index"]) == (0, 1)
    assert list(first) == list(ModelCallRecord.model_fields)


def test_without_rollouts_everything_is_exported(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path / "calls.jsonl")
    exported = [json.loads(line)["rollout_id"] for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert exported == ["1-0", "1-0", "1-0", "2-0", "2-0-a1", "unassigned"]
    assert result.stdout == ""
    assert "6 model calls" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl"]


def test_parquet_has_one_explicit_schema_and_json_text(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "calls.parquet"
    result = invoke(
        "export", "model-calls", "--dir", example_store, "--format", "parquet", "-o", file, "--run", "run-1"
    )
    table = pq.read_table(file)
    assert result.exit_code == 0
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    assert [row["rollout_id"] for row in rows] == ["1-0", "1-0", "2-0", "2-0-a1", "unassigned"]
    assert json.loads(rows[0]["tool_calls"])[0]["arguments"] == {"city": "Oslo"}
    assert json.loads(rows[0]["response"])["usage"]["prompt_tokens"] == 100
    assert rows[2]["response"] is not None
    assert rows[2]["status_code"] == 429


def test_the_schema_names_every_field_of_the_record() -> None:
    assert [name for name, _ in COLUMNS][2:] == list(ModelCallRecord.model_fields)


def test_nothing_to_export_is_an_empty_file(tmp_path: Path) -> None:
    assert write_parquet([], tmp_path / "calls.parquet") == 0
    assert pq.read_table(tmp_path / "calls.parquet").schema.equals(SCHEMA)
    assert write_json_lines([], tmp_path / "calls.jsonl") == 0
    assert (tmp_path / "calls.jsonl").read_text() == ""


def test_values_that_json_or_utf8_cannot_say_do_not_stop_an_export(tmp_path: Path) -> None:
    odd = ModelCallRecord(
        call_index=0, model="\ud800", tokens_in=2**70, request={"n": float("nan"), "big": 2**70, "text": "\udfff"}
    )
    row = {"run_id": None, "rollout_id": "1-0", **dict(odd)}
    assert json.loads(json_line(row))["request"] == {"n": None, "big": 2**70, "text": "\ufffd"}
    write_parquet([row], tmp_path / "calls.parquet")
    stored = pq.read_table(tmp_path / "calls.parquet").to_pylist()[0]
    assert (stored["model"], stored["tokens_in"]) == ("\ufffd", None)


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text("old")

    def rows():
        yield {"run_id": None}
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_json_lines(rows(), file)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl"]


def test_an_output_that_cannot_be_written_is_exit_code_2(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    for format in ("jsonl", "parquet"):
        output = tmp_path / "missing" / "calls"
        result = invoke("export", "model-calls", "--dir", example_store, "--format", format, "-o", output)
        assert result.exit_code == 2
        assert "cannot be written" in result.stderr


def test_calls_of_executions_that_do_not_count_are_left_out_and_said(tmp_path: Path, invoke: Invoke) -> None:
    call = {"gen_ai__operation__name": "chat"}
    write(
        live_file(tmp_path),
        encoded("1", "rollout", start=0, end=10),
        encoded("2", start=1, end=2, parent="1", **call),
        encoded("3", "rollout", trace="b", start=20, end=30),
        encoded("4", trace="b", start=21, end=22, parent="3", gen_ai__usage__input_tokens=5, **call),
    )
    result = invoke("export", "model-calls", "--dir", tmp_path)
    (record,) = (json.loads(line) for line in result.stdout.splitlines())
    assert (record["call_index"], record["tokens_in"]) == (0, 5)
    assert "1 model calls left out" in result.stderr
