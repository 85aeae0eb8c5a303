"""Which spans of a store count, as small tables beside the Parquet: one row a run of a rollout, not one a span.

A span's place (run, execution, whether it counts) follows, for nearly every rollout, from its rollout id and the run
that it names. Only where a rollout ran more than once, or its runs cannot be told so, each span is placed, by the code
that every other reader uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from otel_gym.conventions import REWARD, REWARD_SPAN, REWARD_TIME, ROLLOUT_SPAN, RUN_ID, UNASSIGNED
from otel_gym.identity import indices_from_rollout_id
from otel_gym.store.executions import Execution, by_run, executions_of, ids_of, is_ambiguous
from otel_gym.store.foreign import as_gym_span, as_gym_spans, dialect_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.rows import AT, row_of_span, status_name
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.layers import asks_model, is_model_call, without_client_layer
from otel_gym.views.query_sql import LAST_NS
from otel_gym.views.rewards import reward_of

_TEXT = pa.string()

# Of what every span of one (rollout, run that it names) is: its run, its execution, whether that counts.
PLACES = pa.schema(
    [("rollout_id", _TEXT), ("named_run", _TEXT), ("run_id", _TEXT), ("execution", _TEXT), ("counts", pa.bool_())]
)
# The same of single spans.
PLACED = pa.schema(
    [
        ("rollout_id", _TEXT),
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("run_id", _TEXT),
        ("execution", _TEXT),
        ("counts", pa.bool_()),
    ]
)
IDS = pa.schema([("rollout_id", _TEXT), ("trace_id", _TEXT), ("span_id", _TEXT)])
EXECUTIONS = pa.schema(
    [
        ("run_id", _TEXT),
        ("rollout_id", _TEXT),
        ("execution", _TEXT),
        ("counts", pa.bool_()),
        ("task_index", pa.int64()),
        ("rollout_index", pa.int64()),
        ("attempt", pa.int64()),
        ("root_start_ns", pa.int64()),
        ("root_end_ns", pa.int64()),
        ("root_status", _TEXT),
        ("reward", pa.float64()),
    ]
)

Row = dict[str, Any]
# What is read of a span: run, trace, span, parent, name, start, end, status, reward, time of the reward.
SpanCells = tuple[Any, ...]
_Pair = tuple[str | None, str]


@dataclass(slots=True)
class Places:
    """``hard``: the rollout ids of which each span has to be placed."""

    places: list[Row] = field(default_factory=list)
    executions: list[Row] = field(default_factory=list)
    hard: list[str] = field(default_factory=list)


def span_of_cells(cells: SpanCells) -> StoredSpan:
    """As much of a span as its place depends on."""
    run_id, trace_id, span_id, parent, name, start_ns, end_ns, status, reward, reward_time = cells
    said = {RUN_ID: run_id, REWARD: reward, REWARD_TIME: reward_time}
    return StoredSpan(
        trace_id,
        span_id,
        parent,
        name,
        1,
        start_ns,
        end_ns,
        {key: value for key, value in said.items() if value is not None},
        status=STATUS_ERROR if status == _ERROR else 0,
    )


_ERROR = status_name(STATUS_ERROR)


def easy_places(pairs: Iterable[_Pair], marks: Iterable[tuple[str, StoredSpan]]) -> Places:
    """``pairs``: the runs that spans of each rollout id name; ``marks``: ``rollout`` and ``record_reward`` spans."""
    named: dict[str, list[str | None]] = {}
    for run_id, rollout_id in pairs:
        named.setdefault(rollout_id, []).append(run_id)
    spans: dict[str, list[StoredSpan]] = {}
    for rollout_id, span in marks:
        spans.setdefault(rollout_id, []).append(span)
    found = Places()
    for rollout_id, runs in named.items():
        marked = spans.get(rollout_id, [])
        if _is_hard(rollout_id, runs, marked):
            found.hard.append(rollout_id)
            continue
        resolved = _resolved(rollout_id, runs)
        for run_id in {*resolved.values()}:
            of_run = [span for span in marked if resolved[span.run_id] == run_id]
            executions = executions_of(of_run)
            [execution] = executions.all
            row = _execution_row(run_id, rollout_id, execution, reward_of(executions, execution), True)
            found.executions.append(row)
            found.places += [
                {"rollout_id": rollout_id, "named_run": name, "run_id": run_id, "execution": row["execution"]}
                for name, run in resolved.items()
                if run == run_id
            ]
    return found


def _resolved(rollout_id: str, runs: list[str | None]) -> dict[str | None, str | None]:
    """Run that is named → run that it is: of one that names none the only one, if there is one."""
    known = [run for run in runs if run is not None]
    only = known[0] if len(known) == 1 and rollout_id != UNASSIGNED else None
    return {run: only if run is None else run for run in runs}


def _is_hard(rollout_id: str, runs: list[str | None], marked: list[StoredSpan]) -> bool:
    """Several executions of one run, spans of no certain run, rewards of which the last is not told by their starts."""
    roots = [span for span in marked if _is_root(span)]
    if rollout_id == UNASSIGNED:
        return bool(roots)
    known = [run for run in runs if run is not None]
    if None in runs and known and (len(known) > 1 or any(root.run_id is None for root in roots)):
        return True
    if len(roots) > max(1, len({root.run_id for root in roots})):
        return True
    has_rewards = any(span.name == REWARD_SPAN for span in marked)
    return has_rewards and any(REWARD in root.attributes for root in roots)


def _is_root(span: StoredSpan) -> bool:
    return span.name == ROLLOUT_SPAN and span.parent_span_id is None


def hard_places(rollout_id: str, spans: list[StoredSpan]) -> tuple[list[Row], list[Row]]:
    """The rows of ``PLACED`` and ``EXECUTIONS`` for one rollout id. The spans in order of their start, then ids."""
    return _places_of_runs(rollout_id, _as_named(spans) if rollout_id == UNASSIGNED else by_run(spans))


def _places_of_runs(rollout_id: str, runs: Mapping[str | None, list[StoredSpan]]) -> tuple[list[Row], list[Row]]:
    placed: list[Row] = []
    executions: list[Row] = []
    for run_id, of_run in runs.items():
        found = executions_of(of_run)
        certain = rollout_id == UNASSIGNED or not is_ambiguous(run_id, runs)
        for each in found.all:
            counts = certain and each is found.counting
            row = _execution_row(run_id, rollout_id, each, reward_of(found, each), counts)
            executions.append(row)
            placed += _placed(each.spans, rollout_id, run_id, row["execution"], counts)
        placed += _placed(found.ambiguous, rollout_id, run_id, None, False)
    return placed, executions


def is_read_otherwise(span: StoredSpan) -> bool:
    """Whether readers find in a span of others what its columns do not say."""
    dialect = dialect_of(span)
    if dialect is not None and dialect.gather is not None:
        return True
    read = as_gym_span(span)
    if read.attributes == span.attributes:
        return False
    before, after = row_of_span(span, ""), row_of_span(read, "")
    ignored = _NOT_IN_COLUMNS if asks_model(read) else _NOT_IN_COLUMNS | {AT["error_category"]}
    return any(one != other for n, (one, other) in enumerate(zip(before, after, strict=True)) if n not in ignored)


_NOT_IN_COLUMNS = {AT[name] for name in ("attributes", "events", "links", "resource", "exact")}


@dataclass(slots=True)
class Told:
    """What the readers' own code says of rollouts: where each span stands, and which are no calls of their own."""

    placed: list[Row] = field(default_factory=list)
    executions: list[Row] = field(default_factory=list)
    no_calls: list[Row] = field(default_factory=list)

    def rows(self, rollout_id: str, spans: list[StoredSpan]) -> Iterator[list[Any]]:
        """The rows of one rollout id's spans as readers read them."""
        runs = _as_named(spans) if rollout_id == UNASSIGNED else by_run(spans)
        read = {run_id: as_gym_spans(of_run) for run_id, of_run in runs.items()}
        placed, executions = _places_of_runs(rollout_id, read)
        self.placed += placed
        self.executions += executions
        for run_id, of_run in read.items():
            found = executions_of(of_run)
            for some in (*(each.spans for each in found.all), found.ambiguous):
                counted = without_client_layer(RolloutSpans(run_id, rollout_id, some)).spans
                calls = {ids_of(span): span for span in counted}
                for span in some:
                    counting = calls.get(ids_of(span), span)
                    if asks_model(span) and not (ids_of(span) in calls and is_model_call(counting)):
                        self.no_calls.append(
                            {"rollout_id": rollout_id, "trace_id": span.trace_id, "span_id": span.span_id}
                        )
                    yield row_of_span(counting, rollout_id)


def _as_named(spans: Iterable[StoredSpan]) -> dict[str | None, list[StoredSpan]]:
    runs: dict[str | None, list[StoredSpan]] = {}
    for span in spans:
        runs.setdefault(span.run_id, []).append(span)
    return runs


def _placed(
    spans: Iterable[StoredSpan], rollout_id: str, run_id: str | None, execution: str | None, counts: bool
) -> Iterator[Row]:
    for span in spans:
        yield {
            "rollout_id": rollout_id,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "run_id": run_id,
            "execution": execution,
            "counts": counts,
        }


def _execution_row(
    run_id: str | None, rollout_id: str, execution: Execution, reward: float | None, counts: bool
) -> Row:
    root, indices = execution.root, indices_from_rollout_id(rollout_id)
    return {
        "run_id": run_id,
        "rollout_id": rollout_id,
        "execution": None if root is None else root.span_id,
        "counts": counts,
        "task_index": indices and _int64(indices.task_index),
        "rollout_index": indices and _int64(indices.rollout_index),
        "attempt": indices and _int64(indices.attempt),
        "root_start_ns": root and _known_time(root.start_ns),
        "root_end_ns": root and _known_time(root.end_ns),
        "root_status": None if root is None else execution.status,
        "reward": reward,
    }


def _known_time(moment: int | None) -> int | None:
    return moment if moment is not None and moment < LAST_NS else None


def _int64(number: int) -> int | None:
    return number if number < 2**63 else None


def without_superseded(places: list[Row], placed: list[Row], executions: list[Row]) -> None:
    """Takes from what counts the attempts that a later one of the same run supersedes."""
    newest: dict[tuple[str | None, int, int], int] = {}
    attempts: dict[_Pair, tuple[tuple[str | None, int, int], int]] = {}
    for row in executions:
        indices = indices_from_rollout_id(row["rollout_id"])
        if indices is not None:
            key = (row["run_id"], indices.task_index, indices.rollout_index)
            attempts[row["run_id"], row["rollout_id"]] = key, indices.attempt
            newest[key] = max(newest.get(key, 0), indices.attempt)
    superseded = {pair for pair, (key, attempt) in attempts.items() if attempt < newest[key]}
    for rows in (places, placed, executions):
        for row in rows:
            row["counts"] = row.get("counts", True) and (row["run_id"], row["rollout_id"]) not in superseded


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    columns: Mapping[str, list[Any]] = {name: [row[name] for row in rows] for name in schema.names}
    return pa.table(columns, schema)
