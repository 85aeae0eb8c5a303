"""A program that is traced: rollouts of two steps, each a captured model call and a tool.

    python bench/otlp_rollouts.py COUNT [--first N] [--prompt-bytes N] [--pause SECONDS]

Where its spans go is chosen by the environment alone. Its last line is the time at which its work was done (UTC epoch
seconds): what passes from then on is the end of its process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

import httpx

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture

SPANS = 10  # of one rollout: itself, the agent, and of two steps each the step, the request, the model call, the tool
AGENT = "otlp-rollouts"
MODEL = "scripted"


async def model_server(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    message = {"role": "assistant", "content": "It is 12 °C – “fair” 世界."}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19},
    }
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def run_rollout(client: httpx.AsyncClient, task: int, prompt: str) -> None:
    with otel_gym.rollout(task, 0) as rollout, otel_gym.invoke_agent(AGENT):
        for step in (1, 2):
            with otel_gym.agent_step(step):
                question = {"model": MODEL, "messages": [{"role": "user", "content": f"{task} {step} {prompt}"}]}
                path = f"/ng-rollout/{rollout.rollout_id}/v1/chat/completions"
                (await client.post(path, json=question)).raise_for_status()
                with otel_gym.execute_tool("get_weather", f"call_{step}", {"city": "Oslo"}) as tool:
                    tool.record_result("12 °C")
        rollout.record_reward(float(task % 2))


async def run(count: int, first: int, prompt: str, pause_s: float) -> None:
    transport = httpx.ASGITransport(ModelCallCapture(model_server))
    async with httpx.AsyncClient(transport=transport, base_url="http://model") as client:
        for task in range(first, first + count):
            await run_rollout(client, task, prompt)
            await asyncio.sleep(pause_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first task")
    parser.add_argument("--prompt-bytes", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.0, help="after each rollout, in seconds")
    options = parser.parse_args()
    prompt = ("all work and no play " * (options.prompt_bytes // 21 + 1))[: options.prompt_bytes]
    asyncio.run(run(options.count, options.first, prompt, options.pause))
    print(time.time(), flush=True)


if __name__ == "__main__":
    main()
