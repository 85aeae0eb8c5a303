"""Parts: the Parquet files of the sealed form, written whole and read back as spans.

A part says in its own footer which bytes of which live files it holds (``Claim``), so that the rename which makes it
visible is also what records that: no second file could disagree with it.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from otel_gym.store.layout import PARQUET, rollout_folder
from otel_gym.store.repair import Damage
from otel_gym.store.rows import ROLLOUT, RUN, SPAN, START, Row, span_of_row
from otel_gym.store.schema import DICTIONARIES, SCHEMA, SORTED_BY, VERSION_KEY, batch_of_rows, rows_of_batch
from otel_gym.store.span import StoredSpan

PART_PREFIX = "part-"
PART_SUFFIX = ".parquet"

# Level 3 makes a tenth less of spans with content than level 1, for a third more time.
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1
# A row group ends at whichever comes first: small ones cost size, time and queries, large ones memory.
ROW_GROUP_ROWS = 32_768
ROW_GROUP_BYTES = 32 * 1024 * 1024
# What a bloom filter is made for; more in a row group make it say "perhaps" more often.
_ROLLOUTS_OF_A_ROW_GROUP = 8192

# Rows become Arrow in steps, so that the same memory serves again and again.
_BATCH_ROWS = 1024
_BATCH_BYTES = 4 * 1024 * 1024

_CLAIMS_KEY = b"otel_gym.claims"
_READ_ROWS = 512
# A part of the usual size, as Arrow.
_KEPT_BYTES = 256 * 1024 * 1024


class Claim(NamedTuple):
    """Bytes ``start`` to ``end`` of a rollout's live file, told from a later file of the same name by ``fingerprint``.

    ``damaged``: lines among them that could not be read, and so stand in no part, or whose request cannot be rebuilt.
    """

    rollout_id: str
    file: str
    start: int
    end: int
    fingerprint: str
    damaged: int = 0


class PartError(Exception):
    """A file under a part's name that is none; the text says which and why."""


@dataclass(frozen=True, slots=True)
class PartFooter:
    rows: int
    claims: tuple[Claim, ...]


def part_name(claims: Sequence[Claim]) -> str:
    """Follows from the inputs alone, so that making the same part again replaces it."""
    inputs = json.dumps([claim[:5] for claim in sorted(claims)], separators=(",", ":"))
    return f"{PART_PREFIX}{hashlib.sha256(inputs.encode()).hexdigest()[:24]}{PART_SUFFIX}"


def part_paths(directory: Path) -> list[Path]:
    """The parts of the store at ``directory``."""
    return _parts_in(directory / PARQUET)


def _parts_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"{PART_PREFIX}*{PART_SUFFIX}") if path.is_file())


class PartWriter:
    """Writes the rows of a part, which come rollout by rollout, sorted by (run, rollout, start).

    Rows of ``first_run``, the least run id as far as is known, are written as they come, so that memory holds one row
    group of them; those of other runs wait until the end.
    """

    def __init__(self, path: Path, first_run: str | None = None) -> None:
        self.rows = 0
        self.path = path
        self._first_run = first_run or ""
        self._runs: dict[str, _Rows] = {}
        self._writer = pq.ParquetWriter(path, SCHEMA, **_options())

    def add(self, rows: list[Row], size: int) -> None:
        """Rows of one rollout, more of which may follow; ``size`` is about what they weigh, in bytes."""
        if not rows:
            return
        rows.sort(key=_sort_key)
        self.rows += len(rows)
        mean = max(1, size // len(rows))
        for run_id, found in itertools.groupby(rows, _run_of):
            run = self._runs.setdefault(run_id, _Rows())
            run.add(list(found), mean)
            if run_id == self._first_run and run.fill_a_row_group():
                self._write(run)

    def _write(self, run: _Rows) -> None:
        for table in run.row_groups():
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self, claims: Sequence[Claim]) -> None:
        """Writes what waits, and the footer. The file is whole then, though not yet on disk."""
        runs = sorted(self._runs.items())
        is_sorted = all(run.is_sorted for _, run in runs) and (not runs or runs[0][0] >= self._first_run)
        waiting = _Rows()
        for _, run in runs:
            waiting.take_over(run)
        self._write(waiting)
        if not is_sorted:
            self._sort_anew()
        self._writer.add_key_value_metadata({_CLAIMS_KEY: _packed(claims)})
        self._writer.close()

    def _sort_anew(self) -> None:
        """Where a rollout came in pieces, or a run id was less than the first: as a whole, in memory."""
        self._writer.close()
        table = pq.read_table(self.path, partitioning=None)
        step = min(ROW_GROUP_ROWS, max(1, ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes)))
        cells = (table[name].to_pylist() for name in (*SORTED_BY, "span_id"))
        keys = [(run or "", *others) for run, *others in zip(*cells, strict=True)]
        order = pa.array(sorted(range(len(keys)), key=keys.__getitem__))
        self._writer = pq.ParquetWriter(self.path, SCHEMA, **_options())
        for start in range(0, table.num_rows, step):
            self._writer.write_table(table.take(order[start : start + step]), row_group_size=step)


class _Rows:
    """Rows of one run that are not written yet; turned into Arrow early, where they take less memory."""

    def __init__(self) -> None:
        self.is_sorted = True
        self._last: SortKey | None = None
        self._rows: list[Row] = []
        self._rows_bytes = 0
        self._batches: list[tuple[pa.RecordBatch, int]] = []
        self._count = self._bytes = 0

    def add(self, rows: list[Row], mean: int) -> None:
        """Sorted rows of one rollout, of ``mean`` bytes each."""
        if self._last is not None and _sort_key(rows[0]) < self._last:
            self.is_sorted = False
        self._last = _sort_key(rows[-1])
        step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // mean))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            self._rows += some
            self._rows_bytes += mean * len(some)
            if self._rows_bytes >= _BATCH_BYTES or len(self._rows) >= _BATCH_ROWS:
                self._convert()
        self._count += len(rows)
        self._bytes += mean * len(rows)

    def fill_a_row_group(self) -> bool:
        return self._count >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES

    def _convert(self) -> None:
        if self._rows:
            self._batches.append((batch_of_rows(self._rows), self._rows_bytes))
            self._rows, self._rows_bytes = [], 0

    def take_over(self, other: _Rows) -> None:
        """The rows of the next run behind those that are here: row groups of a run each may be very small."""
        other._convert()
        self._batches += other._batches

    def row_groups(self) -> Iterator[pa.Table]:
        """Everything, a table a row group, each ending with the batch that fills it; nothing is left."""
        self._convert()
        group: list[pa.RecordBatch] = []
        count = size = 0
        for batch, batch_bytes in self._batches:
            group.append(batch)
            count += batch.num_rows
            size += batch_bytes
            if count >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(group)
                group, count, size = [], 0, 0
        if group:
            yield pa.Table.from_batches(group)
        self._batches, self._count, self._bytes = [], 0, 0


SortKey = tuple[str, str, int, str]


def _run_of(row: Row) -> str:
    return row[RUN] or ""


def _sort_key(row: Row) -> SortKey:
    return row[RUN] or "", row[ROLLOUT], row[START], row[SPAN]


def _options() -> dict[str, Any]:
    options: dict[str, Any] = {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": DICTIONARIES,
        "write_statistics": [name for name in SCHEMA.names if name in _WITH_STATISTICS],
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(SCHEMA.get_field_index(name), nulls_first=True) for name in SORTED_BY],
    }
    if "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        options["bloom_filter_options"] = {"rollout_id": {"ndv": _ROLLOUTS_OF_A_ROW_GROUP, "fpp": 0.01}}
    return options


# Of a text of many kilobytes nobody asks for the least and the greatest.
_WITH_STATISTICS = frozenset(
    field.name for field in SCHEMA if field.type in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC"))
) | {*DICTIONARIES, "span_id", "parent_span_id", "model_call_id", "tool_call_id", "response_id"} - {"resource"}


def _packed(claims: Sequence[Claim]) -> bytes:
    """Claims as a footer holds them: text, since other engines read footers as text."""
    by_rollout: dict[str, list[tuple[Any, ...]]] = {}
    for claim in sorted(claims):
        by_rollout.setdefault(claim.rollout_id, []).append(claim[1:])
    return base64.b64encode(zlib.compress(json.dumps(by_rollout, separators=(",", ":")).encode(), 6))


def read_footer(path: Path) -> PartFooter:
    """What a part says of itself. PartError for a file that is no part of ours or of a later version."""
    try:
        metadata = pq.read_metadata(path)
        known: Mapping[bytes, bytes] = metadata.metadata or {}
        version, packed = known.get(VERSION_KEY), known.get(_CLAIMS_KEY)
        if version is None or packed is None:
            raise PartError(f"{path}: not written by otel_gym; move it out of the folder, which holds parts alone")
        if version != SCHEMA.metadata[VERSION_KEY]:
            raise PartError(f"{path}: schema version {version.decode()}, this release reads {_version()}; update it")
        by_rollout = json.loads(zlib.decompress(base64.b64decode(packed)))
        claims = tuple(Claim(rollout_id, *claim) for rollout_id, found in by_rollout.items() for claim in found)
        return PartFooter(metadata.num_rows, claims)
    except (pa.ArrowException, OSError, ValueError, TypeError, zlib.error) as error:
        raise PartError(f"{path}: cannot be read as Parquet: {error}") from None


def damage_sealed(part: Path) -> Iterator[Damage]:
    """Lines that could not be read when the part was made, of files that are not here and so cannot say so."""
    for claim in read_footer(part).claims:
        if claim.damaged and not _is_here(part, claim):
            number = "1 line" if claim.damaged == 1 else f"{claim.damaged:,} lines"
            problem = f"{number} of rollout_id={claim.rollout_id}/{claim.file} could not be sealed whole"
            yield Damage(part, 0, problem, "they are in that file alone, where it was kept; all else is here")


def _is_here(part: Path, claim: Claim) -> bool:
    """Whether its file is. A folder that others made may have a name that no rollout has."""
    try:
        return (rollout_folder(part.parent.parent, claim.rollout_id) / claim.file).exists()
    except ValueError:
        return False


def _version() -> str:
    return str(SCHEMA.metadata[VERSION_KEY].decode())


class RowGroups:
    """Reads row groups, and keeps those that the last rollout lies in, since the next one often lies in the same.

    That is one, where a part holds one run; where it holds many, nearly all of its groups have rows of each rollout.
    Their parts stay open: the footer of a part that was made of many small files takes longer to read than a rollout.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[_State, pq.ParquetFile]] = {}
        self._kept: dict[_GroupKey, _Group] = {}
        self._rollout_id: str | None = None
        self._used: set[_GroupKey] = set()

    def batches(self, part: Path, rollout_id: str) -> Iterator[pa.RecordBatch]:
        if rollout_id != self._rollout_id:
            self._begin(rollout_id)
        path = str(part)
        state, file = self._opened(path)
        wanted = dict.fromkeys((path, state, number) for number in _groups_of(file, rollout_id))
        for key in [key for key in self._kept if key[0] == path and key not in wanted]:
            del self._kept[key]  # before anything new is read
        for key in wanted:
            group = self._kept.get(key)
            if group is None:
                group = self._read(file, key)
            self._used.add(key)
            yield from group.batches(rollout_id)

    def _begin(self, rollout_id: str) -> None:
        """Lets go what the last rollout did not need."""
        self._kept = {key: group for key, group in self._kept.items() if key in self._used}
        paths = {path for path, _, _ in self._used}
        for path in [path for path in self._files if path not in paths]:
            self._files.pop(path)[1].close()
        self._rollout_id, self._used = rollout_id, set()

    def _opened(self, path: str) -> tuple[_State, pq.ParquetFile]:
        status = os.stat(path)
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._files.get(path)
        if known is None or known[0] != state:
            known = self._files[path] = (state, pq.ParquetFile(path))
        return known

    def _read(self, file: pq.ParquetFile, key: _GroupKey) -> _Group:
        size = file.metadata.row_group(key[2]).total_byte_size
        held = sum(group.table.nbytes for group in self._kept.values())
        while self._kept and held + size > _KEPT_BYTES:
            held -= self._kept.pop(next(iter(self._kept))).table.nbytes
        group = self._kept[key] = _Group(file.read_row_group(key[2], columns=SCHEMA.names))
        return group


_State = tuple[int, int, int]
_GroupKey = tuple[str, _State, int]


class _Group:
    """A row group, and where in it the rows of each rollout stand."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._places: dict[str, list[tuple[int, int]]] = {}
        start = 0
        for rollout_id, same in itertools.groupby(table.column("rollout_id").to_pylist()):
            number = sum(1 for _ in same)
            self._places.setdefault(rollout_id, []).append((start, number))
            start += number

    def batches(self, rollout_id: str) -> Iterator[pa.RecordBatch]:
        for start, number in self._places.get(rollout_id, ()):
            yield from self.table.slice(start, number).to_batches(_READ_ROWS)


def parquet_spans(
    path: Path | str, rollout_id: str | None = None, groups: RowGroups | None = None
) -> Iterator[StoredSpan]:
    """The spans of a part, or of every part in a folder, in the order of the file; of one rollout only, if given.

    Row groups that cannot hold the rollout are not read; ``groups`` spares reading them again for the next rollout.
    Memory: one batch of rows, or the row groups that the rollout lies in, 256 MiB of them at most. Raises PartError.
    """
    for row in parquet_rows(path, rollout_id, groups):
        yield span_of_row(row)


def parquet_rows(path: Path | str, rollout_id: str | None = None, groups: RowGroups | None = None) -> Iterator[Row]:
    groups = groups or RowGroups()
    for part in _parts(Path(path)):
        try:
            for batch in _batches(part) if rollout_id is None else groups.batches(part, rollout_id):
                yield from rows_of_batch(batch)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise PartError(f"{part}: cannot be read: {error}") from None


def _batches(part: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(part) as file:
        yield from file.iter_batches(_READ_ROWS, columns=SCHEMA.names)


def parquet_rollouts(path: Path | str) -> list[tuple[str | None, str]]:
    """The (run id, rollout id) of a part or of a folder of parts, each once, sorted."""
    found: set[tuple[str | None, str]] = set()
    for part in _parts(Path(path)):
        try:
            table = pq.read_table(part, columns=["run_id", "rollout_id"], partitioning=None)
        except (pa.ArrowException, OSError) as error:
            raise PartError(f"{part}: cannot be read: {error}") from None
        for pair in table.group_by(["run_id", "rollout_id"]).aggregate([]).to_pylist():
            found.add((pair["run_id"], pair["rollout_id"]))
    return sorted(found, key=lambda pair: (pair[0] or "", pair[1]))


def earliest_starts(paths: Sequence[Path], runs: frozenset[str | None] | None, without: str) -> Iterator[int]:
    """Of each part when its first span began whose other attributes do not hold the text ``without``."""
    for path in paths:
        try:
            table = pq.read_table(path, columns=["run_id", "start_ns", "attributes"], partitioning=None)
        except (pa.ArrowException, OSError):
            continue
        wanted = pc.invert(pc.fill_null(pc.match_substring(table["attributes"], without), False))
        if runs is not None:
            wanted = pc.and_(wanted, pc.is_in(table["run_id"], pa.array(runs, pa.string())))
        first = pc.min(table["start_ns"].filter(wanted)).as_py()
        if first is not None:
            yield first


def _parts(path: Path) -> list[Path]:
    return _parts_in(path) if path.is_dir() else [path]


def _groups_of(file: pq.ParquetFile, rollout_id: str) -> list[int]:
    metadata = file.metadata
    groups = range(metadata.num_row_groups)
    column = SCHEMA.get_field_index("rollout_id")
    return [group for group in groups if _may_hold(metadata.row_group(group).column(column), rollout_id)]


def _may_hold(column: Any, text: str) -> bool:
    statistics = column.statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= text <= statistics.max


def verify_part(path: Path) -> PartFooter:
    """Reads every page back from disk, checksums included; PartError if anything does not fit."""
    footer = read_footer(path)
    rows = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_READ_ROWS):
                rows += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise PartError(f"{path}: damaged: {error}") from None
    if rows != footer.rows:
        raise PartError(f"{path}: {rows} rows where its footer says {footer.rows}")
    return footer
