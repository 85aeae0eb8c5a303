"""`export model-calls`: the records as JSON lines and Parquet."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import otel_gym
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan
from otel_gym.views.json_lines import json_line, write_json_lines
from otel_gym.views.model_calls_export import COLUMNS, SCHEMA, write_parquet

from ..store.lines import encoded, live_file, write
from .conftest import Invoke, ask, chat_answer


def test_a_line_is_the_record_with_its_run_and_rollout(example_store: Path, invoke: Invoke) -> None:
    result = invoke("export", "model-calls", "run-1/1-0", "--dir", example_store)
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first.pop("run_id"), first.pop("rollout_id"), first.pop("superseded")) == ("run-1", "1-0", False)
    (root,) = [span for span in store_spans(example_store, "run-1", "1-0") if span.name == "rollout"]
    assert first.pop("execution") == root.span_id
    record = ModelCallRecord.model_validate(first)
    assert record.tool_calls[0].name == "get_weather"
    assert (record.call_index, second["call_index"]) == (0, 1)
    assert list(first) == list(ModelCallRecord.model_fields)


def store_spans(directory: Path, run_id: str, rollout_id: str) -> list[StoredSpan]:
    (found,) = [rollout.spans for rollout in Store(directory).rollouts(rollout_id) if rollout.run_id == run_id]
    return found


def test_without_rollouts_what_counts_is_exported(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path / "calls.jsonl")
    exported = [json.loads(line)["rollout_id"] for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert exported == ["1-0", "1-0", "1-0", "2-0-a1", "unassigned"]
    assert result.stdout == ""
    assert "5 model calls" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl"]


def test_superseded_attempts_were_summed_up_with_the_rest(example_store: Path, invoke: Invoke) -> None:
    """A sum over the default export is that of `stats`; --all brings the rest, marked."""
    rows = [
        json.loads(line)
        for line in invoke("export", "model-calls", "--all", "--dir", example_store).stdout.splitlines()
    ]
    assert [(row["rollout_id"], row["superseded"]) for row in rows] == [
        ("1-0", False),
        ("1-0", False),
        ("1-0", False),
        ("2-0", True),
        ("2-0-a1", False),
        ("unassigned", False),
    ]
    (named,) = map(json.loads, invoke("export", "model-calls", "2-0", "--dir", example_store).stdout.splitlines())
    assert (named["rollout_id"], named["superseded"]) == ("2-0", True)


def test_a_rollout_that_ran_twice_was_exported_twice(live_store, invoke: Invoke) -> None:
    """A re-run notebook cell: the newest finished execution is exported, --all has both, each with its root's id."""
    for answer in (chat_answer(1, 0), chat_answer(2, 0)):
        with otel_gym.rollout(1, 0):
            asyncio.run(ask(answer, rollout_id="1-0"))
    roots = [span.span_id for span in live_store.spans("1-0") if span.name == "rollout"]
    rows = [
        json.loads(line) for line in invoke("export", "model-calls", "--dir", live_store.directory).stdout.splitlines()
    ]
    assert [(row["execution"], row["superseded"], row["tokens_in"]) for row in rows] == [(roots[1], False, 2)]
    text = invoke("export", "model-calls", "--all", "--dir", live_store.directory).stdout
    assert [(row["execution"], row["superseded"]) for row in map(json.loads, text.splitlines())] == [
        (roots[0], True),
        (roots[1], False),
    ]


def test_a_call_outside_of_any_rollout_span_has_no_execution(example_store: Path, invoke: Invoke) -> None:
    (row,) = map(json.loads, invoke("export", "model-calls", "unassigned", "--dir", example_store).stdout.splitlines())
    assert row["execution"] is None


def test_parquet_has_one_explicit_schema_and_json_text(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "calls.parquet"
    result = invoke(
        "export", "model-calls", "--dir", example_store, "--format", "parquet", "-o", file, "--run", "run-1", "--all"
    )
    table = pq.read_table(file)
    assert result.exit_code == 0
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    assert [row["rollout_id"] for row in rows] == ["1-0", "1-0", "2-0", "2-0-a1", "unassigned"]
    assert [row["superseded"] for row in rows] == [False, False, True, False, False]
    assert json.loads(rows[0]["tool_calls"])[0]["arguments"] == {"city": "Oslo"}
    assert json.loads(rows[0]["response"])["usage"]["prompt_tokens"] == 100
    assert rows[2]["response"] is not None
    assert rows[2]["status_code"] == 429


def test_the_schema_names_every_field_of_the_record() -> None:
    assert [name for name, _ in COLUMNS][4:] == list(ModelCallRecord.model_fields)


def test_nothing_to_export_is_an_empty_file(tmp_path: Path) -> None:
    assert write_parquet([], tmp_path / "calls.parquet") == 0
    assert pq.read_table(tmp_path / "calls.parquet").schema.equals(SCHEMA)
    assert write_json_lines([], tmp_path / "calls.jsonl") == 0
    assert (tmp_path / "calls.jsonl").read_text() == ""


def test_values_that_json_or_utf8_cannot_say_do_not_stop_an_export(tmp_path: Path) -> None:
    odd = ModelCallRecord(
        call_index=0, model="\ud800", tokens_in=2**70, request={"n": float("nan"), "big": 2**70, "text": "\udfff"}
    )
    row = {"run_id": None, "rollout_id": "1-0", "execution": None, "superseded": False, **dict(odd)}
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


def test_o_dev_stdout_was_replaced_by_a_file(example_store: Path, tmp_path: Path) -> None:
    """A FIFO or a device is written into; only a regular file, or nothing, is replaced."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for format, writer in (("jsonl", write_json_lines), ("parquet", write_parquet)):
        read: list[bytes] = []
        reading = threading.Thread(target=lambda: read.append(fifo.read_bytes()))  # noqa: B023
        reading.start()
        assert writer([], fifo) == 0
        reading.join(10)
        assert (len(read[0]) > 0) is (format == "parquet")
    assert fifo.is_fifo()
    assert write_json_lines([], Path("/dev/null")) == 0
    assert Path("/dev/null").is_char_device()


def test_o_of_a_link_replaced_the_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "calls.jsonl", tmp_path / "link"
    link.symlink_to(target)
    for _ in range(2):  # first dangling, then not
        write_json_lines([], link)
        assert link.is_symlink()
        assert target.is_file()


def test_o_dash_made_a_file_called_dash(
    example_store: Path, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("export", "model-calls", "run-1/1-0", "--dir", example_store, "-o", "-")
    assert len(result.stdout.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_o_foo_parquet_held_json_lines(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path / "foo.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "foo.parquet").num_rows == 5


def test_a_format_that_is_none_is_said_with_those_that_are(example_store: Path, invoke: Invoke) -> None:
    result = invoke("export", "model-calls", "--dir", example_store, "--format", "csv")
    assert (result.exit_code, result.stderr) == (2, "otel-gym: --format 'csv' is none of jsonl, parquet\n")


def test_a_folder_as_output_is_exit_code_2(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path)
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_calls_of_no_certain_run_were_exported_though_ls_and_stats_left_them_out(
    tmp_path: Path, invoke: Invoke
) -> None:
    call = {"gen_ai__operation__name": "chat", "gym__dialect": "chat"}
    write(
        live_file(tmp_path),
        encoded("1", "rollout", start=0, end=10, run="r"),
        encoded("2", trace="b", start=2, end=3, run="r", gym__model_call__id="of r", **call),
        encoded("3", "rollout", trace="c", start=20, end=30, run="s"),
        encoded("4", trace="d", start=50, end=60, gym__model_call__id="of whom?", **call),
    )

    def exported(*arguments: str) -> list[tuple[str | None, str, bool]]:
        lines = invoke("export", "model-calls", *arguments, "--dir", tmp_path).stdout.splitlines()
        return [(row["run_id"], row["model_call_id"], row["superseded"]) for row in map(json.loads, lines)]

    of_no_run = (None, "of whom?", True)
    assert exported() == [("r", "of r", False)]
    assert exported("--all") == [("r", "of r", False), of_no_run]
    assert exported("--run", "-") == exported("-/1-0") == [of_no_run]
    stats = [json.loads(line) for line in invoke("stats", "--json", "--dir", tmp_path).stdout.splitlines()]
    assert [sum(run[name] for run in stats) for name in ("calls", "superseded_calls")] == [1, 1]


def test_call_index_was_not_in_order_of_time(tmp_path: Path, invoke: Invoke) -> None:
    """A call that named no run came after all others of the run that it was given to."""
    call = {"gen_ai__operation__name": "chat", "gym__dialect": "chat"}
    write(
        live_file(tmp_path),
        encoded("1", "rollout", start=0, end=100, run="r"),
        encoded("2", trace="b", start=20, end=30, run="r", gym__model_call__id="later", **call),
        encoded("3", trace="c", start=10, end=15, gym__model_call__id="earlier", **call),
    )
    rows = [json.loads(line) for line in invoke("export", "model-calls", "--dir", tmp_path).stdout.splitlines()]
    assert [(row["call_index"], row["model_call_id"]) for row in rows] == [(0, "earlier"), (1, "later")]


def test_a_csv_file_held_json_lines(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    for name in ("x.csv", "x.jsonl.gz"):
        result = invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path / name)
        assert result.exit_code == 2 and "give --format jsonl or parquet" in result.stderr
    assert list(tmp_path.iterdir()) == []
    arguments = ("export", "model-calls", "--dir", example_store, "--format", "jsonl", "-o", tmp_path / "x.txt")
    assert invoke(*arguments).exit_code == 0
    result = invoke("export", "model-calls", "--dir", example_store, "--format", "parquet")
    assert result.exit_code == 2 and "parquet is not written to stdout" in result.stderr


def test_an_export_taken_for_a_store_was_told_of_line_by_line(
    example_store: Path, invoke: Invoke, tmp_path: Path
) -> None:
    for name in ("model_calls.jsonl", "model_calls.parquet"):
        invoke("export", "model-calls", "--dir", example_store, "-o", tmp_path / name)
        result = invoke("ls", "--dir", tmp_path / name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines() == [
            f"otel-gym: {tmp_path / name}: model calls that were exported, no spans; give the store that they came from"
        ]
