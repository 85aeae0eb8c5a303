"""Rollouts that never touched Dynamo, captured from a server that answers with token ids, as vLLM does."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture

BLOCK_SIZE = 16
ROLLOUTS = 3
_SYSTEM = list(range(1000, 1040))
_TOOL_S = 0.01


def write_rollouts(store: Path) -> None:
    """Each a planner of two steps, which share their prompts' beginning, and a subagent between them."""
    otel_gym.configure(directory=store, run_id="token-ids")
    for number in range(ROLLOUTS):
        with otel_gym.rollout(number, 0) as rollout, otel_gym.invoke_agent("planner"):
            own = [*_SYSTEM, number]
            with otel_gym.agent_step():
                _ask(rollout.rollout_id, own)
                with otel_gym.execute_tool("ask", call_id=f"call-{number}"), otel_gym.invoke_agent("helper"):
                    _ask(rollout.rollout_id, [*range(2000, 2021), number])
                    time.sleep(_TOOL_S)
            with otel_gym.agent_step():
                _ask(rollout.rollout_id, [*own, *range(3000, 3030)])
    if not otel_gym.flush(10):
        raise SystemExit(f"the rollouts were not written to {store}")


def _ask(rollout_id: str, prompt: list[int]) -> None:
    asyncio.run(_call(rollout_id, prompt))


async def _call(rollout_id: str, prompt: list[int]) -> None:
    transport = httpx.ASGITransport(ModelCallCapture(_answer))
    async with httpx.AsyncClient(transport=transport, base_url="http://model") as client:
        request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "metadata": {"prompt": prompt}}
        (await client.post(f"/ng-rollout/{rollout_id}/v1/chat/completions", json=request)).raise_for_status()


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    prompt, made = json.loads(body)["metadata"]["prompt"], [7, 8, 9]
    message = {"role": "assistant", "content": "done"}
    answer = {
        "id": f"chatcmpl-{len(prompt)}-{prompt[-1]}",
        "object": "chat.completion",
        "model": "m",
        "prompt_token_ids": prompt,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "token_ids": made}],
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(made),
            "total_tokens": len(prompt) + len(made),
        },
    }
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
