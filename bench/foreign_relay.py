"""Runs in a scratch environment with nemo-relay alone: an agent under NeMo Relay, against the scripted model server.

    python foreign_relay.py full|gen_ai|openinference MODEL_SERVER_URL OUT.jsonl

OUT is what Relay's own file sink writes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import nemo_relay
from nemo_relay import OpenTelemetryFileSinkConfig, OpenTelemetrySubscriber, ScopeType, ToolExecutionResult

QUESTION = "Compare the weather of Oslo and Lima, and say in which of these two cities it is warmer today. "
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}


def post(url: str, content: dict[str, Any]) -> Any:
    body = json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


async def answer_of(url: str, messages: list[Any]) -> Any:
    codec = nemo_relay.codecs.OpenAIChatCodec()
    content = {"model": "scripted-1", "messages": messages, "tools": [TOOL]}
    request = nemo_relay.LLMRequest({}, content)

    async def ask(asked: Any) -> Any:
        return post(f"{url}/v1/chat/completions", asked.content)

    return await nemo_relay.llm.execute(
        "openai", request, ask, model_name="scripted-1", codec=codec, response_codec=codec
    )


async def run(url: str) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    with nemo_relay.scope.scope("weather-agent", ScopeType.Agent, input={"question": QUESTION}):
        while True:
            answer = await answer_of(url, messages)
            message = answer["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                result = await nemo_relay.tools.execute(
                    name, arguments, lambda _: ToolExecutionResult("19 °C, clear"), tool_call_id=call["id"]
                )
                said = getattr(result, "value", None) or getattr(result, "result", None) or "19 °C, clear"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(said)})


def main(kind: Any, url: str, out: Path) -> None:
    config = OpenTelemetryFileSinkConfig(kind, str(out.parent), out.name)
    config.service_name = "agent"
    config.set_resource_attribute("gym.rollout.id", "0-0")
    subscriber = OpenTelemetrySubscriber(config)
    subscriber.register("file")
    asyncio.run(run(url))
    subscriber.force_flush()
    subscriber.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
