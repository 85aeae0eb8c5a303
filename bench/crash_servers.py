"""Servers that crash.py ends: by SIGKILL as their client reads a terminal event, by SIGTERM under traffic."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import otel_gym
from crash_judge import Note, Outcome, judge
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY

PATH = "/v1/chat/completions"
CALL_ID_HEADER = b"x-crash-call-id"
SIGTERM_ROUNDS = 3
CLIENTS = 4

STREAM = [
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


async def complete(request: Request) -> StreamingResponse:
    await request.body()

    async def stream() -> Any:
        for event in STREAM:
            yield event[:20]
            await asyncio.sleep(0.001)
            yield event[20:]

    return StreamingResponse(stream(), media_type="text/event-stream")


def call_id_of(scope: Any) -> str:
    return next((value.decode() for name, value in scope["headers"] if name == CALL_ID_HEADER), os.urandom(16).hex())


app = ModelCallCapture(Starlette(routes=[Route(PATH, complete, methods=["POST"])]), call_id=call_id_of)


def note_of(call_id: str, rollout_id: str, request: bytes) -> Note:
    texts = {REQUEST_BODY: request, RESPONSE_BODY: b"".join(STREAM)}
    return Note(time.monotonic(), call_id, rollout_id, {name: sha256(text).hexdigest() for name, text in texts.items()})


def request_of(draw: random.Random) -> bytes:
    messages = [{"role": "user", "content": f"{draw.random()} " * draw.randrange(1, 400)}]
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


# ── SIGKILL ────────────────────────────────────────────────────────────────────────────────────────────────────────


def killed_as_the_client_reads(folder: Path, draw: random.Random, outcome: Outcome) -> None:
    """OTEL_GYM_DURABILITY=sync: a server dies in the moment in which its client has the terminal event."""
    rollout_id, call_id, request = f"sync-{draw.randrange(10**9)}", draw.randbytes(16).hex(), request_of(draw)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = os.fork()
        if server == 0:
            _serve_durably(listener, folder)
        try:
            _read_terminal_event(listener.getsockname()[1], rollout_id, call_id, request)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
    outcome.kills += 1
    outcome.checked += 1
    judge(folder, [note_of(call_id, rollout_id, request)], outcome, "after the kill")


def _serve_durably(listener: socket.socket, folder: Path) -> None:
    try:
        os.environ["OTEL_GYM_DURABILITY"] = "sync"
        otel_gym.configure(directory=folder, run_id="crash")
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        os._exit(1)


def _read_terminal_event(port: int, rollout_id: str, call_id: str, body: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        head = f"POST /ng-rollout/{rollout_id}{PATH} HTTP/1.1\r\nhost: model\r\ncontent-length: {len(body)}\r\n"
        client.sendall(head.encode() + CALL_ID_HEADER + f": {call_id}\r\n\r\n".encode() + body)
        received = b""
        while b"[DONE]" not in received:
            more = client.recv(4096)
            if not more:
                raise SystemExit("the server ended before its terminal event")
            received += more


# ── SIGTERM ────────────────────────────────────────────────────────────────────────────────────────────────────────

_APP = "crash_servers:app"
_UVICORN = ("-m", "uvicorn", _APP, "--log-level", "critical", "--port", "{port}")
SERVERS: dict[str, tuple[str, ...]] = {
    "uvicorn": _UVICORN,
    "uvicorn with 2 workers": (*_UVICORN, "--workers", "2"),
    "gunicorn with 2 workers": (
        *("-m", "gunicorn", _APP, "--log-level", "critical", "--bind", "127.0.0.1:{port}"),
        *("--worker-class", "uvicorn_worker.UvicornWorker", "--workers", "2"),
    ),
}


def what_is_missing(command: tuple[str, ...]) -> str | None:
    needed = (command[1], "uvicorn_worker") if "gunicorn" in command else (command[1],)
    return next((name for name in needed if find_spec(name) is None), None)


def stopped_by_sigterm(command: tuple[str, ...], folder: Path, draw: random.Random, outcome: Outcome) -> None:
    """A server is told to stop while clients call it: every answer that one of them had whole is stored."""
    port, notes = _free_port(), list[Note]()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parent), environ.get("PYTHONPATH", "")])
    environ |= {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(folder / "store"), "PYTHONPATH": paths}
    server = subprocess.Popen([sys.executable, *(part.format(port=port) for part in command)], env=environ)
    try:
        _wait_for(lambda: _accepts(port), server)
        clients = [threading.Thread(target=_call_until_the_end, args=(port, n, notes)) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        _wait_for(lambda: bool(notes), server)  # a worker may begin long after its port is open
        time.sleep(draw.uniform(0.3, 1.0))
    finally:
        server.terminate()
        server.wait(30)
    for client in clients:
        client.join()
    outcome.kills += 1
    outcome.checked += len(notes)
    judge(folder / "store", notes, outcome, "after SIGTERM")


def _call_until_the_end(port: int, number: int, notes: list[Note]) -> None:
    draw = random.Random(number)
    while True:
        rollout_id, call_id, request = f"{number}-{draw.randrange(5)}", os.urandom(16).hex(), request_of(draw)
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            headers = {CALL_ID_HEADER.decode(): call_id}
            client.request("POST", f"/ng-rollout/{rollout_id}{PATH}", request, headers)
            answer = client.getresponse().read()
        except (OSError, http.client.HTTPException):
            return
        finally:
            client.close()
        if answer == b"".join(STREAM):
            notes.append(note_of(call_id, rollout_id, request))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_for(condition: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end or server.poll() is not None:
            raise SystemExit("the server did not start")
        time.sleep(0.02)
