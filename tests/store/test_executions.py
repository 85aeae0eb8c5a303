"""Which execution a span belongs to, and which one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_gym.store.executions import Executions, by_run, executions_of
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan
from otel_gym.views.summary import mark_superseded, summarize_rollout

from .lines import encoded, live_file, write


def span(
    span_id: str,
    start: int,
    end: int | None = None,
    parent: str | None = None,
    run: str | None = None,
    name: str = "chat m",
) -> StoredSpan:
    attributes: dict[str, Any] = {"gym.rollout.id": "1-0"} | ({} if run is None else {"gym.run.id": run})
    return StoredSpan("t" * 32, span_id, parent, name, 1, start, start + 1 if end is None else end, attributes)


def root(span_id: str, start: int, end: int | None, run: str | None = None) -> StoredSpan:
    made = span(span_id, start, 0, run=run, name="rollout")
    made.end_ns = end
    return made


def ids(executions: Executions) -> list[list[str]]:
    return [[each.span_id for each in execution.spans] for execution in executions.all]


def test_a_span_belongs_to_the_execution_that_it_descends_from_whatever_its_time() -> None:
    late = [root("r1", 0, 10), span("s", 5, parent="r1"), span("late", 25, parent="s"), root("r2", 20, 30)]
    assert ids(executions_of(late)) == [["r1", "s", "late"], ["r2"]]


def test_a_span_without_a_parent_belongs_to_the_execution_that_was_running() -> None:
    found = executions_of([root("r1", 0, 10), root("r2", 20, 30), span("a", 5), span("b", 25, parent="elsewhere")])
    assert ids(found) == [["r1", "a"], ["r2", "b"]]
    assert found.ambiguous == []


def test_where_there_is_one_execution_everything_is_its_own() -> None:
    found = executions_of([root("r1", 0, 10), span("before", -5), span("after", 50)])
    assert ids(found) == [["r1", "before", "after"]]


def test_a_span_of_no_certain_execution_is_listed_and_added_to_none() -> None:
    overlapping = [root("r1", 0, 10), root("r2", 5, 15), span("both", 7), span("none", 40), span("first", 2)]
    found = executions_of(overlapping)
    assert ids(found) == [["r1", "first"], ["r2"]]
    assert [each.span_id for each in found.ambiguous] == ["both", "none"]


def test_a_rerun_notebook_cell_counts_once_by_its_newest_finished_execution() -> None:
    found = executions_of([root("r1", 0, 10), span("a", 1), root("r2", 20, 30), span("b", 21), root("r3", 40, None)])
    assert found.counting.root is not None and found.counting.root.span_id == "r2"
    assert [each.span_id for each in found.counting.spans] == ["r2", "b"]


def test_a_killed_and_requeued_job_does_not_claim_the_calls_of_its_successor() -> None:
    """The killed execution has no end; it lasts until the next one begins."""
    found = executions_of([root("r1", 0, None), span("a", 5), root("r2", 20, 30), span("b", 25)])
    assert ids(found) == [["r1", "a"], ["r2", "b"]]
    assert found.counting.root is not None and found.counting.root.span_id == "r2"


def test_a_rollout_that_never_finished_still_has_a_counting_execution() -> None:
    assert executions_of([root("r1", 0, None), root("r2", 20, None)]).counting.spans[0].span_id == "r2"


def test_a_server_that_does_not_know_the_run_is_joined_by_descent_by_time_or_as_the_only_run() -> None:
    runs = by_run([root("r1", 0, 10, "A"), root("r2", 20, 30, "B"), span("in", 25), span("child", 50, parent="r1")])
    assert {run: [each.span_id for each in spans] for run, spans in runs.items()} == {
        "A": ["r1", "child"],
        "B": ["r2", "in"],
    }
    assert list(by_run([span("a", 0, run="A"), span("b", 99)])) == ["A"]


def test_a_span_that_no_run_can_be_told_of_is_given_to_none() -> None:
    runs = by_run([span("a", 0, run="A"), span("b", 0, run="B"), span("c", 5)])
    assert [each.span_id for each in runs[None]] == ["c"]


def test_a_span_that_names_a_run_is_never_given_to_another() -> None:
    runs = by_run([root("r1", 0, 10, "A"), span("x", 5, parent="r1", run="B")])
    assert {run: [each.span_id for each in spans] for run, spans in runs.items()} == {"A": ["r1"], "B": ["x"]}


def test_spans_of_no_certain_run_are_a_row_of_their_own_that_does_not_count(tmp_path: Path) -> None:
    lines = (encoded("1", run="A"), encoded("2", run="B"), encoded("3", gen_ai__operation__name="chat"))
    write(live_file(tmp_path), *lines)
    rows = [summarize_rollout(rollout) for rollout in Store(tmp_path).rollouts()]
    assert [(row.run_id, row.counts) for row in rows] == [("A", True), ("B", True), (None, False)]


def test_two_runs_of_one_rollout_and_its_later_attempt_stay_apart(tmp_path: Path) -> None:
    """R075: a second job appends to the same folder."""
    call = {"gen_ai__operation__name": "chat"}
    write(
        live_file(tmp_path),
        encoded("1", run="A", gen_ai__usage__input_tokens=10, **call),
        encoded("2", run="B", start=30, gen_ai__usage__input_tokens=20, **call),
    )
    later = encoded("3", run="A", rollout="1-0-a1", gen_ai__usage__input_tokens=30, **call)
    write(live_file(tmp_path, "1-0-a1"), later)
    rows = mark_superseded(summarize_rollout(rollout) for rollout in Store(tmp_path).rollouts())
    assert [(row.run_id, row.rollout_id, row.tokens_in, row.superseded_by) for row in rows] == [
        ("A", "1-0", 10, "1-0-a1"),
        ("B", "1-0", 20, None),
        ("A", "1-0-a1", 30, None),
    ]
