"""Runs the demo: model server, proxy and agents, then reads back from disk what was captured.

The proxy is a process of its own, as in real use; agents and model server share this one.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from typing import IO

import otel_gym
from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.demo.model_server import running_model_server
from otel_gym.demo.rollouts import run_rollouts
from otel_gym.id_rules import new_run_id
from otel_gym.store.reader import Damage, Store
from otel_gym.tracing.pipeline import configure, flush
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import replacing, write_json_lines
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.timeline import Shown
from otel_gym.views.summary import RolloutSummary, mark_superseded, summarize_rollout

RECORDS_FILE = "model_calls.jsonl"
TRACE_FILE = "rollouts.pftrace"
PROXY_TIMEOUT_S = 30.0
PACKAGE_FOLDER = Path(otel_gym.__file__).parents[1]

_URL = re.compile(r"on (http://\S+),")


class DemoError(Exception):
    """The demo could not be run; the text says what was in the way."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """``records`` counts superseded ones too; ``problems``: what did not come out as it should, a line each."""

    directory: Path
    run_id: str
    seconds: float
    rollouts: list[RolloutSummary]
    records: int
    records_path: Path
    trace_path: Path
    damage: list[Damage]
    problems: list[str]


def run_demo(directory: Path, rollouts: int = 8, run_id: str | None = None) -> DemoResult:
    """Captures ``rollouts`` (at least 1) scripted rollouts into the store at ``directory``. Raises DemoError."""
    directory = Path(os.path.abspath(directory))
    _check_folder(directory)
    run_id = run_id or os.environ.get("OTEL_GYM_RUN_ID") or new_run_id()
    os.environ["OTEL_GYM_DIR"] = str(directory)
    configure(directory=directory, run_id=run_id, service_name="otel-gym-demo")
    started = time.monotonic()
    try:
        with running_model_server() as (server, server_url), running_proxy(server_url, directory, run_id) as proxy_url:
            problems = asyncio.run(run_rollouts(proxy_url, rollouts))
    except TimeoutError as error:
        raise DemoError(str(error)) from None
    if not flush():
        problems.append("spans of the agents could not be written within 30 s")
    return _read_back(directory, run_id, server.served, started, problems)


def _check_folder(directory: Path) -> None:
    try:
        check_store_folder(directory)
    except StoreFolderError as error:
        raise DemoError(str(error)) from None


def _read_back(directory: Path, run_id: str, served: int, started: float, problems: list[str]) -> DemoResult:
    """From disk alone; every call that the model server got must have become a record."""
    store = Store(directory)
    ours = [rollout for rollout in store.rollouts() if rollout.run_id == run_id]
    summaries = mark_superseded(summarize_rollout(rollout) for rollout in ours)
    records_path = directory / RECORDS_FILE
    calls = counted_calls(ours, LaterAttempts(store), every=True)
    records = write_json_lines(model_call_rows(calls), records_path)
    if records != served:
        problems.append(f"the model server got {served} calls, the store holds {records}")
    trace_path = directory / TRACE_FILE
    with replacing(trace_path) as temporary:
        write_trace(lambda: processes(ours, Shown()), temporary, trace_path.name)
    problems += [
        f"rollout {row.rollout_id}: reward {row.reward}" for row in summaries if row.counts and row.reward != 1
    ]
    seconds = time.monotonic() - started
    return DemoResult(directory, run_id, seconds, summaries, records, records_path, trace_path, store.damage, problems)


@contextmanager
def running_proxy(upstream: str, directory: Path, run_id: str) -> Iterator[str]:
    """`otel-gym proxy` as a process, until the block ends; its URL. Raises DemoError if it does not start."""
    command = [sys.executable, "-m", "otel_gym.cli", "proxy", "--upstream", upstream, "--port", "0"]
    command += ["--dir", str(directory), "--run", run_id]
    python_path = os.pathsep.join(filter(None, (str(PACKAGE_FOLDER), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OTEL_GYM": "1", "PYTHONPATH": python_path}
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
        try:
            yield _url_said_by(process, said)
        finally:
            process.send_signal(signal.SIGTERM)
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(PROXY_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _url_said_by(process: subprocess.Popen[str], said: IO[str]) -> str:
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    try:
        first_line = lines.get(timeout=PROXY_TIMEOUT_S)
    except Empty:
        raise DemoError(f"the proxy did not start within {PROXY_TIMEOUT_S:g} s") from None
    match = _URL.search(first_line)
    if match is None:
        process.wait(PROXY_TIMEOUT_S)
        said.seek(0)
        raise DemoError(f"the proxy did not start; it said: {said.read().strip() or first_line.strip()}")
    return match[1]


def _read_lines(process: subprocess.Popen[str], lines: SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")
