"""Content once through the whole pipeline: what lies on disk is small, what is read is what was sent."""

from __future__ import annotations

import asyncio
import base64
import json
import os

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.otlp_json import attributes_of
from otel_gym.store.reader import Store
from otel_gym.views.model_calls import exchange_of, is_model_call
from tests.store.test_text_delta import noise

from .asgi import ANSWER, CHAT_PATH, json_app, send_request

MESSAGES = [noise(str(n), 3000) for n in range(8)]
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(5000)).decode()


def body(*contents: object) -> bytes:
    return json.dumps({"model": "toy", "messages": [{"role": "user", "content": c} for c in contents]}).encode()


def picture(number: int) -> list[dict]:
    url = f"data:image/png;base64,{PICTURE}"
    return [{"type": "text", "text": f"turn {number}"}, {"type": "image_url", "image_url": {"url": url}}]


def call(rollout_id: str, *bodies: bytes) -> None:
    app = ModelCallCapture(json_app(ANSWER))
    for content in bodies:
        asyncio.run(send_request(app, f"/ng-rollout/{rollout_id}{CHAT_PATH}", content))


def sent(store: Store, rollout_id: str) -> list[bytes]:
    (rollout,) = store.rollouts(rollout_id)
    return [exchange_of(span).request_body for span in rollout.spans if is_model_call(span)]


def stored_forms(live_store, rollout_id: str = "1-0") -> list[dict]:
    """The attributes of the model calls as their lines hold them."""
    live_store.read()
    (file,) = (live_store.directory / "spans" / f"rollout_id={rollout_id}").iterdir()
    spans = [json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for line in file.open()]
    forms = [attributes_of(span["attributes"]) for span in spans]
    return [form for form in forms if "gym.request.body" in form]


def test_a_growing_history_is_small_on_disk_and_whole_when_read(live_store):
    bodies = [body(*MESSAGES[:n]) for n in range(1, 9)]
    call("1-0", *bodies)
    assert all(len(form["gym.request.body"]) < 3200 for form in stored_forms(live_store))
    store = live_store.read()
    assert sent(store, "1-0") == bodies
    assert store.damage == []


def test_a_picture_lies_on_disk_once_and_comes_back_in_every_call(live_store):
    bodies = [body(*(picture(m) for m in range(n))) for n in range(1, 5)]
    call("1-0", *bodies)
    call("2-0", bodies[0])
    store = live_store.read()
    assert not any(PICTURE in form["gym.request.body"] for form in stored_forms(live_store))
    assert len(list((live_store.directory / "blobs").iterdir())) == 1
    assert sent(store, "1-0") == bodies and sent(store, "2-0") == bodies[:1]
    assert stored_forms(live_store)[-1]["gym.request.body.blobs"] == 4


def test_of_the_messages_of_every_turn_each_is_stored_once_also_across_a_compaction(live_store):
    """rllm-org/rllm#766 and others (R072): 14 messages are sent, 7 are stored."""
    turns = ["s u1", "s u1 a1 t1", "s u1 a1 t1 a2 t2", "s summary"]
    bodies = [body(*(noise(symbol, 1500) for symbol in turn.split())) for turn in turns]
    call("1-0", *bodies)
    stored = "".join(form["gym.request.body"] for form in stored_forms(live_store))
    symbols = {symbol for turn in turns for symbol in turn.split()}
    # Its first or last characters may happen to be those of another.
    assert sum(stored.count(noise(symbol, 1500)[16:-16]) for symbol in symbols) == len(symbols) == 7
    assert sent(live_store.read(), "1-0") == bodies


def test_a_tiny_picture_leaves_its_text_whole(live_store):
    """Arize-ai/openinference#3409 and others (R048): no media in a span, whatever its size."""
    tiny = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    url = f"data:image/png;base64,{tiny}"
    content = body([{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": url}}])
    call("1-0", content)
    (form,) = stored_forms(live_store)
    assert tiny not in json.dumps(form) and "what is this" in form["gym.request.body"]
    assert sent(live_store.read(), "1-0") == [content]


def test_a_line_that_is_lost_leaves_a_named_gap_and_the_rest_right(live_store):
    call("1-0", *(body(*MESSAGES[:n]) for n in range(1, 5)), body(noise("another conversation", 3000)))
    live_store.read()
    (file,) = (live_store.directory / "spans" / "rollout_id=1-0").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if b"gym.request.body.base" in line)
    lines[second] = b'{"broken\n'
    file.write_bytes(b"".join(lines))

    store = Store(live_store.directory)
    bodies = sent(store, "1-0")
    assert bodies == [body(MESSAGES[0]), b"", b"", body(noise("another conversation", 3000))]
    gaps = [str(damage) for damage in store.damage if "cannot be rebuilt" in damage.problem]
    assert len(gaps) == 2 and all(file.name in gap and "missing" in gap for gap in gaps)


def test_media_that_is_gone_is_named_and_the_body_absent(live_store):
    call("1-0", body(picture(0)), body("no picture"))
    live_store.read()
    (blob,) = (live_store.directory / "blobs").iterdir()
    blob.unlink()
    store = Store(live_store.directory)
    assert sent(store, "1-0") == [b"", body("no picture")]
    assert any(blob.name in damage.problem for damage in store.damage)


def test_where_blobs_cannot_be_written_media_stays_in_the_line(live_store):
    live_store.directory.mkdir()
    (live_store.directory / "blobs").write_text("in the way")
    call("1-0", body(picture(0)))
    assert sent(live_store.read(), "1-0") == [body(picture(0))]


def test_content_once_can_be_turned_off(monkeypatch, live_store):
    monkeypatch.setenv("OTEL_GYM_CONTENT_ONCE", "0")
    otel_gym.configure(directory=live_store.directory, run_id="run-1")
    call("1-0", body(picture(0)), body(picture(0), MESSAGES[0]))
    forms = stored_forms(live_store)
    assert [form["gym.request.body"].encode() for form in forms] == [body(picture(0)), body(picture(0), MESSAGES[0])]
    assert not (live_store.directory / "blobs").exists()


def test_a_store_that_was_cleared_under_the_writer_is_not_built_on(live_store):
    call("1-0", body(*MESSAGES[:3]))
    live_store.read()
    (file,) = (live_store.directory / "spans" / "rollout_id=1-0").iterdir()
    file.unlink()
    call("1-0", body(*MESSAGES[:4]))
    live_store.read()
    call("1-0", body(*MESSAGES[:5]))
    store = live_store.read()
    assert sent(store, "1-0") == [body(*MESSAGES[:4]), body(*MESSAGES[:5])]
    assert store.damage == []
