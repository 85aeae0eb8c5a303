"""The middleware under a real uvicorn, with the real clients."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from otel_gym.capture.middleware import instrument_app
from otel_gym.store.span import KIND_SERVER

from .asgi import ANSWER, CHAT_PATH

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "toy",
    "content": [{"type": "text", "text": "4"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 3, "cache_read_input_tokens": 5},
}


def model_server() -> FastAPI:
    app = FastAPI()

    @app.post(CHAT_PATH)
    async def complete(request: Request):
        body = await request.json()
        if not body.get("stream"):
            return ANSWER

        async def chunks():
            head = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"toy","choices":[{"index":0,'
            for word in ("To", "kyo 東", "京"):
                yield f'data: {head}"delta":{{"content":"{word}"}},"finish_reason":null}}]}}\n\n'
            yield f'data: {head}"delta":{{}},"finish_reason":"stop"}}]}}\n\n'
            yield "data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    @app.post("/v1/messages")
    async def message(request: Request):
        await request.json()
        return MESSAGE

    return app


@pytest.fixture
def server_url(live_store) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(instrument_app(model_server()), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


def openai_client(url: str, rollout_id: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/ng-rollout/{rollout_id}/v1", api_key="sk-SECRET", max_retries=0)


MESSAGES = [{"role": "user", "content": "hi"}]


def test_the_openai_client_plain_and_streaming(live_store, server_url):
    client = openai_client(server_url, "1-0")
    assert client.chat.completions.create(model="toy", messages=MESSAGES).choices[0].message.content == "4"
    stream = client.chat.completions.create(model="toy", messages=MESSAGES, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Tokyo 東京"

    plain, streamed = live_store.awaited_records("1-0", 2)
    assert (plain.tokens_in, plain.tokens_out, plain.error_category) == (11, 3, None)
    assert streamed.response["choices"][0]["message"]["content"] == "Tokyo 東京"
    assert streamed.error_category is None
    assert "SECRET" not in live_store.text()


def test_the_async_openai_client_leaving_early(live_store, server_url):
    async def agent() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server_url}/ng-rollout/1-0/v1", api_key="x") as client:
            stream = await client.chat.completions.create(model="toy", messages=MESSAGES, stream=True)
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(agent())
    (record,) = live_store.awaited_records("1-0")
    assert record.request["stream"] is True


def test_the_anthropic_client(live_store, server_url):
    client = anthropic.Anthropic(base_url=f"{server_url}/ng-rollout/1-0", api_key="SECRET")
    client.messages.create(model="toy", max_tokens=5, messages=MESSAGES)

    (record,) = live_store.awaited_records("1-0")
    assert (record.dialect, record.tokens_in, record.cached_tokens, record.tokens_out) == ("messages", 16, 5, 3)
    assert "SECRET" not in live_store.text()


def test_large_bodies_on_one_connection_do_not_chain_their_traces(live_store, server_url):
    """uvicorn runs the next request in the context of one whose body filled its buffer."""
    large = {"model": "toy", "messages": [{"role": "user", "content": "x" * 300_000}]}
    with httpx.Client(base_url=server_url) as client:
        for number in range(4):
            client.post(f"/ng-rollout/{number}-0{CHAT_PATH}", json=large).raise_for_status()

    traces = set()
    for number in range(4):
        live_store.awaited_records(f"{number}-0")
        spans = live_store.spans(f"{number}-0")
        assert [span.kind for span in spans if span.parent_span_id is None] == [KIND_SERVER]
        assert len({span.trace_id for span in spans}) == 1
        traces.add(spans[0].trace_id)
    assert len(traces) == 4


def test_concurrent_calls_keep_their_rollouts_apart(live_store, server_url):
    async def main() -> None:
        async with httpx.AsyncClient(base_url=server_url) as client:
            urls = [f"/ng-rollout/{number}-0{CHAT_PATH}" for number in range(20)]
            await asyncio.gather(
                *(client.post(url, json={"model": "toy", "messages": [], "user": url}) for url in urls)
            )

    asyncio.run(main())
    for number in range(20):
        (record,) = live_store.awaited_records(f"{number}-0")
        assert record.request["user"] == f"/ng-rollout/{number}-0{CHAT_PATH}"
