"""What `ls`, `show` and `stats` say of a store, and how they end."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace

import otel_gym
from otel_gym.cli.ls import by_run
from otel_gym.cli.tables import aligned
from otel_gym.settings import read_settings
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.span import StoredSpan
from otel_gym.version import __version__
from otel_gym.views.selection import selected_rollouts
from otel_gym.views.summary import RolloutSummary, summarize_rollout

from ..store.lines import encoded, live_file, write
from .conftest import Invoke, ask, chat_answer

ROOT = Path(__file__).parents[2]


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_ls_has_a_row_for_each_run_and_rollout_and_unassigned_last(example_store: Path, invoke: Invoke) -> None:
    result = invoke("ls", "--dir", example_store, "--json")
    found = [(row["run_id"], row["rollout_id"], row["calls"]) for row in rows(result.stdout)]
    assert result.exit_code == 0
    assert found == [
        ("run-1", "1-0", 2),
        ("run-2", "1-0", 1),
        ("run-1", "2-0", 1),
        ("run-1", "2-0-a1", 1),
        ("run-1", "unassigned", 1),
    ]


def test_ls_counts_tokens_errors_reward_and_status(example_store: Path, invoke: Invoke) -> None:
    first = rows(invoke("ls", "--dir", example_store, "--json", "--run", "run-1").stdout)[0]
    assert (first["tokens_in"], first["cached_tokens"], first["tokens_out"]) == (300, 100, 20)
    assert (first["status"], first["reward"], first["errors"]) == ("ok", 1.0, 0)
    failed = rows(invoke("ls", "--dir", example_store, "--json", "--run", "run-1").stdout)[1]
    assert (failed["status"], failed["reward"], failed["errors"]) == ("error", None, 1)
    assert failed["superseded_by"] == "2-0-a1"


def test_ls_in_a_pipe_is_plain_and_whole(example_store: Path, invoke: Invoke) -> None:
    text = invoke("ls", "--dir", example_store).stdout
    assert "\x1b" not in text
    assert "…" not in text
    assert "superseded by 2-0-a1" in text
    assert text.splitlines()[-1] == (
        "rollouts: 3; calls: 4 that count + 1 superseded; superseded attempts: 1; unassigned calls, in no mean: 1"
    )
    assert not any(line.endswith(" ") for line in text.splitlines())
    assert all(len(line.split("  ")) > 5 for line in text.splitlines()[:-1])


def test_run_latest_is_the_launch_that_began_last(example_store: Path, invoke: Invoke) -> None:
    assert {
        row["run_id"] for row in rows(invoke("ls", "--dir", example_store, "--json", "--run", "latest").stdout)
    } == {"run-2"}


def test_the_store_of_otel_gym_dir_is_the_default(
    example_store: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_DIR", str(example_store))
    assert len(rows(invoke("ls", "--json").stdout)) == 5


def test_stats_leave_out_superseded_attempts_and_unassigned_calls(example_store: Path, invoke: Invoke) -> None:
    first, second = rows(invoke("stats", "--dir", example_store, "--json").stdout)
    assert (first["run_id"], second["run_id"]) == ("run-1", "run-2")
    assert (first["rollouts"], first["superseded"], first["calls"], first["unassigned_calls"]) == (2, 1, 3, 1)
    assert (first["tokens_in"], first["cached_share"], first["errors"]) == (600, pytest.approx(1 / 6), {})
    assert first["mean_reward"] == 0.5
    assert first["latency_p50_ms"] <= first["latency_p95_ms"]
    assert first["store"] == {"uncaptured_calls": 0, "lost_spans": 0}


def test_stats_name_what_was_not_captured(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    shutil.copytree(example_store, tmp_path / "store")
    (tmp_path / "store" / "counts").mkdir(exist_ok=True)
    (tmp_path / "store" / "counts" / "w.json").write_text('{"uncaptured_calls": 12}')
    assert "uncaptured_calls: 12" in invoke("stats", "--dir", tmp_path / "store").stdout
    listed = invoke("ls", "--dir", tmp_path / "store").stdout
    assert "uncaptured_calls: 12" in listed
    assert "send them through /ng-rollout/<id>" in listed


def test_show_is_a_tree_with_tokens_tool_calls_and_reward(example_store: Path, invoke: Invoke) -> None:
    result = invoke("show", "run-1/1-0", "--dir", example_store)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("run-1/1-0")
    assert lines[1].startswith("└── rollout")
    assert "reward 1" in lines[1]
    assert 'get_weather({"city":"Oslo"})' in result.stdout
    assert "200 (100 cached) → 10 tokens" in result.stdout
    assert "1-0" in invoke("show", "1-0", "--run", "latest", "--dir", example_store).stdout


def test_show_names_the_error(example_store: Path, invoke: Invoke) -> None:
    text = invoke("show", "2-0", "--dir", example_store).stdout
    assert "RewardError: no reward" in text
    assert "rate_limit_error: slow" in text


def test_show_json_has_a_span_a_line_without_bodies(example_store: Path, invoke: Invoke) -> None:
    spans = rows(invoke("show", "run-1/1-0", "--dir", example_store, "--json").stdout)
    assert [span["depth"] for span in spans] == [0, 1, 2, 1, 2]
    assert not any("gym.request.body" in span["attributes"] for span in spans)


def test_a_rollout_of_several_runs_is_listed_and_not_guessed(example_store: Path, invoke: Invoke) -> None:
    result = invoke("show", "1-0", "--dir", example_store)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[1:] == ["  run-1/1-0", "  run-2/1-0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "2-9"], "the nearest rollouts: 2-0"),
        (["show", "run-9/1-0"], "there is run-1/1-0, run-2/1-0"),
        (["ls", "--run", "run-3"], "the nearest runs: run-"),
        (["show", "../etc"], "no rollout"),
        (["show", "a/b/c"], "give ROLLOUT or RUN/ROLLOUT"),
        (["export", "model-calls", "1-1"], "the nearest rollouts:"),
        (["export", "model-calls", "--format", "parquet"], "-o FILE"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    example_store: Path, invoke: Invoke, arguments: list[str], said: str
) -> None:
    result = invoke(*arguments, "--dir", example_store)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", [["ls"], ["stats"], ["show", "1-0"], ["export", "model-calls"]])
def test_a_folder_that_is_no_store_is_a_clear_line(invoke: Invoke, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("")
    for folder, said in (("missing", "no such folder"), ("foreign", "not a store"), ("empty", "nothing was recorded")):
        result = invoke(*command, "--dir", tmp_path / folder)
        assert result.exit_code == 2
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_damage_is_said_with_file_line_and_cure_and_the_rest_is_read(
    example_store: Path, invoke: Invoke, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(example_store, store)
    file = next((store / "spans" / "rollout_id=2-0").glob("*.jsonl"))
    file.write_bytes(b"garbage\n" + file.read_bytes() + b'{"resourceSpans"')
    lines = len(file.read_bytes().splitlines())
    for command in (["ls"], ["stats"], ["show", "2-0"], ["export", "model-calls", "2-0"]):
        result = invoke(*command, "--dir", store)
        said = result.stderr.splitlines()
        assert result.exit_code == 1
        assert said[0].startswith(f"otel-gym: {file}:1: 7 bytes without the start of a record")
        assert f"{file}:{lines}: torn" in said[1]
        assert len(said) == 2
        assert result.stdout != ""


def test_damage_is_said_once_when_a_store_is_read_twice(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(example_store, store)
    file = next((store / "spans" / "rollout_id=2-0").glob("*.jsonl"))
    file.write_bytes(b"garbage\n" + file.read_bytes())
    assert len(invoke("ls", "--dir", store, "--run", "latest").stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["ls", "export model-calls"])
def test_a_reader_that_closes_the_pipe_is_no_failure(example_store: Path, command: str) -> None:
    """As in ``otel-gym ls | head``; rich, left alone, ends with 1."""
    command = f"{sys.executable} -m otel_gym.cli {command} --dir {example_store} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_misspelt_setting_is_said_with_the_right_one(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_DRI", "/elsewhere")
    monkeypatch.setenv("OTEL_GYM_DIR", "/nowhere")
    result = invoke("ls")
    assert "OTEL_GYM_DRI is no setting; did you mean OTEL_GYM_DIR?" in result.stderr
    assert result.exit_code == 2


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout.strip() == f"otel-gym {__version__}"


def test_a_bad_option_is_exit_code_2(invoke: Invoke) -> None:
    assert invoke("ls", "--frobnicate").exit_code == 2
    assert invoke("demo", "--rollouts", "0").exit_code == 2


@pytest.mark.parametrize("command", [["demo"], ["proxy"], ["ls"], ["show"], ["stats"], ["export", "model-calls"]])
def test_every_help_has_an_example(invoke: Invoke, command: list[str]) -> None:
    text = invoke(*command, "--help").stdout
    assert f"otel-gym {' '.join(command)} " in text.split("Example:")[1]


def test_show_marks_what_never_ended_what_does_not_count_and_clocks_that_differ(tmp_path: Path, invoke: Invoke) -> None:
    """A killed run keeps its shape; R061: raw times are shown, and that they cannot be."""
    write(
        live_file(tmp_path),
        encoded("1", "rollout", start=0, end=10),
        encoded("2", "rollout", trace="b", start=20, end=90),
        encoded("3", "agent_step", trace="b", parent="2", start=30, end=60),
        encoded("4", "execute_tool ls", trace="b", parent="3", start=15, end=40),
    )
    write(tmp_path / "open" / "w.jsonl", encoded("5", "execute_tool cat", trace="b", parent="3", start=35, end=None))
    lines = invoke("show", "1-0", "--dir", tmp_path).stdout.splitlines()
    marked = {
        mark: [line for line in lines if mark in line] for mark in ("unfinished", "does not count", "clocks differ")
    }
    assert [len(found) for found in marked.values()] == [1, 1, 1]
    assert "execute_tool cat" in marked["unfinished"][0]
    assert "execute_tool ls" in marked["clocks differ"][0]
    by_name = {row["name"]: row for row in rows(invoke("show", "1-0", "--dir", tmp_path, "--json").stdout)}
    assert (by_name["execute_tool ls"]["clock_skew"], by_name["execute_tool ls"]["start_ns"]) == (True, 15)
    assert (by_name["execute_tool cat"]["unfinished"], by_name["execute_tool cat"]["end_ns"]) == (True, None)


def test_ls_marks_a_rollout_that_never_finished(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path / "open" / "w.jsonl", encoded("1", "rollout", end=None, run="r"))
    assert "unfinished" in invoke("ls", "--dir", tmp_path).stdout
    (row,) = rows(invoke("ls", "--dir", tmp_path, "--json").stdout)
    assert (row["status"], row["duration_ms"], row["unfinished"]) == ("unfinished", None, 1)


def test_a_single_file_is_read_like_a_store(tmp_path: Path, invoke: Invoke) -> None:
    file = write(tmp_path / "collector.jsonl", encoded("1", rollout="1-0"), encoded("2", rollout="2-0"))
    assert [row["rollout_id"] for row in rows(invoke("ls", "--dir", file, "--json").stdout)] == ["1-0", "2-0"]


def test_ls_says_why_a_rollout_has_no_calls(tmp_path: Path, invoke: Invoke) -> None:
    """Calls that name no run, where several runs have the rollout, stand apart, and ls says what to do."""
    store = tmp_path / "store"
    for run_id in ("step-7", "step-8"):
        otel_gym.configure(directory=store, run_id=run_id)
        with otel_gym.rollout(12, 0):
            pass
    otel_gym.configure(directory=store)
    asyncio.run(ask(chat_answer(1, 0), rollout_id="12-0"))
    assert otel_gym.flush(10)
    last = invoke("ls", "--dir", store).stdout.splitlines()[-1]
    assert last == "12-0: calls without a run; is the proxy started with --run, or the client given rollout.headers?"
    for arguments in (["show", "-/12-0"], ["show", "12-0", "--run", "-"], ["export", "model-calls", "--run", "-"]):
        shown = invoke(*arguments, "--dir", store)
        assert (shown.exit_code, "chat" in shown.stdout) == (0, True)
    ambiguous = invoke("show", "12-0", "--dir", store)
    assert sorted(ambiguous.stderr.splitlines()[1:]) == ["  -/12-0", "  step-7/12-0", "  step-8/12-0"]


def test_show_said_get_and_not_of_what(live_store, invoke: Invoke) -> None:
    """A SERVER span named by its method alone is drawn with its path."""
    with otel_gym.rollout(1, 0):
        tracer = trace.get_tracer("server")
        for attributes in ({"http.target": "/v1/models"}, {"url.path": "/health"}, {}):
            tracer.start_span("GET", kind=trace.SpanKind.SERVER, attributes=attributes).end()
    assert otel_gym.flush(10)
    text = invoke("show", "1-0", "--dir", live_store.directory).stdout
    assert "GET /v1/models  +" in text
    assert "GET /health  +" in text
    assert "GET  +" in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_an_answer_in_one_piece_had_a_first_token(example_store: Path, invoke: Invoke) -> None:
    assert "first token" not in invoke("show", "run-1/1-0", "--dir", example_store).stdout
    (figures,) = rows(invoke("stats", "--dir", example_store, "--run", "run-1", "--json").stdout)
    assert (figures["ttft_p50_ms"], figures["ttft_p95_ms"]) == (None, None)
    assert figures["latency_p50_ms"] is not None


def test_ls_stats_and_export_said_different_numbers_of_calls(example_store: Path, invoke: Invoke) -> None:
    stats = rows(invoke("stats", "--dir", example_store, "--json").stdout)
    listed = rows(invoke("ls", "--dir", example_store, "--json").stdout)
    exported = rows(invoke("export", "model-calls", "--all", "--dir", example_store).stdout)
    counting = [row for row in exported if not row["superseded"] and row["rollout_id"] != "unassigned"]
    assert sum(run["calls"] for run in stats) == len(counting) == 4
    assert sum(run["superseded_calls"] for run in stats) == sum(row["superseded"] for row in exported) == 1
    assert sum(row["calls"] + row["other_calls"] for row in listed) == len(exported) == 6
    assert "calls                3 that count + 1 superseded" in invoke("stats", "--dir", example_store).stdout


def test_ls_of_thousands_of_rollouts_into_head_took_seconds(tmp_path: Path, invoke: Invoke) -> None:
    """Rows go out as they are read; only the first ones are waited for, to align the columns."""
    rows = iter([["a", "1"], ["bb", "22"], ["c", "3"]])
    lines = aligned(["name", "n"], rows, right={"n"})
    assert [next(lines), next(lines)] == ["name   n", "a      1"]
    slow = ([str(number), "x"] for number in range(10**9))
    assert next(aligned(["name", "n"], slow)).startswith("name")


def test_latest_was_taken_for_the_name_of_a_run(invoke: Invoke, tmp_path: Path) -> None:
    with pytest.raises(otel_gym.InvalidIdError, match="neither 'unassigned' nor 'latest'"):
        otel_gym.configure(directory=tmp_path, run_id="latest")
    with pytest.raises(otel_gym.InvalidIdError):
        otel_gym.rollout(1, 0, run_id="latest")
    assert otel_gym.rollout(rollout_id="latest").rollout_id == "latest"  # that is no run
    result = invoke("proxy", "--upstream", "http://h", "--port", "0", "--run", "latest", "--dir", tmp_path / "s")
    assert result.exit_code == 2
    assert "run id 'latest' is refused" in result.stderr
    assert read_settings({"OTEL_GYM_RUN_ID": "latest"}).run_id is None


@pytest.mark.parametrize("command", [[], ["export"]])
def test_help_cut_its_sentences_off(invoke: Invoke, command: list[str]) -> None:
    usage, _, rest = invoke(*command, "--help").stdout.partition("\n")
    assert usage.endswith("[ARGS]...")
    assert "..." not in rest


def test_the_steps_of_the_bar_are_the_rollout_ids_of_the_store(example_store: Path) -> None:
    """Its total counted rollout ids, its steps (run, rollout) pairs: with two runs it went beyond the end."""
    stepped: list[str] = []

    def steps(ids):
        for each in ids:
            stepped.append(each)
            yield each

    store = Store(example_store)
    assert len(list(selected_rollouts(store, steps=steps))) == 5
    assert stepped == store.rollout_ids()


def test_a_span_before_the_start_was_at_plus_minus(tmp_path: Path, invoke: Invoke) -> None:
    root = encoded("1", "rollout", start=5_000_000_000, end=6_000_000_000)
    early = encoded("2", "agent_step", parent="1", start=3_274_600_000, end=5_500_000_000)
    write(live_file(tmp_path), root, early)
    text = invoke("show", "1-0", "--dir", tmp_path).stdout
    assert "+-" not in text
    assert "rollout  +1.73 s" in text or "agent_step  -1.73 s" in text


def test_a_terminal_mixed_the_rollouts_of_the_runs() -> None:
    found = [summary(run, rollout, at) for rollout in ("1-0", "2-0") for run, at in (("b", 1.0), ("a", 2.0))]
    assert [(row.run_id, row.rollout_id) for row in by_run(found)] == [
        ("b", "1-0"),
        ("b", "2-0"),
        ("a", "1-0"),
        ("a", "2-0"),
    ]


def summary(run_id: str, rollout_id: str, started_at: float) -> RolloutSummary:
    span = StoredSpan("t", "s", None, "rollout", 1, int(started_at * 10**9), int(started_at * 10**9) + 1)
    return summarize_rollout(RolloutSpans(run_id, rollout_id, [span]))


@pytest.mark.parametrize("command", [("show",), ("export", "model-calls"), ("export", "trajectory")])
def test_a_run_that_the_address_contradicts_was_ignored(
    command: tuple[str, ...], example_store: Path, invoke: Invoke
) -> None:
    for run, said in (("run-2", "--run run-2"), ("latest", "--run latest, which is run-2")):
        result = invoke(*command, "run-1/1-0", "--run", run, "--dir", example_store)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"otel-gym: run-1/1-0 is of another run than {said}; give one of them\n"
    assert invoke(*command, "run-2/1-0", "--run", "latest", "--dir", example_store).exit_code == 0


def test_a_stray_call_without_a_run_was_the_latest_run(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), encoded("1", run="r", start=10, end=20))
    write(live_file(tmp_path, "9-0"), encoded("2", rollout="9-0", start=30, end=40))
    (row,) = rows(invoke("ls", "--run", "latest", "--json", "--dir", tmp_path).stdout)
    assert (row["run_id"], row["rollout_id"]) == ("r", "1-0")


def test_without_any_run_what_names_none_is_the_latest(tmp_path: Path, invoke: Invoke) -> None:
    write(live_file(tmp_path), encoded("1"))
    (row,) = rows(invoke("ls", "--run", "latest", "--json", "--dir", tmp_path).stdout)
    assert row["run_id"] is None


@pytest.mark.parametrize("command", ["ls", "stats", "doctor", "tail --once", "export model-calls"])
def test_a_checkout_gave_a_line_of_damage_for_each_line_of_its_files(
    command: str, tmp_path: Path, invoke: Invoke
) -> None:
    write(tmp_path / "package.json", b"{", b"}")
    write(tmp_path / "below" / "lock.json", b"{", b"}")
    assert invoke(*command.split(), "--dir", tmp_path).exit_code == 2
    write(tmp_path / "traces.jsonl", encoded("1"))
    result = invoke(*command.split(), "--dir", tmp_path)
    assert result.exit_code == 0
    assert result.stderr == f"otel-gym: {tmp_path}: left out, no OTLP/JSON lines: 2 files (below/lock.json …)\n"
