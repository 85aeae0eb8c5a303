"""What a path holds, as Parquet files alone: the parts that lie there, and temporary ones of what no part holds.

The temporary ones are made as compaction makes parts, rollout by rollout, so that memory is bounded; nothing of the
store changes. A span may stand in several files: ``Snapshot`` says which of its rows counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from otel_gym.store.compact import seal_rest
from otel_gym.store.layout import is_store, rollout_id_of_folder
from otel_gym.store.lines import spans_of_file
from otel_gym.store.live_files import other_line_files
from otel_gym.store.parquet import (
    COMPRESSION,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    PartError,
    damage_sealed,
    part_paths,
    read_footer,
)
from otel_gym.store.reader import Store
from otel_gym.store.repair import Damage
from otel_gym.store.rows import ROLLOUT, SPAN, TRACE, Row, row_of_span
from otel_gym.store.schema import DICTIONARIES, SCHEMA, batch_of_rows
from otel_gym.store.sources import StartRecords, damaged_part, with_whole_requests


@dataclass(slots=True)
class Snapshot:
    """``sealed``: the parts; ``made``: temporary ones, what counts less first. Of several rows of one span the more
    complete one counts, of equal ones that of the later file, and ``sealed`` come last.
    """

    sealed: list[Path] = field(default_factory=list)
    made: list[Path] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def snapshot(path: Path, folder: Path) -> Snapshot:
    """Of a store, Parquet, or files of lines. ``folder`` is empty, and the caller's. StoreError; PartError; OSError."""
    if is_store(path):
        return _of_store(path, folder)
    store = Store(path)  # says what is wrong with a path that is none of these
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return Snapshot(sealed=[path] if path.is_file() else sorted(path.glob("*.parquet")))
    rows = (row_of_span(span, rollout.rollout_id) for rollout in store.rollouts() for span in rollout.spans)
    made = write_rows(rows, folder / "lines.parquet")
    return Snapshot(made=made, damage=store.damage)


def _of_store(path: Path, folder: Path) -> Snapshot:
    """In the order in which spans move: what leaves one place while it is read is in the next one already."""
    found = Snapshot()
    for rows, name in ((_open_rows(path, found.damage), "open"), (_packed_rows(path, found.damage), "packed")):
        found.made += write_rows(_each_once(rows), folder / f"{name}.parquet")
    known = _readable_parts(path, [])
    done = seal_rest(path, folder, known)
    found.damage += done.damage
    found.made += part_paths(folder)
    # Also those that were made meanwhile of what was read.
    found.sealed = _readable_parts(path, found.damage)
    for part in found.sealed:
        found.damage += damage_sealed(part)
    return found


def _readable_parts(path: Path, damage: list[Damage]) -> list[Path]:
    """What lies there under a part's name and is none costs itself only; its live files, if any, are read."""
    parts = []
    for part in part_paths(path):
        try:
            read_footer(part)
            parts.append(part)
        except PartError as error:
            damage.append(damaged_part(part, error))
    return parts


def _open_rows(path: Path, damage: list[Damage]) -> Iterator[Row]:
    started = StartRecords(path)
    for rollout_id in started.rollout_ids(damage.append):
        yield from (row_of_span(span, rollout_id) for span in started.spans(rollout_id, damage.append))


def _packed_rows(path: Path, damage: list[Damage]) -> Iterator[Row]:
    """Of compressed files, which are never sealed."""
    for file in other_line_files(path):
        rollout_id = rollout_id_of_folder(file.parent)
        if rollout_id:
            spans = with_whole_requests(spans_of_file(file, damage.append), file, path, damage.append)
            yield from (row_of_span(span, rollout_id) for span in spans)


def _each_once(rows: Iterable[Row]) -> Iterator[Row]:
    seen: set[tuple[str, str, str]] = set()
    for row in rows:
        ids = row[ROLLOUT], row[TRACE], row[SPAN]
        if ids not in seen:
            seen.add(ids)
            yield row


def write_rows(rows: Iterable[Row], path: Path) -> list[Path]:
    """The file, where there is a row. Not sorted, as parts are, since all rows would have to be at hand for that."""
    writer: pq.ParquetWriter | None = None
    for some in _groups(rows):
        writer = writer or pq.ParquetWriter(path, SCHEMA, compression=COMPRESSION, use_dictionary=DICTIONARIES)
        writer.write_batch(batch_of_rows(some))
    if writer is None:
        return []
    writer.close()
    return [path]


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum(len(cell) for cell in row if type(cell) is str)
        if len(some) >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
