"""Driver of fault reports on the sealed form: rows whose fields change their type, or say nothing at first.

Each row goes through capture as a Chat exchange, and into a part of its own file: what is compared is read from the
folder of parts as a whole, by pyarrow without us, and by our reader.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from otel_gym.conventions import ROLLOUT_ID
from otel_gym.store.compact import compact
from otel_gym.store.layout import PARQUET, rollout_folder
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span
from report_bench import Bench
from report_problems import REMARKS, Object, unequal_of_known

ROWS = "rows.jsonl"
_COUNTS = frozenset({"rows", "read_together_rows", "round_trip_equal"})
_TYPE = "_type"
# Fields of a row that say where it stands, and those that the answer holds; all others are the request's.
_PLACE = ("file", "rollout_id")
_ANSWER = ("finish_reason", "tool_calls")


def has_rows(folder: Path) -> bool:
    """``rows.jsonl``, and what is asked of them is their number, their types or that they come back."""
    if not (folder / ROWS).is_file():
        return False
    names = json.loads((folder / "expected.json").read_bytes()).keys() - REMARKS
    return bool(names) and all(name in _COUNTS or name.endswith(_TYPE) for name in names)


def drive_rows(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """A part for each ``file`` that rows name, made by a compaction of its own."""
    rows = [json.loads(line) for line in (folder / ROWS).read_bytes().split(b"\n") if line.strip()]
    call_ids = [bench.exchange("chat", _answer_of(row), _request_of(row)) for row in rows]
    spans = [each.span for each in bench.stored(call_ids)]
    with tempfile.TemporaryDirectory(prefix="otel_gym_report_") as directory:
        for number, file in enumerate(dict.fromkeys(row.get("file") for row in rows)):
            of_file = [pair for pair in zip(rows, spans, strict=True) if pair[0].get("file") == file]
            _write(Path(directory), f"svc.elsewhere.1.{number:08x}.jsonl", of_file)
            compact(Path(directory), idle_s=0, remove=True)
        table = pq.read_table(Path(directory) / PARQUET)
        sealed = {cells["model_call_id"]: _row_of_cells(cells) for cells in table.to_pylist()}
        read = [span for rollout in Store(directory).rollouts() for span in rollout.spans]
    found: Object = {
        "rows": len(read),
        "read_together_rows": table.num_rows,
        "round_trip_equal": [sealed.get(call_id) for call_id in call_ids] == [_without_file(row) for row in rows],
    }
    for field in {field for row in rows for field in row if field not in _PLACE}:
        found[field + _TYPE] = _type_of(field, table)
    yield from unequal_of_known(found, expected)


def _request_of(row: Object) -> Object:
    """``content`` is that of a message, any other field stands beside the messages."""
    beside = {name: value for name, value in row.items() if name not in (*_PLACE, *_ANSWER, "content")}
    return {"model": "toy", "messages": [{"role": "user", **_some(row, "content")}], "row": beside}


def _answer_of(row: Object) -> Object:
    message = {"role": "assistant", "content": None, **_some(row, "tool_calls")}
    choice = {"index": 0, "message": message, **_some(row, "finish_reason")}
    text = json.dumps({"id": "c", "choices": [choice]})
    return {
        "status": 200,
        "headers": [["content-type", "application/json"]],
        "chunks": [{"at_ms": 10.0, "text": text}],
    }


def _row_of_cells(cells: Object) -> Object:
    """The row again, from the columns of its span."""
    request, answer = json.loads(cells["request_body"]), json.loads(cells["response_body"])
    (choice,) = answer["choices"]
    row = _some(request["messages"][0], "content") | _some(choice["message"], "tool_calls") | request["row"]
    if "finish_reason" in choice:
        (row["finish_reason"],) = cells["finish_reasons"] or [None]
    return {**row, "rollout_id": cells["rollout_id"]}


def _without_file(row: Object) -> Object:
    kept = {name: value for name, value in row.items() if name != "file"}
    return {**kept, "rollout_id": _rollout_id(row)}


def _rollout_id(row: Object) -> str:
    return row.get("rollout_id") or "0-0"


def _some(fields: Object, name: str) -> Object:
    return {name: fields[name]} if name in fields else {}


def _type_of(field: str, table: Any) -> str:
    """The Arrow type in which a field is kept; what has no fixed form is JSON text."""
    if field == "finish_reason":
        return str(table.schema.field("finish_reasons").type.value_type)
    return str(table.schema.field("response_body" if field in _ANSWER else "request_body").type)


def _write(directory: Path, name: str, pairs: list[tuple[Object, StoredSpan]]) -> None:
    """As the files of a process that has ended, on another host."""
    for row, span in pairs:
        rollout_id = _rollout_id(row)
        path = rollout_folder(directory, rollout_id) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as lines:
            lines.write(line_of_span(replace(span, attributes={**span.attributes, ROLLOUT_ID: rollout_id})) + b"\n")
