"""Runs in a scratch environment, without otel_gym: real clients under a foreign instrumentation, against a URL.

    python foreign_emitter.py INSTRUMENTATION MODEL_SERVER_URL OUT.jsonl

INSTRUMENTATION is a key of ``INSTRUMENTATIONS``; several, joined by ``+``, instrument the same clients. OUT gets one
line of OTLP/JSON. The conversations are those that the scripted model server knows.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

MODEL = "scripted-1"
PROPERTIES = {"city": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PROPERTIES}
WEATHER = "What the weather is."
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": WEATHER, "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "get_weather", "description": WEATHER, "parameters": SCHEMA}
MESSAGES_TOOL = {"name": "get_weather", "description": WEATHER, "input_schema": SCHEMA}
QUESTION = "Compare the weather of Oslo and Lima, and say in which of these two cities it is warmer today. "
SYSTEM = "You are a patient assistant who answers in one sentence. " * 4
# What fails is part of a sample: the spans say how.
EXPECTED_FAILURES = (Exception,)


def openllmetry_openai(provider: TracerProvider) -> None:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=provider)


def openllmetry_anthropic(provider: TracerProvider) -> None:
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor

    AnthropicInstrumentor().instrument(tracer_provider=provider)


def openinference_openai(provider: TracerProvider) -> None:
    from openinference.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=provider)


def openinference_anthropic(provider: TracerProvider) -> None:
    from openinference.instrumentation.anthropic import AnthropicInstrumentor

    AnthropicInstrumentor().instrument(tracer_provider=provider)


def genai_openai(provider: TracerProvider) -> None:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=provider)


def anthropic_native(provider: TracerProvider) -> None:
    """The client makes its spans by itself as soon as a provider is set."""
    trace.set_tracer_provider(provider)


def call_chat(url: str) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    tools: Any = [CHAT_TOOL]
    answer = client.chat.completions.create(model=MODEL, messages=asked, tools=tools, temperature=0.5, seed=7)
    message = answer.choices[0].message.model_dump(exclude_none=True)
    asked += [message, *_results(message["tool_calls"])]
    client.chat.completions.create(model=MODEL, messages=asked, tools=tools)
    for options in ({"stream_options": {"include_usage": True}}, {}):
        stream: Any = client.chat.completions.create(model=MODEL, messages=asked, tools=tools, stream=True, **options)
        for _ in stream:
            pass
    stream = client.chat.completions.create(
        model=MODEL, messages=asked[:2], tools=tools, stream=True, stream_options={"include_usage": True}
    )
    for _ in stream:
        pass
    with contextlib.suppress(*EXPECTED_FAILURES):  # 429
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Name a river"}])
    with contextlib.suppress(*EXPECTED_FAILURES):  # the server breaks the stream
        for _ in client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Write of a river"}], stream=True
        ):
            pass


def _results(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": "19 °C, clear"} for call in calls]


def call_responses(url: str) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    tools: Any = [RESPONSES_TOOL]
    answer = client.responses.create(model=MODEL, instructions=SYSTEM, input=asked, tools=tools)
    asked += [item.model_dump(exclude_none=True) for item in answer.output]
    asked += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "19 °C, clear"}
        for item in answer.output
        if item.type == "function_call"
    ]
    client.responses.create(model=MODEL, instructions=SYSTEM, input=asked, tools=tools)
    stream: Any = client.responses.create(model=MODEL, instructions=SYSTEM, input=asked, tools=tools, stream=True)
    for _ in stream:
        pass


def call_messages(url: str) -> None:
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="none", max_retries=0)
    said: dict[str, Any] = {"model": MODEL, "max_tokens": 500, "system": SYSTEM, "tools": [MESSAGES_TOOL]}
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    answer = client.messages.create(messages=asked, **said)
    content = [block.model_dump(exclude_none=True) for block in answer.content]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "19 °C, clear"}
        for block in content
        if block["type"] == "tool_use"
    ]
    asked += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    client.messages.create(messages=asked, **said)
    for _ in client.messages.create(messages=asked, stream=True, **said):
        pass
    with client.messages.stream(messages=asked[:1], **said) as stream:
        for _ in stream:
            pass
    with contextlib.suppress(*EXPECTED_FAILURES):  # 429
        client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "Name a river"}])


def call_openai(url: str) -> None:
    call_chat(url)
    call_responses(url)


INSTRUMENTATIONS: dict[str, tuple[Callable[[TracerProvider], None], Callable[[str], None]]] = {
    "openllmetry-openai": (openllmetry_openai, call_openai),
    "openllmetry-openai-chat": (openllmetry_openai, call_chat),
    "openllmetry-anthropic": (openllmetry_anthropic, call_messages),
    "openinference-openai": (openinference_openai, call_openai),
    "openinference-anthropic": (openinference_anthropic, call_messages),
    "genai-openai": (genai_openai, call_openai),
    "anthropic-native": (anthropic_native, call_messages),
}


def otlp_json(spans: list[ReadableSpan]) -> str:
    document = MessageToDict(encode_spans(spans))
    for span in _spans_of(document):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64decode(span[name]).hex()
        kind, status = span.get("kind"), span.get("status", {})
        span["kind"] = KINDS.index(kind) if kind in KINDS else 0
        if "code" in status:
            status["code"] = CODES.index(status["code"])
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


KINDS = [f"SPAN_KIND_{name}" for name in ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")]
CODES = [f"STATUS_CODE_{name}" for name in ("UNSET", "OK", "ERROR")]


def _spans_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def main(names: str, url: str, out: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "agent", "gym.rollout.id": "0-0"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    chosen = [INSTRUMENTATIONS[name] for name in names.split("+")]
    for instrument, _ in chosen:
        instrument(provider)
    chosen[0][1](url)
    out.write_text(otlp_json(list(exporter.get_finished_spans())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
