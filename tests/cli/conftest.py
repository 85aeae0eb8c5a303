"""A store as two launches leave it: retries, a superseded attempt, a call without a rollout, a failed rollout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.cli.main import app

CHAT = "/v1/chat/completions"
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}

Invoke = Callable[..., Result]


def chat_answer(tokens_in: int, cached: int, tool_calls: list[Any] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": None if tool_calls else "done", "tool_calls": tool_calls}
    usage = {"prompt_tokens": tokens_in, "completion_tokens": 10, "total_tokens": tokens_in + 10}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if tool_calls else "stop"}],
        "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}},
    }


async def _model_server(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what the request itself asks for."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    wanted = json.loads(body)["metadata"]
    status = int(dict(scope["headers"])[b"x-wanted-status"])
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(wanted).encode()})


async def ask(answer: dict[str, Any], status: int = 200, rollout_id: str | None = None, retry: int = 0) -> None:
    prefix = f"/ng-rollout/{rollout_id}" if rollout_id else ""
    transport = httpx.ASGITransport(ModelCallCapture(_model_server))
    async with httpx.AsyncClient(transport=transport, base_url="http://model") as client:
        question = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        question["metadata"] = answer
        headers = {"x-stainless-retry-count": str(retry), "x-wanted-status": str(status)}
        await client.post(prefix + CHAT, json=question, headers=headers)


class RewardError(Exception):
    pass


def _first_launch() -> None:
    with otel_gym.rollout(1, 0) as current:
        asyncio.run(ask(chat_answer(100, 0, [TOOL_CALL]), rollout_id="1-0"))
        asyncio.run(ask(chat_answer(200, 100), rollout_id="1-0"))
        current.record_reward(1.0)
    with suppress(RewardError), otel_gym.rollout(2, 0):
        asyncio.run(ask({"error": {"type": "rate_limit_error", "message": "slow"}}, 429, "2-0"))
        raise RewardError("no reward")
    with otel_gym.rollout(2, 0, 1) as current:
        asyncio.run(ask(chat_answer(300, 0), rollout_id="2-0-a1"))
        current.record_reward(0.0)
    asyncio.run(ask(chat_answer(7, 0)))


def _second_launch() -> None:
    with otel_gym.rollout(1, 0):
        asyncio.run(ask(chat_answer(50, 0), rollout_id="1-0"))


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("example") / "store"
    for run_id, launch in (("run-1", _first_launch), ("run-2", _second_launch)):
        otel_gym.configure(directory=directory, run_id=run_id, capture_unassigned=True)
        launch()
        assert otel_gym.flush(10)
    return directory


@pytest.fixture
def invoke() -> Invoke:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run
