"""Joined rows in Parquet: what a row is of, what it was given, what its model calls sum up to; the row as JSON text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_gym.views.join import JoinedRow
from otel_gym.views.json_lines import Row
from otel_gym.views.model_calls_export import COUNT, JSON, NUMBER, TEXT, Columns, write_parquet

COLUMNS: Columns = (
    ("run_id", TEXT),
    ("rollout_id", TEXT),
    ("task_index", COUNT),
    ("rollout_index", COUNT),
    ("attempt", COUNT),
    ("reward", NUMBER),
    ("status", TEXT),
    ("num_calls", COUNT),
    ("tokens_in", COUNT),
    ("tokens_out", COUNT),
    ("tokens_reasoning", COUNT),
    ("tokens_total", COUNT),
    ("cached_tokens", COUNT),
    ("latency_total_ms", NUMBER),
    ("gaps", JSON),
    ("ng_model_call_capture", TEXT),
    ("gym_dynamo", TEXT),
    ("row", TEXT),
)


def write_joined_parquet(rows: Iterable[JoinedRow], path: Path) -> int:
    """Writes the file whole or not at all; returns the number of rows. Raises OSError."""
    return write_parquet(_cells(rows), path, COLUMNS)


def _cells(rows: Iterable[JoinedRow]) -> Iterator[Row]:
    for joined in rows:
        row = joined.row
        yield {
            "run_id": joined.run_id,
            "rollout_id": row.rollout_id,
            "task_index": row.task_index,
            "rollout_index": row.rollout_index,
            "attempt": row.attempt,
            "reward": row.reward,
            "status": joined.status,
            **joined.metrics,
            "gaps": joined.gaps or None,
            "ng_model_call_capture": joined.capture.decode("utf-8"),
            "gym_dynamo": None if joined.dynamo is None else joined.dynamo.decode("utf-8"),
            "row": joined.text.decode("utf-8"),
        }
