from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_gym
from otel_gym.capture.durability import TerminalEventFinder
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store

from .asgi import ANSWER, CHAT_PATH, EVENT_STREAM, REQUEST, body_app, http_scope, json_app

PREFIXED = f"/ng-rollout/3-1{CHAT_PATH}"
CHUNK = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"[DONE] \\n event: error"}}]}\n\n'
END = b"data: [DONE]\n\n"


@pytest.fixture
def sync_store(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_DURABILITY", "sync")
    otel_gym.configure(directory=tmp_path / "s", run_id="r")
    return tmp_path / "s"


def spans_on_disk(directory) -> list[str]:
    return [path.name for path in directory.rglob("spans/*/*.jsonl")]


async def seen_by_client(app, directory) -> list[tuple[bytes, int]]:
    """Each body message with the number of files on disk when the client got it."""
    seen = []

    async def receive():
        return {"type": "http.request", "body": json.dumps(REQUEST).encode(), "more_body": False}

    async def send(message):
        if message["type"] == "http.response.body":
            seen.append((message.get("body", b""), len(spans_on_disk(directory))))

    await ModelCallCapture(app, server_spans=False)(http_scope(PREFIXED), receive, send)
    return seen


def test_a_plain_answer_reaches_the_client_when_its_call_is_on_disk(sync_store):
    (message,) = asyncio.run(seen_by_client(json_app(ANSWER), sync_store))
    assert message == (json.dumps(ANSWER).encode(), 1)


def test_a_stream_flows_until_its_terminal_event_and_ends_on_disk(sync_store):
    chunks = [CHUNK, CHUNK, END[:13], END[13:], b""]
    seen = asyncio.run(seen_by_client(body_app(chunks, 200, EVENT_STREAM), sync_store))
    assert [body for body, _ in seen] == chunks
    assert [files for _, files in seen] == [0, 0, 1, 1, 1]


def test_a_disk_that_fails_does_not_keep_the_answer(sync_store, caplog):
    sync_store.parent.mkdir(exist_ok=True)
    sync_store.write_text("a file where the folder should be")
    (message,) = asyncio.run(seen_by_client(json_app(ANSWER), sync_store.parent / "none"))
    assert message[0] == json.dumps(ANSWER).encode()


def test_one_record_and_the_whole_answer_in_it(sync_store):
    asyncio.run(seen_by_client(body_app([CHUNK, END], 200, EVENT_STREAM), sync_store))
    otel_gym.flush(10)
    (rollout,) = Store(sync_store).rollouts()
    (span,) = rollout.spans
    assert span.attributes["gym.response.body"].encode() == CHUNK + END


EVENTS = [
    b'event: response.output_text.delta\ndata: {"delta":"event: error"}\n\n',
    b'data: {"type":"ping","text":"message_stop"}\n\n',
    b": comment [DONE]\n\n",
    CHUNK,
]
ENDS = [
    END,
    b"data:[DONE]\n\n",
    b'event: message_stop\r\ndata: {"type":"message_stop"}\r\n\r\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n',
    b'data: {"type":"response.failed","response":{}}\n\n',
    b'event: error\ndata: {"error":{}}\n\n',
]


@given(st.lists(st.sampled_from(EVENTS), max_size=5), st.sampled_from(ENDS), st.integers(1, 40))
def test_the_terminal_event_is_found_when_it_is_whole_and_never_before(events, end, size):
    body = b"".join(events)
    finder = TerminalEventFinder()
    assert not any(finder.feed(body[start : start + size]) for start in range(0, len(body), size))
    found = [finder.feed(end[start : start + 1]) for start in range(len(end))]
    assert found.index(True) == len(end) - 1
