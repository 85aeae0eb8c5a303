"""The Arrow schema of the sealed form: explicit, one version, the same for every file, never inferred.

No unsigned columns, since engines disagree on them; no nanosecond timestamps, since Spark refuses them; nothing nested
but lists of one plain type; what has no fixed form is JSON text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from otel_gym.store.rows import AT, COLUMNS, DOUBLE, DOUBLES, FLAG, IDS, INT, SCHEMA_VERSION, TEXT, TEXTS, TIME, Row

VERSION_KEY = b"otel_gym.schema_version"

_TYPES: dict[str, pa.DataType] = {
    TEXT: pa.string(),
    TEXTS: pa.list_(pa.string()),
    INT: pa.int64(),
    DOUBLE: pa.float64(),
    FLAG: pa.bool_(),
    TIME: pa.timestamp("us", tz="UTC"),
    IDS: pa.list_(pa.int32()),
    DOUBLES: pa.list_(pa.float64()),
}
_REQUIRED = frozenset({"rollout_id", "trace_id", "span_id", "name", "kind", "start_ns", "start_time", "status"})

SCHEMA = pa.schema(
    [pa.field(column.name, _TYPES[column.type], nullable=column.name not in _REQUIRED) for column in COLUMNS],
    metadata={VERSION_KEY: SCHEMA_VERSION},
)
SORTED_BY = ("run_id", "rollout_id", "start_ns")

# Columns that few values repeat in; a dictionary of bodies would cost time and win nothing.
DICTIONARIES = [column.name for column in COLUMNS if column.repeats]

# Those that a span is made of; the timestamps say nothing that the nanoseconds do not.
COLUMNS_READ = frozenset(field.name for field in SCHEMA if field.type != _TYPES[TIME])

_KINDS = [field.type for field in SCHEMA]
_TWINS = ((AT["start_time"], AT["start_ns"]), (AT["end_time"], AT["end_ns"]))


def batch_of_rows(rows: list[Row]) -> pa.RecordBatch:
    """Rows as Arrow; the timestamps are made here from the nanoseconds."""
    cells = list(zip(*rows, strict=True))
    number = len(rows)
    arrays = [
        pa.array(column, kind) if any(column) or column.count(None) < number else pa.nulls(number, kind)
        for kind, column in zip(_KINDS, cells, strict=True)
    ]
    for twin, nanoseconds in _TWINS:
        arrays[twin] = pc.divide(arrays[nanoseconds], 1000).cast(_TYPES[TIME])
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_of_batch(batch: pa.RecordBatch) -> list[Row]:
    """The reverse, from a batch with the columns of ``SCHEMA``; timestamps are left out."""
    empty = [None] * batch.num_rows
    columns: list[list[Any]] = [
        batch.column(name).to_pylist() if name in COLUMNS_READ else empty for name in SCHEMA.names
    ]
    return [list(cells) for cells in zip(*columns, strict=True)]
