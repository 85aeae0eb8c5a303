"""`otel-gym export mooncake`, from imported traces and from rollouts that were captured live."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.records.mooncake import check_rows
from otel_gym.store.reader import Store

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "fixtures" / "dynamo"


def otel_gym(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def imported(tmp_path):
    def store_of(*names):
        store = tmp_path / "store"
        done = otel_gym("import", "dynamo", *(TRACES / name for name in names), "--dir", store)
        assert done.exit_code in (0, 1), done.output  # real traces hold records twice
        return store

    return store_of


def bench(name):
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "bench"))


@pytest.mark.parametrize("trace", ["basic_all_types.jsonl", "mooncake_dag.jsonl", "real_agent_trace.jsonl.gz"])
def test_rows_of_an_imported_trace_are_those_of_dynamos_rules(imported, tmp_path, trace):
    """Expected: lowered by an implementation of its own from facts on Dynamo's."""
    done = otel_gym("export", "mooncake", "--agentic", "--dir", imported(trace), "-o", tmp_path / "rows.jsonl")
    assert done.exit_code == 0, done.output
    expected = (TRACES / f"{trace.partition('.')[0]}.agentic.jsonl").read_bytes().splitlines()
    assert (tmp_path / "rows.jsonl").read_bytes().splitlines() == expected
    assert done.stderr.endswith("replay with --trace-block-size 16\n") and "rules 2026-06" in done.stderr


def test_request_trace_with_requests_of_no_agent_is_exported_by_itself_or_leniently(imported):
    store = imported("real_request_trace.jsonl.gz")
    plain = otel_gym("export", "mooncake", "--dir", store)
    assert plain.exit_code == 0 and len(plain.stdout.splitlines()) == 22
    assert "2 payloads of requests that Dynamo did not record" in plain.stderr
    assert set(json.loads(plain.stdout.splitlines()[0])) == {"input_length", "output_length", "hash_ids", "timestamp"}
    strict = otel_gym("export", "mooncake", "--agentic", "--dir", store)
    assert strict.exit_code == 2 and not strict.stdout and "export it without --agentic" in strict.stderr
    lenient = otel_gym("export", "mooncake", "--agentic", "--lenient", "--dir", store)
    rows = list(map(json.loads, lenient.stdout.splitlines()))
    assert lenient.exit_code == 1 and len(rows) == 20 and lenient.stderr.count("left out") == 2
    assert "rules 2026-08" in lenient.stderr and {row["request_kind"] for row in rows} == {"foreground", "agent"}


def test_refused_export_leaves_the_file_that_is_there(imported, tmp_path):
    (tmp_path / "rows.jsonl").write_text("before")
    store = imported("missing_optional.jsonl")
    done = otel_gym("export", "mooncake", "--dir", store, "-o", tmp_path / "rows.jsonl")
    assert done.exit_code == 2 and "neither the token ids of its prompt nor replay hashes" in done.stderr
    assert (tmp_path / "rows.jsonl").read_text() == "before"


def test_rules_of_no_month_are_refused(imported):
    done = otel_gym("export", "mooncake", "--rules", "2026-07", "--dir", imported("basic_all_types.jsonl"))
    assert done.exit_code == 2 and "2026-07" in done.stderr


def test_request_that_made_no_token_is_written_and_said(imported, tmp_path):
    text = (TRACES / "basic_all_types.jsonl").read_text().replace('"output_tokens":8', '"output_tokens":0')
    (tmp_path / "t.jsonl").write_text(text)
    otel_gym("import", "dynamo", tmp_path / "t.jsonl", "--dir", tmp_path / "store")
    done = otel_gym("export", "mooncake", "--dir", tmp_path / "store")
    assert done.exit_code == 0 and "5 requests made no token" in done.stderr and "1.3.1" in done.stderr


def test_damage_of_the_store_is_said_beside_what_was_left_out(imported):
    store = imported("real_request_trace.jsonl.gz")
    with next(store.glob("spans/*/*.jsonl")).open("a") as lines:
        lines.write("torn\n")
    done = otel_gym("export", "mooncake", "--agentic", "--lenient", "--dir", store)
    assert done.exit_code == 1 and "left out" in done.stderr and ".jsonl" in done.stderr


def test_rollouts_captured_with_token_ids_are_replayed_as_export_dynamo_would_name_them(tmp_path):
    rollouts = bench("mooncake_rollouts")
    rollouts.write_rollouts(tmp_path / "store")
    done = otel_gym("export", "mooncake", "--agentic", "--trace-block-size", 16, "--dir", tmp_path / "store")
    assert done.exit_code == 0, done.output
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert not list(check_rows(done.stdout_bytes.splitlines(), 16, agentic=True))
    assert [row["session_id"] for row in rows if row["session_id"].startswith("token-ids/1-0")] == [
        "token-ids/1-0:planner",
        "token-ids/1-0:planner/helper:call-1",
        "token-ids/1-0:planner",
    ]
    first, helper, last = rows[:3]
    assert first["hash_ids"][:2] == last["hash_ids"][:2] and helper["wait_for"] == [first["request_id"]]
    assert last["wait_for"] == [first["request_id"], helper["request_id"]] and last["output_length"] == 3
    exported = otel_gym(
        "export", "dynamo", "--dir", tmp_path / "store", "--trace-block-size", 16, "-o", tmp_path / "trace.jsonl"
    )
    assert exported.exit_code == 0, exported.output
    done = otel_gym("import", "dynamo", tmp_path / "trace.jsonl", "--dir", tmp_path / "again")
    again = otel_gym("export", "mooncake", "--agentic", "--rules", "2026-08", "--dir", tmp_path / "again")
    assert [json.loads(line)["session_id"] for line in again.stdout.splitlines()] == [row["session_id"] for row in rows]


def test_folder_without_replay_environment_is_judged_by_its_own_logic(tmp_path, monkeypatch):
    """What the script counts, with a replay that says what it is told to."""
    script = bench("mooncake_replay")
    (tmp_path / "synthetic").mkdir()
    (tmp_path / "mooncake_expected").mkdir()
    shutil.copy(TRACES / "mooncake_dag.jsonl", tmp_path / "synthetic" / "14_mooncake_dag.jsonl")
    shutil.copy(TRACES / "mooncake_dag.agentic.jsonl", tmp_path / "mooncake_expected" / "14_mooncake_dag.agentic.jsonl")
    for name in ("p_cycle.jsonl", "p_ok_chain.jsonl"):
        shutil.copy(ROOT / "tests" / "mooncake" / "replayed" / name, tmp_path / "mooncake_expected" / name)

    def replayed(python, jobs):
        def verdict(path):
            number = 0 if path.name == "14_mooncake_dag.0.jsonl" else len(path.read_bytes().splitlines())
            return script.Verdict(number, 1.0, "cycle" if "p_" in path.name else None)

        return [verdict(path) for path, _, _ in jobs]

    monkeypatch.setattr(script, "replayed", replayed)
    printed = []
    monkeypatch.setattr("builtins.print", lambda *texts, **options: printed.append(" ".join(map(str, texts))))
    (tmp_path / "work").mkdir()
    assert script.judge(Path(sys.executable), tmp_path, tmp_path / "work") == 1
    assert printed[-1] == "6 exports, 5 completed, 1 wrong; 3 checks, 2 agree"
    assert "14_mooncake_dag mooncake: 8 requests, wrong: 0 completed" in printed
    assert "p_ok_chain.jsonl: the replay says cycle, our check ok" in printed
    assert "rows of 14_mooncake_dag: agrees" in printed
    assert len(list(Store(tmp_path / "work" / "stores" / "14_mooncake_dag").rollouts())) == 1
