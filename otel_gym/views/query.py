"""A store in DuckDB: the views ``spans``, ``model_calls``, ``tools`` and ``rollouts``, and one SELECT of a user's.

The engine reads the Parquet itself, and only the columns that a query asks for. What is not sealed yet is written to
temporary Parquet first. ``views.query_tables`` says which spans count.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from otel_gym.store.repair import Damage
from otel_gym.store.rows import ROLLOUT, span_of_row
from otel_gym.store.schema import SCHEMA as SPANS
from otel_gym.store.schema import rows_of_batch
from otel_gym.store.snapshot import Snapshot, snapshot, write_rows
from otel_gym.store.span import StoredSpan
from otel_gym.views import query_sql as sql
from otel_gym.views.query_tables import (
    EXECUTIONS,
    IDS,
    PLACED,
    PLACES,
    Places,
    Row,
    Told,
    easy_places,
    hard_places,
    is_read_otherwise,
    span_of_cells,
    table,
    without_superseded,
)

if TYPE_CHECKING:
    import duckdb

_FETCHED = 10_000
_SETTINGS = ("TimeZone = 'UTC'", "autoinstall_known_extensions = false", "enable_progress_bar = false")
# Words by which a query may ask for more than `spans`, in a name or in what lists names.
_ASKS_FOR_PLACES = re.compile(r"\b(?:model_calls|tools|rollouts|show|duckdb_\w+|information_schema|pragma_\w+)\b", re.I)
_ASKS_FOR_CALLS = re.compile(r"\b(?:model_calls|rollouts)\b", re.I)

_NOT_OURS = re.compile(r'\nDid you mean "(?:pg_|sqlite_|duckdb_)[^\n]*')


class QueryError(Exception):
    """The query cannot be asked, or DuckDB refuses it; the text says why."""


class Query:
    """The answer to one SELECT: ``columns``, then ``rows``, once. To be closed. QueryError; StoreError; OSError."""

    def __init__(self, path: Path, text: str, *, every: bool = False) -> None:
        duckdb = _duckdb()
        self._errors: type[Exception] = duckdb.Error
        self._folder = tempfile.TemporaryDirectory(prefix="otel_gym_query_")
        self.damage: list[Damage] = []
        try:
            self._connection = duckdb.connect()
            self._ask(path, text, every)
        except BaseException:
            self._folder.cleanup()
            raise

    def _ask(self, path: Path, text: str, every: bool) -> None:
        # The text first: what is wrong with it is said before a large store is read.
        select = _only_select(self._connection, text, self._errors)
        folder = Path(self._folder.name)
        for setting in (*_SETTINGS, f"temp_directory = {_quoted(str(folder / 'spilled'))}"):
            self._connection.execute(f"SET {setting}")
        found = snapshot(path, folder)
        self.damage = found.damage
        try:
            _make_spans(self._connection, found)
            if _ASKS_FOR_PLACES.search(text):
                _make_views(self._connection, text, every, folder)
            self._connection.execute("SET lock_configuration = true")
            self._select = select
            self.columns: list[str] = list(self._connection.sql(select).columns)
        except self._errors as problem:
            raise QueryError(_said(problem)) from None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        try:
            yield from _fetched(self._connection.execute(self._select))
        except self._errors as problem:
            raise QueryError(str(problem)) from None

    def write_parquet(self, path: Path) -> None:
        """With the types that the query has."""
        try:
            self._connection.sql(self._select).write_parquet(str(path), compression="zstd")
        except self._errors as problem:
            raise QueryError(str(problem)) from None

    def close(self) -> None:
        self._connection.close()
        self._folder.cleanup()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ModuleNotFoundError:
        raise QueryError("query needs the package duckdb: pip install 'otel_gym[query]'") from None


def _said(problem: Exception) -> str:
    """DuckDB knows the views that a query asks for, and may take another name for one of its own tables."""
    text = str(problem)
    if not text.startswith("Catalog Error: Table with name"):
        return text
    views = "The views are spans, model_calls, tools and rollouts; a file's name stands in quotes"
    return f"{_NOT_OURS.sub('', text)}\n{views}"


def _only_select(connection: duckdb.DuckDBPyConnection, text: str, errors: type[Exception]) -> str:
    """The store is only read: one SELECT, of which there is no form that writes."""
    try:
        statements = connection.extract_statements(text)
    except errors as problem:
        raise QueryError(str(problem)) from None
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        found = "nothing" if not kinds else f"{len(kinds)} statements" if len(kinds) > 1 else kinds[0]
        raise QueryError(f"one SELECT is asked, this is {found}; a store is only read")
    return str(statements[0].query)


def _make_spans(connection: duckdb.DuckDBPyConnection, found: Snapshot) -> None:
    """The view, each span once."""
    connection.execute(f"CREATE SCHEMA {sql.SCHEMA}")
    files = [[path] for path in found.made] + ([found.sealed] if found.sealed else [])
    scans = [f"SELECT * FROM read_parquet([{_list(paths)}], hive_partitioning = false)" for paths in files]
    if not scans:
        _make_table(connection, "spans", SPANS.empty_table())
        return
    losers = _losers(connection, scans) if found.made else []
    for number, left_out in enumerate(losers):
        if left_out:
            scans[number] += f" AS s ANTI JOIN {sql.SCHEMA}.losers_{number} USING (rollout_id, trace_id, span_id)"
    connection.execute(f"CREATE VIEW spans AS {' UNION ALL '.join(scans)}")


def _losers(connection: duckdb.DuckDBPyConnection, scans: Sequence[str]) -> list[int]:
    """Tables of the rows of each scan that say less than another row of the same span; how many each has."""
    numbered = [scan.replace("SELECT *", f"SELECT {sql.IDS_AND_RANK}, {n} AS scan", 1) for n, scan in enumerate(scans)]
    connection.execute(sql.repeated(scans))
    if not _number(connection, f"SELECT count(*) FROM {sql.SCHEMA}.repeated"):
        return [0] * len(scans)
    connection.execute(sql.losers(numbered))
    counts = []
    for number in range(len(scans)):
        connection.execute(sql.losers_of(number))
        counts.append(_number(connection, f"SELECT count(*) FROM {sql.SCHEMA}.losers_{number}"))
    return counts


def _number(connection: duckdb.DuckDBPyConnection, text: str) -> int:
    [(number,)] = connection.execute(text).fetchall()
    return int(number)


def _make_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register("made", rows)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
    connection.unregister("made")


def _make_views(connection: duckdb.DuckDBPyConnection, text: str, every: bool, folder: Path) -> None:
    told = _tell(connection, folder)
    pairs = connection.execute(sql.PAIRS).fetchall()
    marks = connection.execute(sql.MARKS).fetchall()
    found = easy_places(pairs, [(cells[0], span_of_cells((*cells[1:], None))) for cells in marks])
    placed = [*told.placed, *_place_hard(connection, found)]
    found.executions += told.executions
    without_superseded(found.places, placed, found.executions)
    for name, rows, schema in (
        ("places", found.places, PLACES),
        ("placed", placed, PLACED),
        ("executions", found.executions, EXECUTIONS),
    ):
        _make_table(connection, f"{sql.SCHEMA}.{name}", table(rows, schema))
    connection.execute(sql.placed_spans(bool(placed)))
    connection.execute(sql.TIMELESS)
    connection.execute(sql.TOOL_RUNS)
    _make_table(connection, f"{sql.SCHEMA}.no_calls", table(told.no_calls, IDS))
    if _ASKS_FOR_CALLS.search(text):
        connection.execute(sql.ABOVE)
        if _number(connection, f"SELECT count(*) FROM {sql.SCHEMA}.above"):
            connection.execute(sql.LINKS)
            connection.execute(sql.ABOVE_CAPTURED)
    for view in sql.views(every):
        connection.execute(view)


def _tell(connection: duckdb.DuckDBPyConnection, folder: Path) -> Told:
    """Reads the rollouts of which SQL cannot say what their spans and calls are, and writes them as they are read."""
    connection.execute(f"CREATE TABLE {sql.SCHEMA}.shapes AS {sql.SHAPES}")
    connection.execute(sql.NOTHING_CHANGED)
    columns = [field.name for field in SPANS]
    if _number(connection, f"SELECT count(*) FROM {sql.SCHEMA}.shapes"):
        for _, span in list(_read_spans(connection, sql.shape_rows(columns))):
            if is_read_otherwise(span):
                connection.execute(sql.CHANGED, [span.trace_id, span.span_id])
    connection.execute(sql.TOLD)
    told = Told()
    scan = None
    if _number(connection, f"SELECT count(*) FROM {sql.SCHEMA}.told"):
        spans = _read_spans(connection, sql.told_rows(columns))
        by_rollout = groupby(spans, key=itemgetter(0))
        rows = (row for name, pairs in by_rollout for row in told.rows(name, [span for _, span in pairs]))
        [path] = write_rows(rows, folder / "told.parquet")
        scan = f"SELECT * FROM read_parquet([{_list([path])}], hive_partitioning = false)"
    connection.execute(sql.gym_spans(scan))
    return told


def _read_spans(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[tuple[str, StoredSpan]]:
    """Each span, and where it is filed."""
    for batch in connection.sql(text).to_arrow_reader(_FETCHED):
        yield from ((row[ROLLOUT], span_of_row(row)) for row in rows_of_batch(batch))


def _place_hard(connection: duckdb.DuckDBPyConnection, found: Places) -> list[Row]:
    placed: list[Row] = []
    if not found.hard:
        return placed
    _make_table(connection, f"{sql.SCHEMA}.hard", pa.table({"rollout_id": found.hard}))
    times = {(trace, span): time for trace, span, time in connection.execute(sql.REWARD_TIMES).fetchall()}
    cells = connection.execute(sql.HARD_SPANS)
    for rollout_id, rows in groupby(_fetched(cells), key=lambda row: row[0]):
        spans = [span_of_cells((*row[1:], times.get((row[2], row[3])))) for row in rows]
        of_rollout, executions = hard_places(rollout_id, spans)
        placed += of_rollout
        found.executions += executions
    return placed


def _fetched(cursor: Any) -> Iterator[tuple[Any, ...]]:
    while some := cursor.fetchmany(_FETCHED):
        yield from some


def _list(paths: Sequence[Path]) -> str:
    return ", ".join(_quoted(str(path)) for path in paths)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
