"""The running example: two turns, four steps; get_weather(Paris), an answer, get_weather(Berlin), an answer.

Runs an agent through the API, its model calls through capture, so that a store holds what a real run would leave.
"""

from __future__ import annotations

import asyncio
from typing import Any

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture

from .capture.asgi import json_app, send_request

ROLLOUT_ID = "7-0"
MODEL = "gpt-weather"
SUMMARY = "The user asked for Paris: 21 C."
Item = dict[str, Any]


def call(number: int, city: str) -> Item:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "get_weather",
        "arguments": f'{{"city":"{city}"}}',
        "status": "completed",
    }


def said(number: int, text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def output(number: int, text: str) -> Item:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}


# What the model makes in each step: its items, tokens in, of these cached, tokens out.
ANSWERS: tuple[tuple[list[Item], int, int, int], ...] = (
    ([call(1, "Paris")], 40, 0, 12),
    ([said(2, "It is 21 C in Paris.")], 60, 32, 9),
    ([call(3, "Berlin")], 80, 64, 12),
    ([said(4, "Berlin cannot be reached.")], 100, 64, 8),
)


class Weather:
    """Tool results by city; Berlin's fails."""

    @staticmethod
    async def get_weather(city: str) -> str:
        await asyncio.sleep(0.01)
        if city == "Berlin":
            raise ConnectionError("the weather service of Berlin does not answer")
        return "21 C"


async def ask_model(step: int, items: list[Item], rollout: otel_gym.Rollout) -> list[Item]:
    """The model's answer in this step, asked for through the capture of a model server."""
    made, tokens_in, cached, tokens_out = ANSWERS[step - 1]
    answer = {
        "id": f"resp_{step}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": made,
        "usage": {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens_in + tokens_out,
        },
    }
    server = ModelCallCapture(json_app(answer, headers={"x-request-id": f"req_{step}"}))
    path = f"/ng-rollout/{rollout.rollout_id}/v1/responses"
    await send_request(server, path, {"model": MODEL, "input": items}, rollout.headers)
    return made


async def turn(rollout: otel_gym.Rollout, number: int, question: str, history: list[Item]) -> None:
    """A call of the tool, and an answer."""
    first_step = 2 * number - 1
    with otel_gym.invoke_agent("weather", user_message=question, conversation_id="session-1"):
        history.append(user(question))
        with otel_gym.agent_step():
            history += (made := await ask_model(first_step, list(history), rollout))
            city = "Paris" if number == 1 else "Berlin"
            try:
                with otel_gym.execute_tool("get_weather", made[0]["call_id"], made[0]["arguments"]) as tool:
                    result = await Weather.get_weather(city)
                    tool.record_result(result, extra={"station": city})
            except ConnectionError as error:
                result = str(error)
            history.append(output(first_step, result))
        with otel_gym.agent_step():
            history += await ask_model(first_step + 1, list(history), rollout)


async def run_weather(*, compacted: bool = False) -> None:
    """``compacted``: between the turns the context becomes ``SUMMARY``."""
    async with otel_gym.rollout(rollout_id=ROLLOUT_ID) as rollout:
        history: list[Item] = []
        await turn(rollout, 1, "How warm is it in Paris?", history)
        if compacted:
            otel_gym.context_compacted(SUMMARY, trigger="auto", tokens_before=69, tokens_after=12)
            history[:] = [user(SUMMARY)]
        await turn(rollout, 2, "And in Berlin?", history)
        rollout.record_reward(0.5)
