"""Every export in the real engine: nothing is dropped, times are those of the spans, nesting is that of the tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.codex import read_codex
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.overview import overview
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.conftest import Load
from tests.perfetto.spans import MS, START, Spans, everything

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_a_rollout_with_everything(load: Load) -> None:
    load([everything()], http=True)


def test_many_rollouts_are_many_processes_in_their_order(load: Load, engine: Any) -> None:
    rollouts = [Spans(f"{number}-0") for number in range(3)]
    for number, each in enumerate(rollouts):
        each.rollout(100 + number)
    load([each.spans() for each in rollouts])
    found = engine.query("select name from process where pid > 0 order by pid")
    assert [row["name"] for row in found] == [f"rollout {number}-0 reward=0.5 ok" for number in range(3)]


@pytest.mark.parametrize("source", ["claude_code", "codex"])
def test_recorded_sessions(load: Load, source: str) -> None:
    read = read_claude_code if source == "claude_code" else read_codex
    rollouts = [RolloutSpans(None, each.identity_id, stored_spans(each)) for each in read(FIXTURES / source)]
    assert len(rollouts) > 3
    load(rollouts)


def test_a_rollout_that_began_days_before_the_first_one_is_shown_too(load: Load) -> None:
    late, early = Spans("0-0"), Spans("1-0", start_ns=START - 40 * 24 * 3600 * 10**9)
    late.rollout()
    early.rollout()
    load([late.spans(), early.spans()])


@pytest.mark.parametrize("name", ["t.json", "t.pftrace"])
def test_the_overview_shows_failed_calls_where_they_ended(engine: Any, tmp_path: Path, name: str) -> None:
    made = Spans()
    root = made.rollout()
    made.chat(root, 10, 60, failed=True, gym__error_category="timeout")
    made.tool(root, 62, 80, "a")
    made.chat(root, 80, 120)
    made.chat(root, 85, 100, failed=True)
    write_trace(lambda: overview([made.spans()]), tmp_path / name)
    engine.load((tmp_path / name).read_bytes())
    failures = """select i.ts - (select min(ts) from slice) as after, p.name as within,
        extract_arg(i.arg_set_id, '{}.error') as error
        from slice i join slice p on i.parent_id = p.id where i.name = 'failed call' order by i.ts"""
    found = engine.query(failures.format("debug" if "pftrace" in name else "args"))
    assert [tuple(row.values()) for row in found] == [(60 * MS, "rollout", "timeout"), (100 * MS, "model", None)]


@pytest.mark.parametrize("starts", [(0, 50, -3), (40 * 24 * 3600 * 10**3, 0)])
def test_a_json_trace_of_several_rollouts_began_two_days_in(
    engine: Any, tmp_path: Path, starts: tuple[int, ...]
) -> None:
    rollouts = [Spans(f"{number}-0", start_ns=START + start * MS) for number, start in enumerate(starts)]
    for each in rollouts:
        each.rollout()
    write_trace(lambda: processes([each.spans() for each in rollouts], Shown()), tmp_path / "t.json")
    engine.load((tmp_path / "t.json").read_bytes())
    assert [row["first"] for row in engine.query("select min(ts) as first from slice")] == [0]


def test_counters_stood_at_their_last_value_beside_later_rollouts(load: Load, engine: Any) -> None:
    first, later = Spans("0-0"), Spans("1-0", start_ns=START + 5000 * MS)
    for made in (first, later):
        made.chat(made.rollout(), 1, 400, gen_ai__usage__input_tokens=100, gen_ai__usage__output_tokens=3)
    load([first.spans(), later.spans()])
    ended = "select distinct name from counter join counter_track t on t.id = track_id"
    assert len(engine.query(ended)) >= 4
    last = "select value from counter c where ts = (select max(ts) from counter o where o.track_id = c.track_id)"
    assert {row["value"] for row in engine.query(last)} == {0}


def test_texts_come_out_as_they_were(load: Load, engine: Any) -> None:
    texts = ['a "quoted" one\nand\\more', "é 😀 漢字", 'two\nlines "here"']
    made = Spans()
    root = made.rollout()
    for number, text in enumerate(texts):
        made.tool(root, number, number + 1, f"c{number}", **{"gen_ai.tool.call.arguments": text})
    load([made.spans()])
    rows = engine.query("select string_value as text from args where flat_key like '%tool.call.arguments'")
    assert sorted(row["text"] for row in rows) == sorted(texts)


def test_a_text_with_escapes_and_without_quotation_marks_is_not_shown_undecoded(load: Load, engine: Any) -> None:
    made = Spans()
    made.tool(made.rollout(), 1, 2, "c", **{"gen_ai.tool.call.arguments": "one\ntwo\tC:\\new"})
    load([made.spans()])
    [row] = engine.query("select string_value as text from args where flat_key like '%tool.call.arguments'")
    assert row["text"].strip('"') == "one\ntwo\tC:\\new"


def test_numbers_keep_their_value(load: Load, engine: Any) -> None:
    made = Spans()
    given = {"count": 2**53 + 1, "low": -5, "share": 0.25, "yes": True, "big": 2**70, "list": [1, "two"]}
    made.tool(made.rollout(), 1, 2, "c", **{f"my.{name}": value for name, value in given.items()})
    load([made.spans()])
    rows = engine.query("select key as k, int_value as i, real_value as r, string_value as s from args")
    found = {row["k"].partition("my.")[2]: row for row in rows if "my." in row["k"]}
    assert (found["count"]["i"], found["low"]["i"], found["share"]["r"]) == (2**53 + 1, -5, 0.25)
    assert (found["list[0]"]["i"], found["list[1]"]["s"]) == (1, "two")
    assert found["yes"]["i"] == 1
    assert "big" in found


TIMES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 6)), min_size=1, max_size=25)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=TIMES)
def test_tools_that_overlap_in_any_way_are_all_shown_with_their_times(load: Load, times: list[Any]) -> None:
    """R076: slices that overlap on one track are dropped, or get each other's ends."""
    made = Spans()
    root = made.rollout(100)
    spans = [root]
    for start, length, parent in times:
        above = spans[parent % len(spans)]
        span = made.tool(above, start / MS, (start + length) / MS, f"c{len(spans)}")
        span.name = f"execute_tool t{len(spans)}"
        spans.append(span)
    load([made.spans()])


@pytest.mark.parametrize("text", ['grep "x" a.txt \\', "C:\\work\\", '"\\'])
def test_a_text_that_ends_in_a_backslash_costs_no_slice_behind_it(load: Load, text: str) -> None:
    made = Spans()
    root = made.rollout()
    made.tool(root, 1, 2, "a", **{"gen_ai.tool.call.arguments": text, "where": {"cwd": text, text: [text]}})
    made.tool(root, 3, 4, "b")
    load([made.spans()])


def test_more_slices_in_each_other_than_the_engine_takes_keep_their_ends(load: Load) -> None:
    made = Spans()
    parent = made.rollout()
    for depth in range(600):
        parent = made.step(parent, depth / MS, 900 - depth / MS)
        parent.name = f"step {depth}"
    load([made.spans()])


def test_spans_of_unknown_time_do_not_lie_within_each_other(load: Load) -> None:
    made = Spans()
    root = made.rollout()
    for number in range(600):
        made.tool(root, 5, 5, f"c{number}", **{"gym.time.known": False}).name = f"t{number}"
    load([made.spans()])


def test_three_slices_that_begin_together_keep_their_arrows_apart(load: Load) -> None:
    made = Spans()
    root = made.rollout()
    outer = made.tool(root, 10, 90, "a")
    middle = made.tool(outer, 10, 80, "b")
    made.tool(middle, 10, 70, "c")
    for span, name in zip(made.all[1:], "abc", strict=True):
        span.name = f"execute_tool {name}"
    made.chat(root, 1, 9, gym__output__items='["a","b","c"]')
    load([made.spans()])


def test_times_that_no_clock_has_lose_no_slice(load: Load) -> None:
    made = Spans(start_ns=2**63 - 10 * MS)
    root = made.rollout(100)
    made.tool(root, 1, 50, "a")
    made.tool(root, 60, 70, "b")
    load([made.spans()])
