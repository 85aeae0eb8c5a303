"""A traced program for the tests: a planner asks a model that tells its token ids, and a tool spawns a searcher.

python -m tests.dynamo.program ROLLOUTS [PAUSE_S]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any

import httpx

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture

PROMPT = list(range(40))


async def model_server(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    call = {"id": "call_s", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        "finish_reason": "tool_calls",
        "token_ids": [7, 8],
    }
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "prompt_token_ids": PROMPT,
        "choices": [choice],
        "usage": {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}},
    }
    refused = b"refused" in scope["path"].encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 400 if refused else 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def ask(rollout_id: str, path: str = "/v1/chat/completions") -> None:
    transport = httpx.ASGITransport(ModelCallCapture(model_server))
    async with httpx.AsyncClient(transport=transport, base_url="http://model") as client:
        question = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        await client.post(f"/ng-rollout/{rollout_id}{path}", json=question)


def run(number: int) -> None:
    with otel_gym.rollout(number, 0), otel_gym.invoke_agent("planner"):
        asyncio.run(ask(f"{number}-0"))
        with otel_gym.execute_tool("search", "call_s"), otel_gym.invoke_agent("searcher"):
            asyncio.run(ask(f"{number}-0"))
        with suppress(ValueError), otel_gym.execute_tool("fetch", "call_f"):
            raise ValueError("no such page")


if __name__ == "__main__":
    for rollout in range(int(sys.argv[1])):
        run(rollout)
        print(rollout, flush=True)
        time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
