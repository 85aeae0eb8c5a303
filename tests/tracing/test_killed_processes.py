"""What is on disk after a process was stopped, killed or ended in mid-run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import otel_gym
from otel_gym.store.reader import Store

PROGRAM = """
import os, sys, time, otel_gym
otel_gym.configure(handle_sigterm={handle_sigterm})
with otel_gym.rollout(0, 0): pass
open_rollout = otel_gym.rollout(1, 0)
open_rollout.__enter__()
time.sleep(0.15)
print("ready", flush=True)
{end}
"""
WAIT = "time.sleep(30)"


def all_spans_in(folder: Path) -> list[dict]:
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_bytes().splitlines()]
    return [span for line in lines for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]]


def spans_in(folder: Path) -> dict[str, dict]:
    """Rollout id → its `rollout` span as it stands in the files of a folder."""
    found = {}
    for span in all_spans_in(folder):
        rollout_id = next(a["value"]["stringValue"] for a in span["attributes"] if a["key"] == "gym.rollout.id")
        found[rollout_id] = span
    return found


def start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that said it is ready, with ``folder`` as its store and its working directory."""
    environ = {**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def run_and_end(tmp_path: Path, end: str = WAIT, number: int | None = None, *, handle_sigterm: bool = False) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end=end, handle_sigterm=handle_sigterm)],
        env={**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=20)
    return process.returncode


@pytest.mark.parametrize(
    ("end", "number"),
    [("sys.exit(0)", None), ("os._exit(0)", None), (WAIT, signal.SIGTERM), (WAIT, signal.SIGKILL)],
)
def test_what_ended_is_stored_and_what_was_open_is_known(tmp_path, end, number):
    run_and_end(tmp_path, end, number)

    assert "endTimeUnixNano" in spans_in(tmp_path / "spans")["0-0"]
    assert "1-0" not in spans_in(tmp_path / "spans")
    open_span = spans_in(tmp_path / "open")["1-0"]
    assert (open_span["name"], "endTimeUnixNano" in open_span) == ("rollout", False)


def test_sigterm_ends_open_spans_as_aborted_where_asked_for(tmp_path):
    assert run_and_end(tmp_path, WAIT, signal.SIGTERM, handle_sigterm=True) == -signal.SIGTERM

    span = spans_in(tmp_path / "spans")["1-0"]
    assert span["status"] == {"code": 2, "message": "SIGTERM"}
    assert {"key": "error.type", "value": {"stringValue": "aborted"}} in span["attributes"]
    assert spans_in(tmp_path / "open") == {}


def test_short_spans_leave_no_start_records(tmp_path):
    program = "import otel_gym\nfor n in range(50):\n    with otel_gym.rollout(n, 0): pass\n"
    environ = {**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=30)
    assert len(spans_in(tmp_path / "spans")) == 50
    assert spans_in(tmp_path / "open") == {}


SERVER = """
import otel_gym, uvicorn
from fastapi import FastAPI
from otel_gym.capture.middleware import instrument_app
app = FastAPI()
@app.post("/v1/chat/completions")
async def complete():
    return {"id": "x", "choices": []}
instrument_app(app)
"""


UVICORN = ["-m", "uvicorn", "server:app", "--port"]
WORKER = "uvicorn_worker.UvicornWorker"
GUNICORN = ["-m", "gunicorn", "server:app", "--worker-class", WORKER, "--workers", "2", "--bind"]
SERVERS = {
    "uvicorn": lambda port: [*UVICORN, str(port)],
    "uvicorn with two workers": lambda port: [*UVICORN, str(port), "--workers", "2"],
    "gunicorn": lambda port: [*GUNICORN, f"127.0.0.1:{port}"],
    "gunicorn with a preloaded app": lambda port: [*GUNICORN, f"127.0.0.1:{port}", "--preload"],
}


@pytest.mark.parametrize("server", SERVERS)
def test_sigterm_loses_no_call(tmp_path, server):
    (tmp_path / "server.py").write_text(SERVER)
    store, port = tmp_path / "store", _free_port()
    process = subprocess.Popen(
        [sys.executable, *SERVERS[server](port)],
        cwd=tmp_path,
        env={**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(store), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            _wait_for(client)
            for number in range(30):
                client.post(f"/ng-rollout/{number}-0/v1/chat/completions", json={"model": "m"}).raise_for_status()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    lines = [line for path in store.rglob("spans/*/*.jsonl") for line in path.read_bytes().splitlines()]
    assert len([line for line in lines if b'"gym.model_call.id"' in line]) == 30


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait_for(client) -> None:
    for _ in range(200):
        try:
            client.get("/openapi.json")
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start")


HOLDS_A_LOCK = """
import time, otel_gym
pipeline = otel_gym.configure(handle_sigterm=True)
with otel_gym.rollout(1, 0) as rollout:
    tool = pipeline.tracer.start_span("execute_tool", attributes={{"gen_ai.operation.name": "execute_tool"}})
    while not list(pipeline.directory.glob("open/*.jsonl")): time.sleep(0.01)
    with {lock}:
        print("ready", flush=True)
        while True: time.sleep(0.01)
"""


@pytest.mark.parametrize("lock", ["rollout.span._lock", "rollout.span._attributes._lock"])
def test_sigterm_while_a_span_was_written_to_hung_for_good(tmp_path, lock):
    process = start(HOLDS_A_LOCK.format(lock=lock), tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    # The span that is locked stays open, and known; the other one ends.
    assert "rollout" in {span["name"] for span in all_spans_in(tmp_path / "open")}
    assert {span["name"] for span in all_spans_in(tmp_path / "spans")} == {"execute_tool"}


def test_sigterm_while_the_queue_is_locked_loses_nothing(tmp_path):
    process = start(HOLDS_A_LOCK.format(lock="pipeline.recorder._lock"), tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    assert {span["name"] for span in all_spans_in(tmp_path / "spans")} == {"rollout", "execute_tool"}


def test_a_process_that_ignores_sigterm_was_killed_by_it(tmp_path):
    program = (
        "import os, signal, otel_gym\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "otel_gym.configure(handle_sigterm=True)\n"
        "with otel_gym.rollout(1, 0): os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('ready', flush=True)\n"
    )
    assert start(program, tmp_path).wait(10) == 0
    assert "status" not in spans_in(tmp_path / "spans")["1-0"]


def test_configure_in_a_thread_raised_since_only_the_main_thread_handles_signals(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(otel_gym.configure, directory=tmp_path, handle_sigterm=True).result()
    with otel_gym.rollout(1, 0):
        pass
    assert otel_gym.flush(10)
    assert set(spans_in(tmp_path / "spans")) == {"1-0"}


TWO_STORES = """
import time, otel_gym
otel_gym.configure(directory="one", handle_sigterm=True)
first = otel_gym.rollout(1, 0).__enter__()
otel_gym.configure(directory="two", handle_sigterm=True)
second = otel_gym.rollout(2, 0).__enter__()
print("ready", flush=True)
time.sleep(30)
"""


def test_sigterm_left_spans_open_that_began_before_a_second_configure(tmp_path):
    process = start(TWO_STORES, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    assert spans_in(tmp_path / "one" / "spans")["1-0"]["status"]["message"] == "SIGTERM"
    assert spans_in(tmp_path / "two" / "spans")["2-0"]["status"]["message"] == "SIGTERM"
    assert all_spans_in(tmp_path / "one" / "open") == all_spans_in(tmp_path / "two" / "open") == []


POOL = """
import multiprocessing
import otel_gym
from otel_gym.store.reader import Store


def work(task):
    with otel_gym.rollout(task, 0), otel_gym.execute_tool("add"):
        pass


if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    with multiprocessing.Pool(2) as pool:  # which ends its workers by SIGTERM
        pool.map(work, range(8))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_that_was_left_by_with_lost_the_rollouts_of_its_workers(tmp_path: Path, method: str):
    program = tmp_path / "program.py"
    program.write_text(POOL.format(method=method))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run(
        [sys.executable, program], env={**clean, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path / "store")}, check=True
    )
    rollouts = list(Store(tmp_path / "store").rollouts())
    assert sorted(rollout.rollout_id for rollout in rollouts) == [f"{task}-0" for task in range(8)]
    assert all(len(rollout.spans) == 2 and all(span.end_ns for span in rollout.spans) for rollout in rollouts)
