"""Kills writing processes at random moments, and looks for every span that had ended before.

    python bench/crash.py [--kills N] [--seed N]

Each writer logs a span to a pipe right after it ended, with the time and a hash of what it holds. After
the kill the store is read: a span that ended more than 100 ms before the kill must be there, once, as it
was logged. Last line: `N kills, N spans checked, N lost, N duplicated, N wrong`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvicorn

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store, StoreError
from otel_gym.tracing.pipeline import active_pipeline
from otel_gym.views.model_calls import model_calls

PROMISED_S = 0.1
PATH = "/v1/chat/completions"
PICTURE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode()


@dataclass(slots=True)
class Outcome:
    kills: int = 0
    checked: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def is_bad(self) -> bool:
        return bool(self.lost or self.duplicated or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.checked} spans checked, {self.lost} lost, "
            f"{self.duplicated} duplicated, {self.wrong} wrong"
        )


def write_forever(log: int, seed: int) -> None:
    """An agent whose prompt grows, with a picture in it, and small spans beside it."""
    draw = random.Random(seed)
    asyncio.run(_agent(log, draw))


async def _agent(log: int, draw: random.Random) -> None:
    capture = ModelCallCapture(_model)
    for number in range(1_000_000):
        rollout_id = f"{os.getpid()}-{number}"
        messages: list[Any] = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]
        async with otel_gym.rollout(rollout_id=rollout_id):
            for _ in range(draw.randrange(1, 8)):
                messages.append({"role": "user", "content": draw.choice("abc") * draw.randrange(10, 3000)})
                body = json.dumps({"model": "m", "messages": messages, "tools": [{"type": "function"}]}).encode()
                await _call(capture, body)
                _note(log, "call", rollout_id, sha256(body).hexdigest())
                _tool_span(log, rollout_id, draw)
                await asyncio.sleep(draw.random() / 200)


async def _model(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"id":"x","choices":[]}', "more_body": False})


async def _call(capture: ModelCallCapture, body: bytes) -> None:
    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        return None

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": PATH}
    await capture(scope | {"raw_path": PATH.encode(), "query_string": b"", "headers": []}, receive, send)


def _tool_span(log: int, rollout_id: str, draw: random.Random) -> None:
    text = draw.choice("xyz") * draw.randrange(1, 5000)
    pipeline = active_pipeline()
    assert pipeline is not None
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": text}
    span = pipeline.tracer.start_span("execute_tool x", attributes=attributes)
    span.end()
    _note(log, format(span.get_span_context().span_id, "016x"), rollout_id, sha256(text.encode()).hexdigest())


def _note(log: int, span: str, rollout_id: str, digest: str) -> None:
    os.write(log, f"{time.monotonic()} {span} {rollout_id} {digest}\n".encode())


def start(directory: Path, writers: int, seed: int, environ: dict[str, str]) -> tuple[list[int], list[int]]:
    """Forks writers of one store; returns their process ids and the read ends of their logs."""
    children, logs = [], []
    for number in range(writers):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            os.environ.update(environ)
            otel_gym.configure(directory=directory, run_id="crash")
            write_forever(write_end, seed * 100 + number)
            os._exit(0)
        os.close(write_end)
        children.append(child)
        logs.append(read_end)
    return children, logs


def read_logs(logs: list[int], seconds: float) -> list[bytes]:
    """What the writers log for some seconds."""
    contents = [bytearray() for _ in logs]
    for log in logs:
        os.set_blocking(log, False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _drain(logs, contents)
        time.sleep(0.002)
    return [bytes(content) for content in contents]


def _drain(logs: list[int], contents: list[bytearray]) -> None:
    for log, content in zip(logs, contents, strict=True):
        try:
            while chunk := os.read(log, 65536):
                content += chunk
        except BlockingIOError:
            pass


def kill_once(
    writers: int, seed: int, environ: dict[str, str], meanwhile: Callable[[Path], None], outcome: Outcome
) -> None:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        children, logs = start(directory, writers, seed, environ)
        noted = read_logs(logs, 0.3 + draw.random() * 0.5)
        meanwhile(directory)
        killed_at = time.monotonic()
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        outcome.kills += len(children)
        for log, content in zip(logs, noted, strict=True):
            os.set_blocking(log, True)
            with os.fdopen(log, "rb") as rest:
                check(directory, content + rest.read(), killed_at, outcome)


def check(directory: Path, log: bytes, killed_at: float, outcome: Outcome) -> None:
    due = [entry for entry in map(bytes.split, log.splitlines()) if len(entry) == 4]
    due = [entry for entry in due if float(entry[0]) < killed_at - PROMISED_S]
    rollouts: dict[str, list[tuple[str, str]]] = {}
    for _, span, rollout_id, digest in due:
        rollouts.setdefault(rollout_id.decode(), []).append((span.decode(), digest.decode()))
    for rollout_id, expected in rollouts.items():
        _check_rollout(directory, rollout_id, expected, outcome)


def _check_rollout(directory: Path, rollout_id: str, expected: list[tuple[str, str]], outcome: Outcome) -> None:
    outcome.checked += len(expected)
    try:
        spans = [span for rollout in Store(directory).rollouts(rollout_id) for span in rollout.spans]
        records = [call.record for rollout in Store(directory).rollouts(rollout_id) for call in model_calls(rollout)]
    except StoreError:
        spans, records = [], []
    seen = Counter(span.span_id for span in spans)
    texts = {span.span_id: span.attributes.get("gen_ai.tool.call.result") for span in spans}
    calls = Counter(sha256(json.dumps(record.request).encode()).hexdigest() for record in records)
    for name, digest in expected:
        found = calls[digest] if name == "call" else seen[name]
        if found == 0:
            outcome.lost += 1
            outcome.problems.append(f"{rollout_id}: {name} lost")
        elif found > 1:
            outcome.duplicated += 1
        elif name != "call" and sha256((texts[name] or "").encode()).hexdigest() != digest:
            outcome.wrong += 1


def nothing(directory: Path) -> None:
    return None


def kill_as_the_client_reads(seed: int, outcome: Outcome) -> None:
    """OTEL_GYM_DURABILITY=sync: a server dies as its client reads the terminal event of a stream."""
    rollout_id = f"sync-{seed}"
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        child = os.fork()
        if child == 0:
            os.environ["OTEL_GYM_DURABILITY"] = "sync"
            otel_gym.configure(directory=folder, run_id="crash")
            server = uvicorn.Server(
                uvicorn.Config(ModelCallCapture(_streaming_model), log_level="critical", lifespan="off")
            )
            asyncio.run(server.serve(sockets=[listener]))
            os._exit(0)
        try:
            _read_terminal_event(listener.getsockname()[1], rollout_id)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        outcome.kills += 1
        outcome.checked += 1
        records = _records(Path(folder), rollout_id)
        outcome.lost += not records
        outcome.duplicated += len(records) > 1
        outcome.wrong += any(record.response_raw != STREAM.decode() for record in records)


STREAM = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'


async def _streaming_model(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for start in range(0, len(STREAM), 16):
        await send({"type": "http.response.body", "body": STREAM[start : start + 16], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _read_terminal_event(port: int, rollout_id: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        head = f"POST /ng-rollout/{rollout_id}{PATH} HTTP/1.1\r\nhost: model\r\ncontent-length: 2\r\n\r\n{{}}"
        client.sendall(head.encode())
        received = b""
        while b"[DONE]" not in received:
            more = client.recv(4096)
            if not more:
                raise SystemExit("the server ended before its terminal event")
            received += more


def _records(directory: Path, rollout_id: str) -> list[Any]:
    try:
        return [call.record for rollout in Store(directory).rollouts(rollout_id) for call in model_calls(rollout)]
    except StoreError:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcome = Outcome()
    turn = 0
    while outcome.kills < options.kills:
        writers = 4 if turn % 3 == 2 else 1
        kill_once(writers, options.seed * 10_000 + turn, {}, nothing, outcome)
        turn += 1
    durable = Outcome()
    for number in range(options.kills):
        kill_as_the_client_reads(number, durable)
    print(f"DURABILITY=sync, killed as the client reads its terminal event: {durable}")
    for problem in outcome.problems[:20]:
        print(problem)
    print(outcome)
    return 1 if outcome.is_bad() or durable.is_bad() else 0


if __name__ == "__main__":
    sys.exit(main())
