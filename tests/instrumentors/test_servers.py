"""Model servers that know nothing of tracing, each a process of its own under a real server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.reader import Store, StoreError
from otel_gym.store.span import KIND_SERVER, StoredSpan
from otel_gym.views.model_calls import model_call_records

PATH = "/v1/chat/completions"

PROGRAM = """
import asyncio, json
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def complete(request: Request):
    body = await request.json()
    if not body.get("stream"):
        return JSONResponse({"id": "c", "model": "toy", "choices": [], "usage": {"prompt_tokens": 3}})
    async def chunks():
        while True:
            yield 'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\\n\\n'
            await asyncio.sleep(0.05)
    return StreamingResponse(chunks(), media_type="text/event-stream")

app = FastAPI()
app.post("/v1/chat/completions")(complete)
plain = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
outer = FastAPI()
outer.mount("/models", app)

def make():
    return app
"""

# Stands for `otel-gym run`, which has its own tests: the same table, before the program begins.
SITE = """
from importlib import import_module
from otel_gym.capture.instrumentors import INSTRUMENTORS
for target in INSTRUMENTORS.values():
    module, _, name = target.partition(":")
    getattr(import_module(module), name)().instrument()
"""

UVICORN = ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "PORT"]
HYPERCORN = ["-m", "hypercorn", "--bind", "127.0.0.1:PORT"]
GUNICORN = ["-m", "gunicorn", "--worker-class", "uvicorn_worker.UvicornWorker", "--bind", "127.0.0.1:PORT"]
SERVERS = {
    "uvicorn on asyncio": [*UVICORN, "--loop", "asyncio", "program:app"],
    "uvicorn on uvloop": [*UVICORN, "--loop", "uvloop", "program:app"],
    "hypercorn on asyncio": [*HYPERCORN, "--worker-class", "asyncio", "program:app"],
    "hypercorn on uvloop": [*HYPERCORN, "--worker-class", "uvloop", "program:app"],
}
MORE_SERVERS = {
    "uvicorn with two workers": [*UVICORN, "--workers", "2", "program:app"],
    "uvicorn with a factory": [*UVICORN, "--factory", "program:make"],
    "hypercorn with two workers": [*HYPERCORN, "--workers", "2", "program:app"],
    "gunicorn": [*GUNICORN, "program:app"],
    "plain Starlette": [*UVICORN, "program:plain"],
}


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    port: int
    store: Path

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def spans(self, rollout_id: str, least: int = 1) -> list[StoredSpan]:
        """Read until they are there: a line is on disk some time after its client has been answered."""
        found: list[StoredSpan] = []
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                found = [span for each in Store(self.store).rollouts(rollout_id) for span in each.spans]
            except StoreError:
                found = []
            if len(found) >= least:
                break
            time.sleep(0.05)
        return found


@contextmanager
def running(tmp_path: Path, command: list[str], program: str = PROGRAM, site: str = SITE) -> Iterator[Running]:
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(site)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    paths = [str(tmp_path / "site"), *filter(None, sys.path)]
    environ = {**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path / "store"), "OTEL_GYM_RUN_ID": "run-1"}
    process = subprocess.Popen(
        [sys.executable, *(word.replace("PORT", str(port)) for word in command)],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(process, port)
        yield Running(process, port, tmp_path / "store")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server did not start")


def post(connection: http.client.HTTPConnection, path: str, body: dict[str, Any], **headers: str) -> int:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **headers})
    response = connection.getresponse()
    response.read()
    return response.status


@pytest.mark.parametrize("server", SERVERS)
def test_a_large_body_before_others_on_one_connection_keeps_their_traces_apart(tmp_path, server):
    """A body that fills the server's buffer leaves its context to the next request of the connection."""
    trace_id, parent_id = "ab" * 16, "cd" * 8
    large = {"model": "toy", "messages": [{"role": "user", "content": "x" * 300_000}]}
    with running(tmp_path, SERVERS[server]) as served:
        connection = served.connection()
        for number in range(3):
            assert post(connection, f"/ng-rollout/{number}-0{PATH}", large) == 200
        assert post(connection, f"/ng-rollout/3-0{PATH}", {"model": "toy"}) == 200
        told = {"traceparent": f"00-{trace_id}-{parent_id}-01", "baggage": "gym.rollout.id=4-0,gym.run.id=run-1"}
        assert post(connection, PATH, large, **told) == 200
        assert post(connection, PATH, {"model": "toy"}, **told) == 200
        assert post(connection, PATH, {"model": "toy"}) == 200  # of no rollout: not stored

        traces = set()
        for number in range(4):
            spans = served.spans(f"{number}-0", 2)
            assert [(span.kind, span.name) for span in spans if span.parent_span_id is None] == [
                (KIND_SERVER, f"POST {PATH}")
            ]
            assert [span.attributes["gen_ai.operation.name"] for span in spans if span.kind != KIND_SERVER] == ["chat"]
            traces |= {span.trace_id for span in spans}
        assert len(traces) == 4
        told_spans = served.spans("4-0", 4)
        assert {span.trace_id for span in told_spans} == {trace_id}
        assert [span.parent_span_id for span in told_spans if span.kind == KIND_SERVER] == [parent_id] * 2
        assert len(told_spans) == 4
        assert sorted(Store(served.store).rollout_ids()) == [f"{number}-0" for number in range(5)]


@pytest.mark.parametrize("server", MORE_SERVERS)
def test_every_way_to_serve_captures_each_call_once(tmp_path, server):
    with running(tmp_path, MORE_SERVERS[server]) as served:
        for number in range(8):
            connection = served.connection()  # so that each worker gets some
            assert post(connection, f"/ng-rollout/{number}-0{PATH}", {"model": "toy", "n": number}) == 200
            connection.close()
        for number in range(8):
            served.spans(f"{number}-0", 2)
            [rollout] = Store(served.store).rollouts(f"{number}-0")
            assert [record.request["n"] for record in model_call_records(rollout)] == [number]
            assert len(rollout.spans) == 2


def test_a_mounted_application_is_captured_once(tmp_path):
    with running(tmp_path, [*UVICORN, "program:outer"]) as served:
        assert post(served.connection(), f"/models/ng-rollout/1-0{PATH}", {"model": "toy"}) == 200
        spans = served.spans("1-0", 2)
    assert sorted(span.kind for span in spans) == [1, KIND_SERVER]


@pytest.mark.parametrize("server", SERVERS)
def test_sigterm_in_the_middle_of_a_stream_keeps_what_had_ended(tmp_path, server):
    with running(tmp_path, SERVERS[server]) as served:
        assert post(served.connection(), f"/ng-rollout/1-0{PATH}", {"model": "toy"}) == 200
        stream = served.connection()
        stream.request("POST", f"/ng-rollout/2-0{PATH}", json.dumps({"model": "toy", "stream": True}))
        response = stream.getresponse()
        assert response.read(20).startswith(b"data: ")
        assert post(served.connection(), f"/ng-rollout/3-0{PATH}", {"model": "toy"}) == 200
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        os.killpg(served.process.pid, signal.SIGKILL)  # what an orchestrator does to a server that waits for streams
        served.process.wait(20)

        for rollout_id in ("1-0", "3-0"):
            assert [span.end_ns is not None for span in served.spans(rollout_id, 2)] == [True, True]
        [record] = [each for rollout in Store(served.store).rollouts("2-0") for each in model_call_records(rollout)]
    assert record.completed_at is None or record.error_category == "cancelled"


OWN_TELEMETRY = """
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.opentelemetry import OpenTelemetryMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

async def complete(request):
    await request.json()
    return JSONResponse({"id": "c", "choices": []})

app = Starlette(
    routes=[Route("/v1/chat/completions", complete, methods=["POST"])],
    middleware=[Middleware(OpenTelemetryMiddleware)],
)
"""


def test_an_application_with_telemetry_of_starlettes_own_has_one_server_span(tmp_path):
    with running(tmp_path, [*UVICORN, "program:app"], OWN_TELEMETRY) as served:
        assert post(served.connection(), f"/ng-rollout/1-0{PATH}", {"model": "toy"}) == 200
        time.sleep(0.5)
        assert sorted(span.kind for span in served.spans("1-0", 2)) == [1, KIND_SERVER]


SERVES_THE_PREFIX = """
from fastapi import FastAPI

app = FastAPI()

@app.post("/ng-rollout/{rollout_id}/v1/chat/completions")
async def complete(rollout_id: str):
    return {"id": rollout_id, "choices": []}
"""


def test_an_application_with_routes_of_its_own_for_the_prefix_gets_paths_as_they_came(tmp_path):
    with running(tmp_path, [*UVICORN, "program:app"], SERVES_THE_PREFIX) as served:
        assert post(served.connection(), f"/ng-rollout/1-0{PATH}", {"model": "toy"}) == 200
        served.spans("1-0", 2)
        [rollout] = Store(served.store).rollouts("1-0")
        assert [record.response_id for record in model_call_records(rollout)] == ["1-0"]
        assert {span.name for span in rollout.spans} == {f"POST {PATH}", "chat"}


def test_the_entry_points_are_found_by_opentelemetry_instrument(tmp_path):
    command = [str(Path(sys.executable).parent / "opentelemetry-instrument")]
    command += ["--traces_exporter", "none", "--metrics_exporter", "none", "--logs_exporter", "none"]
    uvicorn = [sys.executable, *UVICORN, "program:app"]
    with running(tmp_path, [*command, *uvicorn], site="") as served:
        assert post(served.connection(), f"/ng-rollout/1-0{PATH}", {"model": "toy"}) == 200
        assert sorted(span.kind for span in served.spans("1-0", 2)) == [1, KIND_SERVER]
