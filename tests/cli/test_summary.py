"""What a rollout's figures count: logical calls, one layer, the newest execution."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import otel_gym
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.layers import without_client_layer
from otel_gym.views.model_calls import model_call_records
from otel_gym.views.span_tree import span_tree
from otel_gym.views.summary import percentile, summarize_rollout

from .conftest import Invoke, ask, chat_answer


def span(span_id: str, start: int, end: int | None, parent: str | None = None, **attributes: object) -> StoredSpan:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    name = str(named.pop("name", "chat m"))
    return StoredSpan("t" * 32, span_id, parent, name, 1, start, end, {"gym.rollout.id": "1-0", **named})


CAPTURED = {"gen_ai__operation__name": "chat", "gym__model_call__id": "call-1", "gym__dialect": "chat"}


def test_the_attempts_of_a_retried_call_are_one_call_and_tokens_of_the_last_count(tmp_path: Path) -> None:
    otel_gym.configure(directory=tmp_path, run_id="run-1")
    answer = chat_answer(10, 0)
    for retry, status in enumerate((429, 529, 200)):
        asyncio.run(ask(answer, status, "1-0", retry))
    assert otel_gym.flush(10)
    row = summarize_rollout(next(Store(tmp_path).rollouts("1-0")))
    assert (row.calls, row.retries, row.errors) == (3, 2, 2)
    assert (row.tokens_in, row.tokens_out) == (10, 10)


def test_calls_that_failed_were_gone_after_export_and_import_of_atif(tmp_path: Path, invoke: Invoke) -> None:
    live, back = tmp_path / "live", tmp_path / "back"
    otel_gym.configure(directory=live, run_id="run-1")
    with otel_gym.rollout(1, 0):
        for answer, status in ((chat_answer(10, 0), 200), ({"error": {"type": "overloaded"}}, 529), ({"id": "x"}, 200)):
            asyncio.run(ask(answer, status, "1-0"))
    assert otel_gym.flush(10)
    assert invoke("export", "atif", "-o", tmp_path / "atif", "--dir", live).exit_code == 0
    assert invoke("import", "atif", tmp_path / "atif", "--run", "run-1", "--dir", back).exit_code == 0
    [before], [after] = ([summarize_rollout(each) for each in Store(store).rollouts()] for store in (live, back))
    assert (before.calls, before.retries, before.errors) == (3, 0, 1)
    assert (after.calls, after.retries, after.errors) == (3, 0, 1)
    for store in (live, back):
        assert "upstream_error" in invoke("show", "1-0", "--dir", store).stdout


def test_a_failure_that_was_captured_and_told_of_counted_twice() -> None:
    told = span("c1", 10, 90, "r1", gym__source="atif", gen_ai__operation__name="chat", gym__error__category="timeout")
    told.status = STATUS_ERROR
    root, captured = span("r1", 0, 200, name="rollout"), span("k1", 20, 80, **CAPTURED)
    assert summarize_rollout(RolloutSpans(None, "1-0", [root, told])).errors == 1
    assert summarize_rollout(RolloutSpans(None, "1-0", [root, told, captured])).calls == 1


def test_the_span_of_a_clients_own_instrumentation_is_no_second_call() -> None:
    client = span("c1", 10, 90, "r1", name="anthropic.messages.create", gen_ai__operation__name="chat")
    server = span("s1", 20, 80, "c1", name="POST /v1/messages")
    captured = span("k1", 20, 80, "s1", **CAPTURED)
    alone = span("c2", 100, 190, "r1", gen_ai__operation__name="chat", gen_ai__usage__output_tokens=3)
    rollout = RolloutSpans(None, "1-0", [span("r1", 0, 200, name="rollout"), client, server, captured, alone])
    assert len(model_call_records(without_client_layer(rollout))) == 2
    assert summarize_rollout(rollout).calls == 2


def test_executions_of_one_rollout_are_not_added_up() -> None:
    """A re-run notebook cell: the newest finished execution counts, also for calls that came by prefix alone."""
    first = [span("r1", 0, 100, name="rollout"), span("k1", 10, 20, **CAPTURED)]
    second = [span("r2", 200, 300, name="rollout"), span("k2", 210, 220, **{**CAPTURED, "gym__model_call__id": "2"})]
    unfinished = [span("r3", 400, None, name="rollout"), span("k3", 410, 420, **CAPTURED)]
    rollout = RolloutSpans(None, "1-0", [*first, *second, *unfinished])
    assert [each.span_id for each in rollout.executions().counting.spans] == ["r2", "k2"]
    row = summarize_rollout(rollout)
    assert (row.calls, row.executions, row.status) == (1, 3, "ok")


def test_a_rollout_that_still_runs_is_unfinished_and_has_no_duration() -> None:
    row = summarize_rollout(RolloutSpans(None, "1-0", [span("r1", 0, None, name="rollout")]))
    assert (row.status, row.duration_ms, row.tokens_in) == ("unfinished", None, None)


def test_a_call_by_prefix_stands_under_the_rollout_that_was_running() -> None:
    root, inside = span("r1", 0, 100, name="rollout"), span("k1", 10, 20, **CAPTURED)
    outside = span("k2", 150, 160, **{**CAPTURED, "gym__model_call__id": "2"})
    top = span_tree(RolloutSpans(None, "1-0", [root, inside, outside]))
    assert [node.span.span_id for node in top] == ["r1", "k2"]
    assert [(node.span.span_id, node.joined) for node in top[0].children] == [("k1", True)]


def test_spans_that_name_each_other_as_parent_are_all_shown() -> None:
    nodes = span_tree(RolloutSpans(None, "1-0", [span("a1", 0, 9, "b1"), span("b1", 1, 8, "a1")]))
    seen = [node.span.span_id for top in nodes for node in (top, *top.children)]
    assert sorted(seen) == ["a1", "b1"]


def test_percentiles_interpolate_and_know_nothing_of_nothing() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 95) == 3.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([0.0, 100.0], 95) == 95.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_higher_percentile_is_never_below_a_lower_one(values):
    found = [percentile(values, percent) for percent in (50, 95)]
    assert min(values) <= found[0] <= found[1] <= max(values)
