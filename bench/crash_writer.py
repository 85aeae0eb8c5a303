"""A process that crash.py kills: agents whose prompts grow, with pictures in them, and small spans beside.

    python bench/crash_writer.py SEED

Says of each span, right after it ended, when that was and what it holds: one JSON line a span on standard output. The
store is chosen by the environment.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import sys
import time
from hashlib import sha256
from typing import Any

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY
from otel_gym.tracing.pipeline import active_pipeline

PATH = "/v1/chat/completions"
TOOL_RESULT = "gen_ai.tool.call.result"
CALL_ID = "crash.call_id"  # in the scope of a request
AGENTS = 2
# About what a tool or a person takes between two calls; four processes leave two cores some rest.
PAUSE_S = 0.02
WORDS = ["the", "agent", "ran", "3", "tests;", "é", "世界", '"quoted"', "\\", "back\n\t{'k':", "[1,", "null]}", "done"]


def picture(number: int) -> str:
    content = random.Random(number).randbytes(5_000)
    return f"data:image/png;base64,{base64.b64encode(b'png ' + content).decode()}"


def text(draw: random.Random, characters: int) -> str:
    return " ".join(draw.choices(WORDS, k=max(1, characters // 5)))


class Conversation:
    """Requests that grow by what was said, start anew now and then, and are spelled in more than one way."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._messages: list[Any] = []

    def next_request(self) -> bytes:
        draw = self._draw
        if not self._messages or draw.random() < 0.1:
            self._messages = [{"role": "system", "content": text(draw, 2_000)}]
        self._messages.append({"role": "user", "content": self._content()})
        body = {"model": "m", "messages": self._messages, "tools": [{"type": "function"}], "n": draw.random()}
        separators = (",", ":") if draw.random() < 0.5 else (", ", ": ")
        return json.dumps(body, ensure_ascii=draw.random() < 0.5, separators=separators).encode()

    def _content(self) -> Any:
        written = text(self._draw, self._draw.randrange(10, 3_000))
        if self._draw.random() < 0.7:
            return written
        shown = {"type": "image_url", "image_url": {"url": picture(self._draw.randrange(8))}}
        return [{"type": "text", "text": written}, shown]


async def run_agents(seed: int) -> None:
    await asyncio.gather(*(agent(random.Random(seed * AGENTS + number)) for number in range(AGENTS)))


async def agent(draw: random.Random) -> None:
    capture = ModelCallCapture(model, call_id=lambda scope: scope[CALL_ID])
    late: set[asyncio.Task[None]] = set()
    number = 0
    while True:
        number += 1
        # Some rollouts are written by several processes at once.
        rollout_id = f"shared-{number // 4}" if number % 4 == 0 else f"{os.getpid()}-{draw.randrange(10**9)}"
        async with otel_gym.rollout(rollout_id=rollout_id) as rollout:
            conversation = Conversation(draw)
            for _ in range(draw.randrange(1, 20)):
                await model_call(capture, rollout_id, conversation.next_request(), draw)
                tool_span(rollout_id, draw)
                await asyncio.sleep(draw.random() * 2 * PAUSE_S)
        assert rollout.span is not None
        note(format(rollout.span.get_span_context().span_id, "016x"), rollout_id, {})
        if draw.random() < 0.2:  # late, and once more grown: when the rollout may have been sealed
            late.add(asyncio.create_task(late_calls(capture, rollout_id, conversation, draw)))


async def late_calls(capture: ModelCallCapture, rollout_id: str, conversation: Conversation, draw: Any) -> None:
    for _ in range(3):
        await asyncio.sleep(draw.random())
        await model_call(capture, rollout_id, conversation.next_request(), draw)


async def model_call(capture: ModelCallCapture, rollout_id: str, request: bytes, draw: random.Random) -> None:
    call_id = draw.randbytes(16).hex()
    answer = json.dumps({"id": call_id, "choices": [], "said": text(draw, draw.randrange(10, 500))}).encode()

    async def receive() -> Any:
        return {"type": "http.request", "body": request, "more_body": False}

    async def send(message: Any) -> None:
        return None

    path = f"/ng-rollout/{rollout_id}{PATH}"
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "headers": []}
    await capture(
        scope | {"raw_path": path.encode(), "query_string": b"", CALL_ID: call_id, "answer": answer}, receive, send
    )
    note(call_id, rollout_id, {REQUEST_BODY: request, RESPONSE_BODY: answer})


async def model(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": scope["answer"], "more_body": False})


def tool_span(rollout_id: str, draw: random.Random) -> None:
    result = text(draw, draw.randrange(1, 5_000))
    pipeline = active_pipeline()
    assert pipeline is not None
    attributes = {"gen_ai.operation.name": "execute_tool", TOOL_RESULT: result}
    span = pipeline.tracer.start_span("execute_tool x", attributes=attributes)
    span.end()
    note(format(span.get_span_context().span_id, "016x"), rollout_id, {TOOL_RESULT: result.encode()})


def note(name: str, rollout_id: str, texts: dict[str, bytes]) -> None:
    """``name`` is the id of the model call, or of the span."""
    hashes = {attribute: sha256(content).hexdigest() for attribute, content in texts.items()}
    line = {"at": time.monotonic(), "id": name, "rollout_id": rollout_id, "texts": hashes}
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    otel_gym.configure(run_id="crash")
    asyncio.run(run_agents(int(sys.argv[1])))
