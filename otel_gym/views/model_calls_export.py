"""ModelCallRecords in Parquet, each with the run, rollout and execution it belongs to.

It has one explicit schema, whatever the records hold: nested values (``request``, ``response``, ``tool_calls`` …)
are JSON text, times are float64 as in the record, counts are int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from otel_gym.content import fits_int64, safe_json, safe_text
from otel_gym.views.json_lines import Row, plain, replacing

# A row group holds whole bodies: this bounds its memory better than a count of rows would.
ROW_GROUP_BYTES = 64 * 1024 * 1024
ROW_GROUP_ROWS = 10_000

TEXT, JSON, COUNT, NUMBER, FLAG = "text", "json", "count", "number", "flag"

Columns = tuple[tuple[str, str], ...]

COLUMNS: Columns = (
    ("run_id", TEXT),
    ("rollout_id", TEXT),
    ("execution", TEXT),
    ("superseded", FLAG),
    ("model_call_id", TEXT),
    ("response_id", TEXT),
    ("client_session_id", TEXT),
    ("client_assistant_message_id", TEXT),
    ("call_index", COUNT),
    ("model_ref", JSON),
    ("model", TEXT),
    ("dialect", TEXT),
    ("status_code", COUNT),
    ("response_status", TEXT),
    ("finish_reason", TEXT),
    ("upstream_attempted", FLAG),
    ("upstream_status_code", COUNT),
    ("response_source", TEXT),
    ("local_response_reason", TEXT),
    ("started_at", NUMBER),
    ("completed_at", NUMBER),
    ("latency_total_ms", NUMBER),
    ("latency_ttft_ms", NUMBER),
    ("tokens_in", COUNT),
    ("tokens_out", COUNT),
    ("tokens_reasoning", COUNT),
    ("tokens_total", COUNT),
    ("cached_tokens", COUNT),
    ("cache_creation_tokens", COUNT),
    ("cache_hit", FLAG),
    ("tool_calls", JSON),
    ("reasoning_content", TEXT),
    ("error_category", TEXT),
    ("failure_report", JSON),
    ("model_operations", JSON),
    ("request", JSON),
    ("request_raw", TEXT),
    ("response", JSON),
    ("response_raw", TEXT),
)

_TYPES: dict[str, pa.DataType] = {
    TEXT: pa.large_string(),
    JSON: pa.large_string(),
    COUNT: pa.int64(),
    NUMBER: pa.float64(),
    FLAG: pa.bool_(),
}
_CELLS: dict[str, Callable[[Any], Any]] = {
    TEXT: safe_text,
    JSON: safe_json,
    COUNT: lambda value: value if fits_int64(value) else None,
    NUMBER: float,
    FLAG: bool,
}


def schema_of(columns: Columns) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns])


SCHEMA = schema_of(COLUMNS)


def write_parquet(rows: Iterable[Row], path: Path, columns: Columns = COLUMNS) -> int:
    """Writes the file (zstd) whole or not at all; returns the number of rows. Raises OSError.

    No rows make an empty file with the schema.
    """
    count, schema = 0, schema_of(columns)
    with (
        replacing(path) as temporary,
        temporary.open("wb") as file,  # given a path, pyarrow asks for its position, which a FIFO has not
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for group in _row_groups(rows, columns):
            writer.write_table(pa.Table.from_pylist(group, schema))
            count += len(group)
    return count


def _row_groups(rows: Iterable[Row], columns: Columns) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        cells = {name: _cell(kind, row[name]) for name, kind in columns}
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
    return _CELLS[kind](plain(value))
