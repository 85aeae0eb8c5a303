"""ModelCallRecords as JSON lines or Parquet, each with the run, rollout and execution it belongs to.

Parquet has one explicit schema, whatever the records hold: nested values (``request``, ``response``, ``tool_calls`` …)
are JSON text, times are float64 as in the record, counts are int64. A file appears under its name when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from otel_gym.content import fits_int64, safe_json, safe_text
from otel_gym.views.counted_calls import CountedCall

Row = dict[str, Any]

# A row group holds whole bodies: this bounds its memory better than a count of rows would.
ROW_GROUP_BYTES = 64 * 1024 * 1024
ROW_GROUP_ROWS = 10_000

_TEXT, _JSON, _COUNT, _NUMBER, _FLAG = "text", "json", "count", "number", "flag"

COLUMNS: tuple[tuple[str, str], ...] = (
    ("run_id", _TEXT),
    ("rollout_id", _TEXT),
    ("execution", _TEXT),
    ("superseded", _FLAG),
    ("model_call_id", _TEXT),
    ("response_id", _TEXT),
    ("client_session_id", _TEXT),
    ("client_assistant_message_id", _TEXT),
    ("call_index", _COUNT),
    ("model_ref", _JSON),
    ("model", _TEXT),
    ("dialect", _TEXT),
    ("status_code", _COUNT),
    ("response_status", _TEXT),
    ("finish_reason", _TEXT),
    ("upstream_attempted", _FLAG),
    ("upstream_status_code", _COUNT),
    ("response_source", _TEXT),
    ("local_response_reason", _TEXT),
    ("started_at", _NUMBER),
    ("completed_at", _NUMBER),
    ("latency_total_ms", _NUMBER),
    ("latency_ttft_ms", _NUMBER),
    ("tokens_in", _COUNT),
    ("tokens_out", _COUNT),
    ("tokens_reasoning", _COUNT),
    ("tokens_total", _COUNT),
    ("cached_tokens", _COUNT),
    ("cache_creation_tokens", _COUNT),
    ("cache_hit", _FLAG),
    ("tool_calls", _JSON),
    ("reasoning_content", _TEXT),
    ("error_category", _TEXT),
    ("failure_report", _JSON),
    ("model_operations", _JSON),
    ("request", _JSON),
    ("request_raw", _TEXT),
    ("response", _JSON),
    ("response_raw", _TEXT),
)

_TYPES: dict[str, pa.DataType] = {
    _TEXT: pa.large_string(),
    _JSON: pa.large_string(),
    _COUNT: pa.int64(),
    _NUMBER: pa.float64(),
    _FLAG: pa.bool_(),
}
_CELLS: dict[str, Callable[[Any], Any]] = {
    _TEXT: safe_text,
    _JSON: safe_json,
    _COUNT: lambda value: value if fits_int64(value) else None,
    _NUMBER: float,
    _FLAG: bool,
}

SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS])


def model_call_rows(calls: Iterable[CountedCall]) -> Iterator[Row]:
    """A row a record; run, rollout, execution and whether it is superseded come first."""
    for each in calls:
        place: Row = {
            "run_id": each.run_id,
            "rollout_id": each.rollout_id,
            "execution": each.execution,
            "superseded": each.superseded,
        }
        # Not model_dump: it would copy every body, and recurse as deep as a hostile server nests.
        yield place | dict(each.call.record)


def json_line(row: Row) -> str:
    """Strict JSON of one row, without its newline."""
    plain = {name: _plain(value) for name, value in row.items()}
    return safe_json(plain)


def write_json_lines(rows: Iterable[Row], path: Path) -> int:
    """Writes the file whole or not at all; returns the number of rows. Raises OSError."""
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as lines:
        for row in rows:
            lines.write(json_line(row) + "\n")
            count += 1
    return count


def write_parquet(rows: Iterable[Row], path: Path) -> int:
    """The same as Parquet (zstd); no rows make an empty file with the schema."""
    count = 0
    with (
        replacing(path) as temporary,
        temporary.open("wb") as file,  # given a path, pyarrow asks for its position, which a FIFO has not
        pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
    ):
        for group in _row_groups(rows):
            writer.write_table(pa.Table.from_pylist(group, SCHEMA))
            count += len(group)
    return count


FILE_WRITERS: dict[str, Callable[[Iterable[Row], Path], int]] = {"jsonl": write_json_lines, "parquet": write_parquet}


def print_json_lines(rows: Iterable[Row], output: IO[str]) -> int:
    count = 0
    for row in rows:
        output.write(json_line(row) + "\n")
        count += 1
    return count


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the file; renamed to it at the end, removed if anything failed.

    A link is followed, and what is no regular file (a FIFO, a device) is written into.
    """
    if path.exists() and (not path.is_file() or _is_device_path(path)):
        yield path
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _is_device_path(path: Path) -> bool:
    """``/dev/stdout`` may lead to a regular file, which its opener, not we, would want replaced."""
    return Path(os.path.abspath(path)).parts[1:2] in (("dev",), ("proc",))


def _row_groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        cells = {name: _cell(kind, row[name]) for name, kind in COLUMNS}
        group.append(cells)
        size += sum(len(cell) for cell in cells.values() if isinstance(cell, str))
        if size >= ROW_GROUP_BYTES or len(group) >= ROW_GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _cell(kind: str, value: Any) -> Any:
    if value is None:
        return None
    return _CELLS[kind](_plain(value))


def _plain(value: Any) -> Any:
    """Pydantic models inside a record as dicts."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return dict(value) if hasattr(value, "model_fields_set") else value
