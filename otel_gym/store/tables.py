"""A store of rows that an engine holds: Ray Data, Spark, Dask or any other that gives Arrow tables.

An engine reads ``<dir>/parquet``, brings together what belongs together (``group_of``), and opens each table that it
gets so: every view reads it as it reads a folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from otel_gym.identity import indices_from_rollout_id, rollout_id_from_indices
from otel_gym.store.blobs import BlobStore
from otel_gym.store.layout import PARQUET
from otel_gym.store.lines import Report
from otel_gym.store.live_files import live_files
from otel_gym.store.parquet import PartError, part_paths, read_footer
from otel_gym.store.reader import Store
from otel_gym.store.rows import span_of_row
from otel_gym.store.schema import COLUMNS_READ, rows_of_batch
from otel_gym.store.sources import sealed_spans
from otel_gym.store.span import StoredSpan


def group_of(rollout_id: str) -> str:
    """What one table must hold whole, so that views of it are those of the store: ``12-0`` for ``12-0-a1`` as well.

    Not the run: a span that names none belongs to one of its rollout's runs, and which one the others tell.
    """
    indices = indices_from_rollout_id(rollout_id)
    return rollout_id if indices is None else rollout_id_from_indices(indices.task_index, indices.rollout_index)


def store_of_table(table: pa.Table, directory: Path | str) -> Store:
    """The rollouts whose rows ``table`` has, in any order, with the columns of ``<dir>/parquet`` (others are ignored).

    ``directory`` is the store they came from; media is read from it, if at all. Memory beside the table: one rollout.
    ValueError if a column is missing.
    """
    missing = COLUMNS_READ.difference(table.column_names)
    if missing:
        raise ValueError(f"a table of spans without {', '.join(sorted(missing))}: read all columns of {PARQUET}/")
    return Store(directory, [TableRows(table, Path(directory))])


class TableRows:
    """Where the rows of each rollout stand in a table. They are taken batch by batch: no column must fit into one."""

    def __init__(self, table: pa.Table, directory: Path) -> None:
        self._path = directory / PARQUET
        self._blobs = BlobStore(directory)
        self._batches = table.to_batches()
        self._places: dict[str, dict[int, list[int]]] = {}
        for number, batch in enumerate(self._batches):
            for row, rollout_id in enumerate(batch.column("rollout_id").to_pylist()):
                self._places.setdefault(rollout_id, {}).setdefault(number, []).append(row)

    def rollout_ids(self, report: Report) -> Iterable[str]:
        return self._places

    def spans(self, rollout_id: str, report: Report) -> Iterable[StoredSpan]:
        for number, places in self._places.get(rollout_id, {}).items():
            rows = rows_of_batch(_taken(self._batches[number], places))
            yield from sealed_spans(map(span_of_row, rows), self._path, self._blobs, report)


def _taken(batch: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    """Copies nothing where the rows follow each other, as they do in a part."""
    first, number = places[0], len(places)
    return batch.slice(first, number) if places[-1] - first + 1 == number else batch.take(pa.array(places))


def unsealed_files(directory: Path | str) -> list[Path]:
    """Live files that hold what no part that can be read holds: it is in no table of the parts."""
    sealed: dict[tuple[str, str], int] = {}
    for part in part_paths(Path(directory)):
        with suppress(PartError):
            for claim in read_footer(part).claims:
                key = (claim.rollout_id, claim.file)
                sealed[key] = max(claim.end, sealed.get(key, 0))
    return [
        file.path
        for file in live_files(Path(directory))
        if file.path.stat().st_size > sealed.get((file.rollout_id, file.name), 0)
    ]
