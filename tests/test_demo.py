"""The demo: real clients through the proxy, and what a reader then finds on disk."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from otel_gym.cli.demo import called_as
from otel_gym.cli.demo import demo as demo_command
from otel_gym.cli.main import app
from otel_gym.demo.dialects import DIALECTS
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.reader import Store
from otel_gym.views.summary import RolloutSummary, mark_superseded, summarize_rollout

pytest.importorskip("openai")
pytest.importorskip("anthropic")

from otel_gym.demo.run import run_demo

ROOT = Path(__file__).parents[1]


@dataclass
class Demo:
    directory: Path
    stdout: str
    stderr: str
    returncode: int

    @property
    def records(self) -> list[ModelCallRecord]:
        lines = (self.directory / "model_calls.jsonl").read_text().splitlines()
        return [ModelCallRecord.model_validate(json.loads(line)) for line in lines]

    @property
    def summaries(self) -> dict[str, RolloutSummary]:
        rows = mark_superseded(summarize_rollout(rollout) for rollout in Store(self.directory).rollouts())
        return {row.rollout_id: row for row in rows}


def run_demo_command(directory: Path) -> Demo:
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--dir", str(directory)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    # A proxy that would swallow every call, were it used: the demo stays on loopback.
    clean |= {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False, timeout=60)
    return Demo(directory, done.stdout, done.stderr, done.returncode)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo_command(tmp_path_factory.mktemp("demo") / "store")


def test_the_demo_succeeds_and_says_nothing_else(demo: Demo) -> None:
    assert demo.returncode == 0, demo.stderr
    assert demo.stderr == ""
    assert "\x1b" not in demo.stdout


def test_the_scripted_model_alone_is_served_until_ctrl_c() -> None:
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]  # type: ignore[index]
        question = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        answer = httpx.post(f"{url}/v1/chat/completions", json=question, trust_env=False).json()
        assert answer["usage"]["completion_tokens"] > 0
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()


def test_its_rollouts_are_rewarded_and_the_cut_one_is_superseded(demo: Demo) -> None:
    summaries = demo.summaries
    assert list(summaries) == [f"{task}-0" for task in range(8)] + ["7-0-a1"]
    assert summaries["7-0"].status == "error"
    assert summaries["7-0"].superseded_by == "7-0-a1"
    assert all((row.reward, row.status) == (1.0, "ok") for row in summaries.values() if row.counts)


def test_every_call_became_one_record_in_every_dialect_streamed_and_plain(demo: Demo) -> None:
    """The Anthropic client makes a GenAI span of its own around each call: that is no second call."""
    records = demo.records
    assert len(records) == 23
    forms = {(record.dialect, bool((record.request or {}).get("stream"))) for record in records}
    assert forms == {(dialect, stream) for dialect in ("chat", "responses", "messages") for stream in (False, True)}
    assert sum(row.calls for row in demo.summaries.values()) == len(records)


def test_it_shows_tools_reasoning_cache_errors_and_a_retry(demo: Demo) -> None:
    records = demo.records
    assert max(len(record.tool_calls) for record in records) == 2
    assert {record.dialect for record in records if record.reasoning_content} == {"chat", "responses", "messages"}
    assert {record.error_category for record in records} == {None, "not_found", "rate_limit", "connection"}
    assert demo.summaries["6-0"].retries == 1
    growing = [record.cached_tokens for record in records if record.dialect == "responses"][2:]
    assert growing == sorted(growing)
    assert growing[-1] > growing[0] == 0


def test_the_commands_that_it_names_work(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: list[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [line.strip() for line in demo.stdout.split("Now try:")[1].splitlines() if line.strip()]
    assert len(commands) == 5
    for command in commands:
        program, *arguments = shlex.split(command.replace("-m otel_gym.cli ", ""))
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        assert shutil.which(program, path=f"{os.environ['PATH']}:{ROOT}") or (ROOT / program).exists()
    assert (tmp_path / "model_calls.parquet").exists()
    assert len(browser) == 1


def test_it_writes_the_trace_of_its_rollouts_and_says_where(demo: Demo) -> None:
    [said] = [line for line in demo.stdout.splitlines() if "ui.perfetto.dev" in line]
    trace = Path(said.split(": ", 1)[1])
    assert trace.name == "rollouts.pftrace"
    assert b"rollout 7-0-a1 reward=1 ok" in trace.read_bytes()


def test_rollouts_are_as_many_as_asked_and_launches_stay_apart(tmp_path: Path) -> None:
    first, second = (run_demo(tmp_path / "store", count, run_id) for count, run_id in ((1, "mine"), (9, "other")))
    assert (first.problems, second.problems) == ([], [])
    assert [(row.run_id, row.rollout_id) for row in first.rollouts] == [("mine", "0-0")]
    assert {row.run_id for row in second.rollouts} == {"other"}
    assert {row.rollout_id for row in second.rollouts} >= {"0-0", "0-1", "7-0"}
    assert second.records == 25


def test_a_folder_of_another_making_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "not a store of otel_gym" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_demo_of_capture_does_not_run_with_capture_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM", "0")
    result = CliRunner().invoke(app, ["demo", "--dir", str(tmp_path / "store")])
    assert result.exit_code == 2
    assert "OTEL_GYM=0" in result.stderr


def test_with_the_sdk_disabled_the_demo_failed_with_a_riddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    result = CliRunner().invoke(app, ["demo", "--dir", str(tmp_path / "store")])
    assert result.exit_code == 2
    assert result.stderr.startswith("otel-gym: OTEL_SDK_DISABLED=true turns capture off")


def test_the_demo_wrote_into_the_store_of_the_users_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_DIR", "/somebody/elses")
    assert inspect.signature(demo_command).parameters["directory"].default == Path("otel_gym_demo")


def test_the_commands_that_it_names_begin_as_they_can_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `make demo` no environment is active: otel-gym is not on PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(binaries / "python"))
    assert called_as() == ".venv/bin/python -m otel_gym.cli"
    (binaries / "otel-gym").touch()
    assert called_as() == ".venv/bin/otel-gym"


def test_the_scripted_model_speaks_three_dialects() -> None:
    assert sorted(DIALECTS) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
