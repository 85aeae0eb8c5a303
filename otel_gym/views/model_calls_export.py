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


def write_parquet(rows: Iterable[Row], path: Path) -> int:
    """Writes the file (zstd) whole or not at all; returns the number of rows. Raises OSError.

    No rows make an empty file with the schema.
    """
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
    return _CELLS[kind](plain(value))
