"""Applications and middlewares around the capture that do what is allowed and seldom done."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import threading

import pytest
from starlette.middleware.gzip import GZipMiddleware

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store

from .asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request

PREFIXED = f"/ng-rollout/3-1{CHAT_PATH}"
KEY = "sk-abcdefghij1234567890"


def chat_span(directory):
    assert otel_gym.flush(10)
    return next(span for span in Store(directory).spans("3-1") if span.name.startswith("chat"))


def test_a_request_that_fills_the_queue_leaves_head_length_and_hash_of_its_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_QUEUE_BYTES", str(3 * 1024 * 1024))
    otel_gym.configure(directory=tmp_path, run_id="r")
    chunk = b'data: {"x": "' + b"y" * 50_000 + b'"}\n\n'

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(100):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    parts = [b'{"model": "m"', *[b" " * 1024 * 1024] * 5, b"}"]
    incoming = [{"type": "http.request", "body": part, "more_body": part != b"}"} for part in parts]
    asyncio.run(send_request(ModelCallCapture(app), PREFIXED, incoming=incoming))

    attributes = chat_span(tmp_path).attributes
    whole = chunk * 100
    assert attributes["gym.response.body.bytes"] == len(whole)
    assert attributes["gym.response.body.sha256"] == hashlib.sha256(whole).hexdigest()
    assert attributes["gym.response.body"].encode() == whole[: 64 * 1024]


def test_a_request_that_is_read_after_the_durable_answer_takes_no_room_for_good(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_DURABILITY", "sync")
    pipeline = otel_gym.configure(directory=tmp_path, run_id="r")

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})
        while (await receive()).get("more_body"):
            pass

    incoming = [{"type": "http.request", "body": b"x" * 1_100_000, "more_body": number < 9} for number in range(10)]
    asyncio.run(send_request(ModelCallCapture(app), PREFIXED, incoming=incoming))
    assert otel_gym.flush(10)
    assert pipeline.recorder.pending_bytes == 0


def test_a_client_loop_that_closes_before_the_disk_answers_stops_no_later_span(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_DURABILITY", "sync")
    otel_gym.configure(directory=tmp_path, run_id="r")
    disk_answers = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _descriptor: disk_answers.wait(10))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST), 0.05))
    disk_answers.set()
    assert otel_gym.flush(10)
    with otel_gym.rollout(9, 9):
        pass
    assert otel_gym.flush(10)
    assert len(list(Store(tmp_path).rollouts())) == 2


def test_an_answer_that_is_compressed_outside_of_the_capture_is_stored_as_text(live_store):
    app = GZipMiddleware(ModelCallCapture(json_app(ANSWER)), minimum_size=1)
    asyncio.run(send_request(app, PREFIXED, REQUEST, {"accept-encoding": "gzip"}))
    assert json.loads(chat_span(live_store.directory).attributes["gym.response.body"]) == ANSWER


@pytest.mark.parametrize("coding", ["gzip", "deflate", "aws-chunked"])
def test_a_secret_in_a_body_that_only_says_it_is_compressed_is_not_stored(live_store, coding):
    request = {"model": "m", "messages": [], "api_key": KEY}
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, request, {"content-encoding": coding}))
    attributes = chat_span(live_store.directory).attributes
    body = base64.b64decode(attributes["gym.request.body"])
    assert attributes["gym.request.body.encoding"] == f"{coding}+base64"
    assert json.loads(body) == {**request, "api_key": "[redacted]"}


def test_a_scope_whose_headers_are_changed_below_is_recorded_as_it_came(live_store):
    async def app(scope, receive, send):
        scope["headers"].clear()
        await json_app(ANSWER)(scope, receive, send)

    asyncio.run(send_request(ModelCallCapture(app), PREFIXED, REQUEST, {"x-request-id": "q1"}))
    assert chat_span(live_store.directory).attributes["gym.request.header.x-request-id"] == ["q1"]
