"""`query`: what SQL finds is what every other reader finds, live, sealed and half of each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.compact import compact
from otel_gym.store.reader import open_store
from otel_gym.store.rows import COLUMNS
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls
from otel_gym.views.query import Query
from otel_gym.views.summary import mark_superseded, summarize_rollout

from .spans import RandomRollouts, span, write

Invoke = Callable[..., Result]
IDS = ("0-0", "0-0-a1", "0-0-a2", "1-0", "10-0", "free", "unassigned")


@pytest.fixture
def invoke() -> Invoke:
    return lambda *arguments, **options: CliRunner().invoke(app, list(map(str, arguments)), **options)


def ask(store: Path, text: str, *, every: bool = False) -> list[tuple[Any, ...]]:
    with Query(store, text, every=every) as query:
        assert query.damage == []
        return list(query.rows())


def by_reader(store: Path, *, every: bool) -> list[tuple[Any, ...]]:
    opened = open_store(store)
    calls = counted_calls(opened.rollouts(), LaterAttempts(opened), every=every)
    return sorted(
        (
            (
                call.run_id,
                call.rollout_id,
                call.execution,
                call.call.span.span_id,
                call.superseded,
                call.call.record.tokens_in,
            )
            for call in calls
        ),
        key=repr,
    )


def check(store: Path) -> None:
    calls = "SELECT run_id, rollout_id, execution, span_id, superseded, input_tokens FROM model_calls"
    assert sorted(ask(store, calls), key=repr) == by_reader(store, every=False)
    assert sorted(ask(store, calls, every=True), key=repr) == by_reader(store, every=True)
    summaries = mark_superseded(map(summarize_rollout, open_store(store).rollouts()))
    wanted = [
        (row.run_id, row.rollout_id, row.reward, row.status, row.calls, row.duration_ms)
        for row in summaries
        if row.counts
    ]
    found = ask(store, "SELECT run_id, rollout_id, reward, status, calls, duration_ms FROM rollouts")
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    spans = sum(len(rollout.spans) for rollout in open_store(store).rollouts())
    assert ask(store, "SELECT count(*), count(DISTINCT (rollout_id, span_id)) FROM spans") == [(spans, spans)]


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), state=st.sampled_from(["live", "sealed", "half", "removed"]))
def test_the_views_hold_what_the_other_readers_count(
    seed: int, state: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("query") / "store"
    made = RandomRollouts(seed)
    (store / "spans").mkdir(parents=True)
    for rollout_id in IDS:
        spans = made.spans(rollout_id)
        half = len(spans) // 2 if state == "half" else 0
        write(store, spans[half:], rollout_id)
        if half:
            compact(store, idle_s=0)
            # Some stand in both.
            write(store, spans[: half + 1], rollout_id, writer=1)
    if state in ("sealed", "removed"):
        compact(store, idle_s=0, remove=state == "removed")
    check(store)


def test_lines_of_others_and_single_files_are_asked_as_well(tmp_path: Path) -> None:
    write(tmp_path / "s", [span("1" * 16, "rollout", 5, 9, "0-0", gym__reward=1.0)], "0-0")
    [lines] = (tmp_path / "s" / "spans").rglob("*.jsonl")
    assert ask(lines, "SELECT rollout_id, reward FROM rollouts") == [("0-0", 1.0)]
    compact(tmp_path / "s", idle_s=0)
    for path in (tmp_path / "s" / "parquet", *(tmp_path / "s" / "parquet").iterdir()):
        assert ask(path, "SELECT rollout_id, reward FROM rollouts") == [("0-0", 1.0)]


def test_a_store_without_spans_has_empty_views(tmp_path: Path) -> None:
    (tmp_path / "spans").mkdir()
    for view in ("spans", "model_calls", "tools", "rollouts"):
        assert ask(tmp_path, f"FROM {view}") == []


def test_what_has_no_time_has_none_in_the_views(tmp_path: Path) -> None:
    spans = [
        span("1" * 16, "rollout", 5, 5, "0-0", gym__time__known=False),
        span("2" * 16, "t", 5, 5, "0-0", gym__time__known=False, gen_ai__operation__name="execute_tool"),
        span("3" * 16, "t", 5, 7, "0-0", gen_ai__operation__name="execute_tool"),
    ]
    write(tmp_path, spans, "0-0")
    assert ask(tmp_path, "SELECT start_ns, start_time, duration_ms, status FROM rollouts") == [(None, None, None, "ok")]
    assert ask(tmp_path, "SELECT start_ns, duration_ms FROM tools ORDER BY span_id") == [(None, None), (5, 2e-06)]


@pytest.mark.parametrize("seal", [False, True])
def test_a_time_of_which_ls_said_2554_was_2262(seal: bool, tmp_path: Path) -> None:
    late, tool = 2**64 - 1, {"gen_ai__operation__name": "execute_tool"}
    write(tmp_path, [span("1" * 16, "rollout", late, late, "0-0"), span("2" * 16, "t", 5, late, "0-0", **tool)], "0-0")
    write(tmp_path, [span("3" * 16, "t", 5, late, "1-0", **tool), span("4" * 16, "t", 6, 9, "1-0", **tool)], "1-0")
    if seal:
        compact(tmp_path)
    times = "SELECT start_ns, end_ns, year(start_time), year(end_time), duration_ms FROM"
    assert ask(tmp_path, f"{times} rollouts ORDER BY rollout_id") == [
        (None, None, None, None, None),
        (5, 9, 1970, 1970, 4e-06),
    ]
    assert ask(tmp_path, f"{times} tools WHERE span_id LIKE '2%'") == [(5, None, 1970, None, None)]


def test_tools_that_nobody_traced_were_0(tmp_path: Path) -> None:
    tool = {"gen_ai__operation__name": "execute_tool"}
    chat = {"gen_ai__operation__name": "chat"}
    write(tmp_path, [span("1" * 16, "chat m", 5, 6, "0-0", run="captured", **chat)], "0-0")
    write(tmp_path, [span("2" * 16, "chat m", 5, 6, "1-0", run="traced", **chat)], "1-0")
    write(tmp_path, [span("3" * 16, "execute_tool t", 5, 6, "2-0", run="traced", **tool)], "2-0")
    text = "SELECT rollout_id, tool_calls, failed_tools FROM rollouts ORDER BY ALL"
    assert ask(tmp_path, text) == [("0-0", None, None), ("1-0", 0, 0), ("2-0", 1, 0)]


def test_a_misspelt_view_was_taken_for_a_table_of_duckdb(store: Path, invoke: Invoke) -> None:
    refused = invoke("query", "FROM rollout", "--dir", store)
    assert (refused.exit_code, "pg_" in refused.stderr) == (2, False)
    assert "otel-gym: Catalog Error: Table with name rollout does not exist!" in refused.stderr
    assert "The views are spans, model_calls, tools and rollouts" in refused.stderr


def test_sql_that_is_no_utf_8_gave_a_traceback(store: Path, invoke: Invoke) -> None:
    for text, piped in (("-", b"SELECT '\xff'"), (os.fsdecode(b"SELECT '\xff'"), b"")):
        refused = invoke("query", text, "--dir", store, input=piped)
        assert (refused.exit_code, refused.stderr) == (2, "otel-gym: the SQL is no UTF-8 (byte 0xff at 8)\n")


def test_damage_is_said_and_all_else_is_asked(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path, [span("1" * 16, "rollout", 5, 9, "0-0")], "0-0")
    [lines] = (tmp_path / "spans").rglob("*.jsonl")
    lines.write_bytes(b'{"torn\n' + lines.read_bytes())
    result = invoke("query", "SELECT count(*) AS n FROM spans", "--dir", tmp_path, "--json")
    assert (result.exit_code, result.stdout) == (1, '{"n":1}\n')
    assert f"{lines}:1: " in result.stderr


def test_a_part_that_is_none_costs_itself_only(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path, [span("1" * 16, "rollout", 5, 9, "0-0")], "0-0")
    compact(tmp_path, idle_s=0)
    broken = tmp_path / "parquet" / "part-000000000000000000000000.parquet"
    broken.write_bytes(b"no Parquet")
    result = invoke("query", "SELECT count(*) AS n FROM rollouts", "--dir", tmp_path, "--json")
    assert (result.exit_code, result.stdout) == (1, '{"n":1}\n')
    assert str(broken) in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELCT 1", 'Parser Error: syntax error at or near "SELCT"'),
        ("SELECT nope FROM spans", 'Binder Error: Referenced column "nope" not found'),
        ("SELECT 1; SELECT 2", "one SELECT is asked, this is 2 statements"),
        ("", "one SELECT is asked, this is nothing"),
        ("COPY (SELECT 1) TO '{0}/x.csv'", "this is COPY; a store is only read"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{0}/x.csv'", "this is EXPLAIN"),
        ("CREATE TABLE x AS SELECT 1", "this is CREATE"),
        ("ATTACH '{0}/x.db'", "this is ATTACH"),
        ("INSTALL httpfs", "a store is only read"),
        ("SELECT error('stop') FROM spans", "stop"),
    ],
)
def test_what_is_no_query_is_told_and_nothing_is_written(text: str, said: str, tmp_path: Path, invoke: Invoke) -> None:
    store = tmp_path / "store"
    write(store, [span("1" * 16, "rollout", 5, 9, "0-0")], "0-0")
    before = sorted(tmp_path.rglob("*"))
    result = invoke("query", text.format(tmp_path), "--dir", store)
    assert result.exit_code == 2
    assert said in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_without_duckdb_one_line_says_what_to_install(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    result = invoke("query", "SELECT 1", "--dir", tmp_path)
    assert (result.exit_code, result.stderr) == (
        2,
        "otel-gym: query needs the package duckdb: pip install 'otel_gym[query]'\n",
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(3):
        said = {"gen_ai__operation__name": "chat", "gym__model_call__id": "c", "gen_ai__usage__input_tokens": 2**62}
        spans = [
            span("1" * 16, "rollout", 10**18, 10**18 + 10**9, f"0-{number}", run="A"),
            span("2" * 16, "chat m", 10**18 + 5, 10**18 + 6, f"0-{number}", run="A", parent="1" * 16, **said),
        ]
        write(tmp_path / "s", spans, f"0-{number}")
    return tmp_path / "s"


def test_every_form_says_the_same(store: Path, tmp_path: Path, invoke: Invoke) -> None:
    text = "SELECT rollout_id, start_time, reward, [1, NULL] AS l FROM rollouts ORDER BY ALL LIMIT 1"
    json_line = '{"rollout_id":"0-0","start_time":"2001-09-09T01:46:40Z","reward":null,"l":[1,null]}\n'
    csv_lines = 'rollout_id,start_time,reward,l\n0-0,2001-09-09T01:46:40Z,,"[1,null]"\n'
    assert invoke("query", text, "--dir", store, "--json").stdout == json_line
    assert invoke("query", text, "--dir", store, "--csv").stdout == csv_lines
    assert invoke("query", text, "--dir", store).stdout.splitlines() == [
        "rollout_id  start_time            reward  l",
        "0-0         2001-09-09T01:46:40Z  -       [1,null]",
    ]
    for name, content in (("o.jsonl", json_line), ("o.csv", csv_lines)):
        assert invoke("query", text, "--dir", store, "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text() == content
    assert invoke("query", text, "--dir", store, "-o", tmp_path / "o.parquet").exit_code == 0
    [row] = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert (row["rollout_id"], row["reward"], row["l"]) == ("0-0", None, [1, None])
    assert invoke("query", "-", "--dir", store, "--json", input=text).stdout == json_line


def test_sums_beyond_64_bits_are_exact(store: Path, invoke: Invoke) -> None:
    result = invoke("query", "SELECT sum(input_tokens) AS t FROM model_calls", "--dir", store, "--json")
    assert json.loads(result.stdout) == {"t": 3 * 2**62}


def test_a_file_of_rewards_can_be_joined(store: Path, tmp_path: Path) -> None:
    rewards = tmp_path / "rewards.jsonl"
    rewards.write_text('{"rollout_id":"0-1","score":0.5}\n')
    text = f"SELECT rollout_id, score FROM rollouts JOIN '{rewards}' USING (rollout_id)"
    assert ask(store, text) == [("0-1", 0.5)]


@pytest.mark.parametrize("options", [("--json", "--csv"), ("--json", "-o", "x.csv"), ("-o", "x.xlsx")])
def test_forms_that_contradict_are_refused(options: tuple[str, ...], store: Path, invoke: Invoke) -> None:
    assert invoke("query", "SELECT 1", "--dir", store, *options).exit_code == 2


def test_no_temporary_file_stays(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for text in ("FROM spans", "SELECT nope FROM spans", "SELECT error('x') FROM spans"):
        invoke("query", text, "--dir", store)
        assert list(scratch.iterdir()) == []


PAGE = Path(__file__).parent.parent.parent / "docs" / "query.md"


def test_the_page_lists_the_columns_of_each_view(store: Path) -> None:
    text = PAGE.read_text()
    for view in ("model_calls", "tools", "rollouts"):
        [listed] = re.findall(rf"^`{view}`: (.*?)\.$", text, re.DOTALL | re.MULTILINE)
        with Query(store, f"FROM {view}") as query:
            assert re.split(r",\s+", listed) == query.columns
    with Query(store, "FROM spans") as query:
        assert query.columns == [column.name for column in COLUMNS]


def test_each_query_of_the_page_is_asked(store: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(queries) == 5
    for text in queries:
        assert len(ask(store, text)) <= 3
    assert ask(store, queries[0]) == [(0, 3, None, 3)]
