"""Parts: the Parquet files of the sealed form, written whole and read back as spans.

A part says in its own footer which bytes of which live files it holds (``Claim``), so that the rename which makes it
visible is also what records that: no second file could disagree with it.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from otel_gym.store.layout import PARQUET
from otel_gym.store.rows import ROLLOUT, RUN, SPAN, START, Row, span_of_row
from otel_gym.store.schema import DICTIONARIES, SCHEMA, SORTED_BY, VERSION_KEY, batch_of_rows, rows_of_batch
from otel_gym.store.span import StoredSpan

PART_PREFIX = "part-"
PART_SUFFIX = ".parquet"

# Level 3 is a third smaller than level 1 on spans with content, for a fifth more time.
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3
# A row group ends at whichever comes first: small ones cost size and time, large ones memory.
ROW_GROUP_ROWS = 8192
ROW_GROUP_BYTES = 32 * 1024 * 1024

_CLAIMS_KEY = b"otel_gym.claims"
_READ_ROWS = 512


class Claim(NamedTuple):
    """Bytes ``start`` to ``end`` of a rollout's live file, told from a later file of the same name by ``fingerprint``.

    ``damaged``: lines among them that could not be read, and so stand in no part.
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
    return sorted((directory / PARQUET).glob(f"{PART_PREFIX}*{PART_SUFFIX}"))


class PartWriter:
    """Collects the rows of a part, rollout by rollout, and writes them sorted. Holds them all, as Arrow."""

    def __init__(self) -> None:
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._keys: list[tuple[str, str, int, str]] = []
        self._is_sorted = True

    @property
    def rows(self) -> int:
        return len(self._keys)

    def add(self, rows: Sequence[Row], size: int) -> None:
        """Rows of whole rollouts; ``size`` is about what they weigh, in bytes."""
        if not rows:
            return
        for row in sorted(rows, key=_sort_key):
            key = _sort_key(row)
            if self._keys and key < self._keys[-1]:
                self._is_sorted = False
            self._keys.append(key)
            self._pending.append(row)
        self._pending_bytes += size
        if len(self._pending) >= ROW_GROUP_ROWS or self._pending_bytes >= ROW_GROUP_BYTES:
            self._convert()

    def _convert(self) -> None:
        mean = max(1, self._pending_bytes // len(self._pending))
        step = max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // mean))
        for start in range(0, len(self._pending), step):
            self._batches.append(batch_of_rows(self._pending[start : start + step]))
        self._pending, self._pending_bytes = [], 0

    def write(self, path: Path, claims: Sequence[Claim]) -> None:
        """Writes the part; a row group for each batch of rows."""
        if self._pending:
            self._convert()
        metadata = {_CLAIMS_KEY: _packed(claims)}
        with pq.ParquetWriter(path, SCHEMA, **_options()) as writer:
            for batch in self._sorted_batches():
                writer.write_batch(batch, row_group_size=batch.num_rows)
            writer.add_key_value_metadata(metadata)

    def _sorted_batches(self) -> Iterator[pa.RecordBatch]:
        if self._is_sorted:
            yield from self._batches
            return
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        table = pa.Table.from_batches(self._batches, SCHEMA)
        step = max(1, len(order) // max(1, len(self._batches)))
        for start in range(0, len(order), step):
            yield from table.take(pa.array(order[start : start + step])).combine_chunks().to_batches()


def _sort_key(row: Row) -> tuple[str, str, int, str]:
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
        options["bloom_filter_options"] = {"rollout_id": {"ndv": ROW_GROUP_ROWS, "fpp": 0.01}}
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


def _version() -> str:
    return str(SCHEMA.metadata[VERSION_KEY].decode())


def parquet_spans(path: Path | str, rollout_id: str | None = None) -> Iterator[StoredSpan]:
    """The spans of a part, or of every part in a folder, in the order of the file; of one rollout only, if given.

    Row groups that cannot hold the rollout are not read. Memory: one batch of rows. Raises PartError.
    """
    for row in parquet_rows(path, rollout_id):
        yield span_of_row(row)


def parquet_rows(path: Path | str, rollout_id: str | None = None) -> Iterator[Row]:
    for part in _parts(Path(path)):
        try:
            with pq.ParquetFile(part) as file:
                groups = _groups_of(file, rollout_id)
                for batch in file.iter_batches(_READ_ROWS, groups, columns=SCHEMA.names) if groups else ():
                    for row in rows_of_batch(batch):
                        if rollout_id is None or row[ROLLOUT] == rollout_id:
                            yield row
        except (pa.ArrowException, OSError, KeyError) as error:
            raise PartError(f"{part}: cannot be read: {error}") from None


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


def _parts(path: Path) -> list[Path]:
    return sorted(path.glob(f"{PART_PREFIX}*{PART_SUFFIX}")) if path.is_dir() else [path]


def _groups_of(file: pq.ParquetFile, rollout_id: str | None) -> list[int]:
    metadata = file.metadata
    groups = range(metadata.num_row_groups)
    if rollout_id is None:
        return list(groups)
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
