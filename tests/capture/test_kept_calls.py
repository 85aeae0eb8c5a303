"""Calls, spans and secrets that went the wrong way: lost at a shutdown, filed under another rollout, left on disk."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import open_store
from otel_gym.views.model_calls import model_call_records

from .asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request

PREFIXED = f"/ng-rollout/3-1{CHAT_PATH}"


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def shut_down(app: Any) -> None:
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        return None

    await app({"type": "lifespan"}, receive, send)


async def lifespan_and_json(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "lifespan":
        return await json_app(ANSWER)(scope, receive, send)
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def test_calls_that_waited_for_the_recorder_were_lost_when_their_server_shut_down(live_store):
    app = ModelCallCapture(lifespan_and_json)

    async def both() -> None:
        for _ in range(20):
            await send_request(app, PREFIXED, REQUEST)
        await shut_down(app)

    run(both())
    assert len(live_store.records("3-1")) == 20


def test_a_rollout_lost_its_reward_because_a_server_within_it_shut_down(live_store):
    with otel_gym.rollout(3, 1) as rollout:
        run(shut_down(ModelCallCapture(lifespan_and_json)))
        rollout.record_reward(1.0)
    [span] = live_store.spans("3-1")
    assert (span.attributes["gym.reward"], span.status) == (1.0, 0)


AT_SIGTERM = """
import asyncio, os, signal, otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from tests.capture.asgi import ANSWER, REQUEST, json_app, send_request
otel_gym.configure(handle_sigterm=True)
async def calls():
    app = ModelCallCapture(json_app(ANSWER))
    for _ in range(20):
        await send_request(app, "/ng-rollout/3-1/v1/chat/completions", REQUEST)
asyncio.run(calls())
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_calls_that_waited_for_the_recorder_were_lost_at_sigterm(tmp_path):
    environ = {**os.environ, "OTEL_GYM_DIR": str(tmp_path / "store"), "PYTHONPATH": os.pathsep.join(["", *sys.path])}
    subprocess.run([sys.executable, "-c", AT_SIGTERM], env=environ, check=False)
    [rollout] = open_store(tmp_path / "store").rollouts()
    records = model_call_records(rollout)
    assert [record.response for record in records] == [ANSWER] * 20


def in_leftover_context(first: Any, second: Any) -> None:
    """The second request starts in the context that the first one left, as on a keep-alive connection."""
    left: list[contextvars.Context] = []

    async def both() -> None:
        async def send_and_keep(scope: Any, receive: Any, send: Any) -> None:
            left.append(contextvars.copy_context())
            await json_app(ANSWER)(scope, receive, send)

        await first(send_and_keep)
        await asyncio.get_running_loop().create_task(second(), context=left[0])

    run(both())


def test_a_request_without_a_rollout_was_filed_under_that_of_the_request_before_it(live_store):
    async def work(scope: Any, receive: Any, send: Any) -> None:
        attributes = {"gen_ai.operation.name": "execute_tool"}
        with trace.get_tracer("t").start_as_current_span("execute_tool of nobody", attributes=attributes):
            await json_app(ANSWER)(scope, receive, send)

    in_leftover_context(
        lambda app: send_request(ModelCallCapture(app), PREFIXED, REQUEST),
        lambda: send_request(ModelCallCapture(work), "/tool", REQUEST),
    )
    assert [span.name for span in live_store.spans("unassigned")] == ["execute_tool of nobody"]
    assert "execute_tool of nobody" not in [span.name for span in live_store.spans("3-1")]


def test_a_server_span_of_another_instrumentation_was_filed_under_the_request_before_it(live_store):
    async def instrumented() -> None:
        tracer = trace.get_tracer("fastapi")
        with tracer.start_as_current_span("POST", kind=SpanKind.SERVER):
            await send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/4-0{CHAT_PATH}", REQUEST)

    in_leftover_context(lambda app: send_request(ModelCallCapture(app), PREFIXED, REQUEST), instrumented)
    assert sorted(span.name for span in live_store.spans("4-0")) == [f"POST {CHAT_PATH}", "chat toy"]
    assert sorted(span.name for span in live_store.spans("3-1")) == [f"POST {CHAT_PATH}", "chat toy"]


def test_a_call_that_a_request_made_in_the_background_lost_its_rollout(live_store):
    model = ModelCallCapture(json_app(ANSWER))

    async def verify(scope: Any, receive: Any, send: Any) -> None:
        await json_app({})(scope, receive, send)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(model), base_url="http://model") as client:
            await client.post(CHAT_PATH, json=REQUEST)

    run(send_request(ModelCallCapture(verify), "/ng-rollout/3-1/verify"))
    assert len(live_store.records("3-1")) == 1


def test_the_second_of_two_baggage_headers_was_not_read(live_store):
    async def two_lines(scope: Any, receive: Any, send: Any) -> None:
        scope["headers"] += [(b"baggage", b"userId=alice"), (b"baggage", b"gym.rollout.id=3-1")]
        await ModelCallCapture(json_app(ANSWER))(scope, receive, send)

    run(send_request(two_lines, CHAT_PATH, REQUEST))
    assert len(live_store.records("3-1")) == 1


def test_a_key_in_a_url_that_an_exception_names_was_written(live_store):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("Client error '401' for url 'https://model.example/v1/x?key=PLAINSECRET&a=b', see docs")

    with pytest.raises(RuntimeError):
        run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))
    text = live_store.text()
    assert "PLAINSECRET" not in text
    assert "https://model.example/v1/x" in text


def test_without_content_an_error_still_told_what_was_asked(live_store, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_CONTENT", "none")
    otel_gym.configure(directory=live_store.directory)
    answer = {"error": {"type": "invalid_request_error", "message": "cannot answer: What is 2+2?"}}
    run(send_request(ModelCallCapture(json_app(answer, 400)), PREFIXED, REQUEST))
    text = live_store.text()
    assert "What is 2+2" not in text
    assert "invalid_request_error" in text


def test_what_an_app_said_in_a_state_of_its_own_was_not_read(live_store):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        said = {"response_source": "local", "local_response_reason": "context_length_exceeded"}
        scope["state"] = {"nemo_gym_model_execution": said}
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))
    [record] = live_store.records("3-1")
    assert (record.response_source, record.local_response_reason) == ("local", "context_length_exceeded")


class Broken:
    response_source = "local"

    @property
    def upstream_attempted(self) -> bool:
        raise ValueError("not known yet")


def test_a_fact_that_cannot_be_asked_for_cost_the_whole_call(live_store):
    state = {"nemo_gym_model_execution": Broken()}
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST, state=state))
    [record] = live_store.records("3-1")
    assert (record.response_source, record.upstream_attempted) == ("local", None)


def test_configure_said_nothing_where_the_sdk_is_disabled(tmp_path):
    program = "import otel_gym; otel_gym.configure(); print(otel_gym.rollout(1, 0).base_url('http://h'))"
    environ = {**os.environ, "OTEL_SDK_DISABLED": "true", "OTEL_GYM_DIR": str(tmp_path / "store")}
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "http://h"
    assert "OTEL_SDK_DISABLED=true" in ended.stderr
