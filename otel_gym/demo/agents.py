"""Small agents on the real clients: each asks the model, runs the tools that it wants, and ends with an answer.

Sync, async, plain and streaming between them, as programs in the wild are. Clients read no proxy variables: the demo
never leaves the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

from otel_gym.demo.script import MISSING_MODEL, MODEL

API_KEY = "demo-key"
TIMEOUT_S = 20.0
MAX_TURNS = 10
INSTRUCTIONS = (
    "You are a careful assistant. Look facts up with the tools you are given, several at once where they do not depend "
    "on each other, and answer in one sentence. Never guess a price or a temperature. "
)

_WEATHER = {"Oslo": "4 °C, rain from the west, wind 6 m/s", "Lima": "19 °C, overcast, wind 3 m/s"}
_PRICES = {"flight": 310, "hotel": 240, "museum": 18}

PARAMETERS = {
    "get_weather": ("The weather of a city now.", "city"),
    "get_price": ("The price of a thing in euros, with its terms.", "item"),
}


class NoAnswerError(Exception):
    """The model kept asking for tools."""


def run_tool(name: str, arguments: Mapping[str, Any]) -> str:
    if name == "get_weather":
        return _WEATHER.get(arguments["city"], "unknown city")
    price = _PRICES.get(arguments["item"])
    return f"{arguments['item']}: {price} euros. " + "Terms: free to cancel until the day before; taxes included. " * 6


def _schema(parameter: str) -> dict[str, Any]:
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an agent finds its model: a rollout's base URL, and the headers that name its run and span."""

    base_url: str
    headers: Mapping[str, str]


def openai_client(model: Endpoint, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(**_options(model), http_client=openai.DefaultHttpxClient(trust_env=False), **options)


def async_openai_client(model: Endpoint) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(**_options(model), http_client=openai.DefaultAsyncHttpxClient(trust_env=False))


def anthropic_client(model: Endpoint) -> anthropic.Anthropic:
    return anthropic.Anthropic(**_options(model), http_client=anthropic.DefaultHttpxClient(trust_env=False))


def async_anthropic_client(model: Endpoint) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**_options(model), http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False))


def _options(model: Endpoint) -> dict[str, Any]:
    return {
        "base_url": model.base_url,
        "default_headers": model.headers,
        "api_key": API_KEY,
        "timeout": TIMEOUT_S,
    }


# --- Chat Completions, sync


def chat_agent(model: Endpoint, task: str, *, stream: bool) -> str:
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": task}]
    with openai_client(model) as client:
        for _ in range(MAX_TURNS):
            message = (_streamed_chat if stream else _plain_chat)(client, messages)
            messages.append(message.to_dict())
            if not message.tool_calls:
                return message.content or ""
            for call in message.tool_calls:
                result = run_tool(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise NoAnswerError(task)


CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": description, "parameters": _schema(parameter)}}
    for name, (description, parameter) in PARAMETERS.items()
]


def _plain_chat(client: openai.OpenAI, messages: list[Any]) -> Any:
    completion = client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS)
    return completion.choices[0].message


def _streamed_chat(client: openai.OpenAI, messages: list[Any]) -> Any:
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(
        model=MODEL, messages=messages, tools=CHAT_TOOLS, stream_options=options
    ) as stream:
        return stream.get_final_completion().choices[0].message


# --- Responses, async


async def responses_agent(model: Endpoint, task: str, *, stream: bool) -> str:
    items: list[Any] = [{"role": "user", "content": task}]
    async with async_openai_client(model) as client:
        for _ in range(MAX_TURNS):
            response = await (_streamed_response if stream else _plain_response)(client, items)
            items += [item.to_dict() for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return str(response.output_text)
            for call in calls:
                result = run_tool(call.name, json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    raise NoAnswerError(task)


RESPONSES_TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": _schema(parameter),
        "strict": False,
    }
    for name, (description, parameter) in PARAMETERS.items()
]


async def _plain_response(client: openai.AsyncOpenAI, items: list[Any]) -> Any:
    return await client.responses.create(
        model=MODEL, instructions=INSTRUCTIONS, input=items, tools=RESPONSES_TOOLS, reasoning={"effort": "low"}
    )


async def _streamed_response(client: openai.AsyncOpenAI, items: list[Any]) -> Any:
    async with client.responses.stream(
        model=MODEL, instructions=INSTRUCTIONS, input=items, tools=RESPONSES_TOOLS, reasoning={"effort": "low"}
    ) as stream:
        return await stream.get_final_response()


# --- Anthropic Messages, sync and plain, async and streaming

MESSAGES_TOOLS: Any = [
    {"name": name, "description": description, "input_schema": _schema(parameter)}
    for name, (description, parameter) in PARAMETERS.items()
]
MESSAGES_OPTIONS: Any = {
    "model": MODEL,
    "max_tokens": 1024,
    "system": INSTRUCTIONS,
    "tools": MESSAGES_TOOLS,
}


def messages_agent(model: Endpoint, task: str) -> str:
    messages: list[Any] = [{"role": "user", "content": task}]
    with anthropic_client(model) as client:
        for _ in range(MAX_TURNS):
            message = client.messages.create(messages=messages, **MESSAGES_OPTIONS)
            if not _add_turn(messages, message):
                return _answer(message)
    raise NoAnswerError(task)


async def streaming_messages_agent(model: Endpoint, task: str) -> str:
    messages: list[Any] = [{"role": "user", "content": task}]
    async with async_anthropic_client(model) as client:
        for _ in range(MAX_TURNS):
            async with client.messages.stream(messages=messages, **MESSAGES_OPTIONS) as stream:
                message = await stream.get_final_message()
            if not _add_turn(messages, message):
                return _answer(message)
    raise NoAnswerError(task)


def _add_turn(messages: list[Any], message: Any) -> bool:
    """Adds the model's turn and the results of its tools; False where it asked for none."""
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": run_tool(block.name, block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    if results:
        messages.append({"role": "user", "content": results})
    return bool(results)


def _answer(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


# --- What goes wrong


def falling_back_agent(model: Endpoint, task: str) -> str:
    """Asks a model that does not exist (404), then one that does, whose first answer is 429: the client tries again."""
    messages: Any = [{"role": "user", "content": task}]
    with openai_client(model, max_retries=2) as client:
        try:
            completion = client.chat.completions.create(model=MISSING_MODEL, messages=messages)
        except openai.NotFoundError:
            completion = client.chat.completions.create(model=MODEL, messages=messages)
    return completion.choices[0].message.content or ""


def poet_agent(model: Endpoint, task: str) -> str:
    """Streams, and fails where the stream breaks off."""
    messages: Any = [{"role": "user", "content": task}]
    with openai_client(model) as client:
        chunks = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
