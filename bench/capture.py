"""What capture adds to one model call, in the request path.

Every arm is the same application under opentelemetry-instrumentation-asgi (no send and receive spans),
called in this process; the arms take turns, and each time is compared with that of the bare arm of the
same round. The recorder is drained between rounds: parsing and writing happen on its thread, after the
last byte.

    python bench/capture.py [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.tracing.pipeline import Pipeline
from table import Figure, print_table

App = Callable[[Any, Any, Any], Awaitable[None]]

WARM_UP_ROUNDS = 20
# Few enough to be over before the recorder begins to parse.
CALLS_IN_A_ROW = 5

PATH = "/ng-rollout/1-0/v1/chat/completions"
REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 8000}]}).encode()
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "y" * 1800}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2000, "completion_tokens": 450, "total_tokens": 2450},
    }
).encode()
CHUNK_OBJECT = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": " token"}, "finish_reason": None}],
}
CHUNK = b"data: " + json.dumps(CHUNK_OBJECT).encode() + b"\n\n"
SPAN_ATTRIBUTES: dict[str, Any] = {f"gen_ai.bench.{n}": f"value {n}" for n in range(25)}


def json_app() -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": ANSWER, "more_body": False})

    return app


def sse_app() -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(499):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    return app


def tee(app: App) -> App:
    """The least that any capture must do: keep each body message in a list."""

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        request: list[bytes] = []
        response: list[bytes] = []

        async def tee_receive() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                request.append(message.get("body", b""))
            return message

        async def tee_send(message: Any) -> None:
            if message["type"] == "http.response.body":
                response.append(message.get("body", b""))
            await send(message)

        await app(scope, tee_receive, tee_send)

    return middleware


def one_span(app: App, pipeline: Pipeline) -> App:
    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        span = pipeline.tracer.start_span("bench", attributes=SPAN_ATTRIBUTES)
        try:
            await app(scope, receive, send)
        finally:
            span.end()

    return middleware


def server_span(app: App, pipeline: Pipeline) -> App:
    return OpenTelemetryMiddleware(app, tracer_provider=pipeline.provider, exclude_spans=["receive", "send"])


def arms(app: App, pipeline: Pipeline) -> dict[str, App]:
    return {
        "bare": server_span(app, pipeline),
        "tee": server_span(tee(app), pipeline),
        "span": server_span(one_span(app, pipeline), pipeline),
        "capture": ModelCallCapture(app),
    }


async def timed_calls(app: App, calls: int) -> float:
    """Microseconds of one request through ``app``, the mean of ``calls`` in a row."""
    message = {"type": "http.request", "body": REQUEST, "more_body": False}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json"), (b"user-agent", b"bench")],
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 5000),
    }

    async def receive() -> Any:
        return message

    async def send(message: Any) -> None:
        return None

    start = time.perf_counter_ns()
    for _ in range(calls):
        await app(dict(scope), receive, send)
    return (time.perf_counter_ns() - start) / 1000 / calls


async def measure(app: App, pipeline: Pipeline, rounds: int) -> dict[str, float]:
    """Median microseconds that each arm adds to the bare one."""
    added: dict[str, list[float]] = {"tee": [], "span": [], "capture": []}
    contenders = list(arms(app, pipeline).items())
    order = random.Random(0)
    for turn in range(rounds + WARM_UP_ROUNDS):
        times = {}
        order.shuffle(contenders)
        for name, contender in contenders:
            await timed_calls(contender, 1)
            times[name] = await timed_calls(contender, CALLS_IN_A_ROW)
            otel_gym.flush(30)
        if turn >= WARM_UP_ROUNDS:
            for name, values in added.items():
                values.append(times[name] - times["bare"])
    return {name: statistics.median(values) for name, values in added.items()}


def figures(title: str, added: dict[str, float]) -> list[Figure]:
    goal = 4 * max(added["tee"], 0) + added["span"]
    return [
        Figure(f"{title}: bare tee, added", f"{added['tee']:.1f} us"),
        Figure(f"{title}: one SDK span of 25 attributes, added", f"{added['span']:.1f} us"),
        Figure(
            f"{title}: capture, added",
            f"{added['capture']:.1f} us",
            f"<= {goal:.1f} us (4 x tee + span)",
            added["capture"] <= goal,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        pipeline = otel_gym.configure(directory=directory, run_id="bench")
        gc.disable()
        plain = asyncio.run(measure(json_app(), pipeline, rounds))
        stream = asyncio.run(measure(sse_app(), pipeline, rounds))
        gc.enable()
        otel_gym.flush(30)
    return print_table(figures("JSON 8 kB in, 2 kB out", plain) + figures("SSE of 500 chunks", stream))


if __name__ == "__main__":
    sys.exit(main())
