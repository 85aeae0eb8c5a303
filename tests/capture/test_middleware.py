"""What a user of the middleware sees: bytes unchanged, one record a call, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import gzip
import json
import logging
import types
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture, instrument_app
from otel_gym.store.reader import Store
from otel_gym.store.span import KIND_SERVER, STATUS_ERROR
from otel_gym.tracing.pipeline import active_pipeline
from otel_gym.views.model_calls import model_call_records
from otel_gym.wire.dialects import is_near_miss

from .asgi import (
    ANSWER,
    CHAT_PATH,
    EVENT_STREAM,
    REQUEST,
    ManualClock,
    body_app,
    http_scope,
    json_app,
    send_request,
    sse,
)

PREFIXED = f"/ng-rollout/3-1{CHAT_PATH}"


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_call_is_stored_under_its_rollout_and_the_answer_is_unchanged(live_store):
    sent = run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST))

    assert json.loads(sent.body) == ANSWER
    (record,) = live_store.records("3-1")
    assert record.request == REQUEST
    assert record.response == ANSWER
    assert (record.tokens_in, record.tokens_out, record.tokens_total) == (11, 3, 14)
    assert (record.model, record.finish_reason, record.error_category) == ("toy-served", "stop", None)


def test_the_server_below_sees_the_path_without_the_prefix_and_the_query_whole(live_store):
    seen = {}

    async def app(scope, receive, send):
        seen.update(path=scope["path"], raw_path=scope["raw_path"], query=scope["query_string"])
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST, query_string=b"beta=true&key=SECRETKEY"))

    assert seen == {"path": CHAT_PATH, "raw_path": CHAT_PATH.encode(), "query": b"beta=true&key=SECRETKEY"}
    assert "SECRETKEY" not in live_store.text()


def test_no_secret_header_reaches_the_disk(live_store):
    headers = {
        "authorization": "Bearer TOPSECRET",
        "x-api-key": "TOPSECRET",
        "cookie": "TOPSECRET",
        "x-request-id": "r1",
    }
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST, headers))

    text = live_store.text()
    assert "TOPSECRET" not in text
    assert "gym.request.header.x-request-id" in text


def test_one_server_span_and_no_span_per_chunk(live_store):
    stream = sse(*[{"choices": [{"index": 0, "delta": {"content": str(n)}}]} for n in range(50)], "[DONE]")
    run(send_request(ModelCallCapture(body_app(stream, 200, EVENT_STREAM)), PREFIXED, REQUEST))

    server, chat = live_store.spans("3-1")
    assert (server.kind, server.name) == (KIND_SERVER, f"POST {CHAT_PATH}")
    assert (chat.name, chat.parent_span_id) == ("chat toy", server.span_id)
    assert server.trace_id == chat.trace_id


def test_the_server_span_takes_what_an_application_sets_on_it_later(live_store):
    async def app(scope, receive, send):
        span = trace.get_current_span()
        span.set_attribute("url.path", "/renamed")
        span.set_attribute("app.step", 1)
        span.set_attribute("app.step", 2)
        span.set_attribute(["no", "name"], 1)
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), "/ng-rollout/3-1/tools", REQUEST))

    (server,) = live_store.spans("3-1")
    assert (server.kind, server.attributes["url.path"], server.attributes["app.step"]) == (KIND_SERVER, "/renamed", 2)
    assert server.attributes["http.method"] == "POST"


def test_servers_that_know_only_the_prefix_share_one_trace_with_the_rollout(live_store):
    app = ModelCallCapture(json_app(ANSWER))
    run(send_request(app, PREFIXED, REQUEST))
    run(send_request(app, PREFIXED, REQUEST))
    with otel_gym.rollout(3, 1):
        pass

    assert len({span.trace_id for span in live_store.spans("3-1")}) == 1


def test_a_foreign_traceparent_is_kept_as_parent(live_store):
    trace_id, parent = "1" * 32, "2" * 16
    headers = {"traceparent": f"00-{trace_id}-{parent}-01"}
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST, headers))

    server, chat = live_store.spans("3-1")
    assert (server.trace_id, server.parent_span_id) == (trace_id, parent)
    assert chat.trace_id == trace_id


def test_an_unsampled_client_loses_no_record(live_store):
    headers = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST, headers))

    assert len(live_store.records("3-1")) == 1


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions/", "/v1/embeddings", "/V1/chat/completions", "/v1/messages/count_tokens"]
)
def test_other_paths_pass_and_give_no_record(live_store, path):
    sent = run(send_request(ModelCallCapture(json_app({"ok": 1})), f"/ng-rollout/3-1{path}", REQUEST))

    assert sent.body == b'{"ok": 1}'
    assert live_store.records("3-1") == []


def test_a_call_without_rollout_is_forwarded_counted_and_not_stored(live_store):
    sent = run(send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST))

    assert json.loads(sent.body) == ANSWER
    assert not (live_store.directory / "spans").exists()
    assert otel_gym.flush(10)
    counts = [json.loads(path.read_text()) for path in (live_store.directory / "counts").glob("*.json")]
    assert counts == [{"uncaptured_calls": 1}]


@pytest.mark.parametrize("rollout_id", ["..", ".hidden", "-x", "_x", "a" * 201, "unassigned", "ünïcode"])
def test_an_id_that_may_not_name_a_file_is_forwarded_and_counted(live_store, rollout_id):
    sent = run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/{rollout_id}{CHAT_PATH}", REQUEST))

    assert json.loads(sent.body) == ANSWER
    assert not (live_store.directory / "spans").exists()


def test_unassigned_calls_are_stored_where_asked_for(tmp_path):
    otel_gym.configure(directory=tmp_path, capture_unassigned=True)
    run(send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST))
    assert otel_gym.flush(10)

    assert (tmp_path / "spans" / "rollout_id=unassigned").is_dir()


def test_the_rollout_of_a_baggage_header_counts_where_there_is_no_prefix(live_store):
    headers = {"baggage": "other=1,gym.rollout.id=9-0,gym.run.id=run-7"}
    run(send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST, headers))

    (rollout,) = live_store.rollouts()
    assert (rollout.rollout_id, rollout.run_id) == ("9-0", "run-7")


def test_the_prefix_wins_over_baggage_on_every_span(live_store):
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST, {"baggage": "gym.rollout.id=9-0"}))

    assert [rollout.rollout_id for rollout in live_store.rollouts()] == ["3-1"]


def test_an_in_process_call_inside_a_rollout_needs_no_prefix(live_store):
    async def agent() -> None:
        async with otel_gym.rollout(5, 0):
            await send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST)

    run(agent())

    assert len(live_store.records("5-0")) == 1


def test_a_request_on_the_same_connection_does_not_inherit_the_last_ones_trace(live_store):
    """Under uvicorn the next request of a connection may run in the context of the one before."""
    app = ModelCallCapture(json_app(ANSWER))
    leaked = []

    async def first(scope, receive, send):
        await json_app(ANSWER)(scope, receive, send)
        leaked.append(asyncio.create_task(send_request(app, f"/ng-rollout/8-0{CHAT_PATH}", REQUEST)))

    async def connection() -> None:
        await send_request(ModelCallCapture(first), PREFIXED, REQUEST)
        await leaked[0]

    run(connection())

    (first_rollout,) = {span.trace_id for span in live_store.spans("3-1")}
    second = live_store.spans("8-0")
    assert {span.trace_id for span in second} != {first_rollout}
    assert [span.kind for span in second if span.parent_span_id is None] == [KIND_SERVER]


def test_no_second_server_span_under_another_asgi_instrumentation(live_store):
    provider = active_pipeline().provider
    app = OpenTelemetryMiddleware(
        ModelCallCapture(json_app(ANSWER)), tracer_provider=provider, exclude_spans=["receive", "send"]
    )
    run(send_request(app, PREFIXED, REQUEST))

    spans = live_store.spans("3-1")
    assert [span.kind for span in spans].count(KIND_SERVER) == 1
    assert len(spans) == 2


def test_the_record_follows_the_clock(live_store):
    clock = ManualClock()
    first, second = sse(
        {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
        {"choices": [{"index": 0, "delta": {"content": "hi"}}]},
    )

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for ms, body, more in (
            (20, first, True),
            (50, second, True),
            (90, b"data: [DONE]\n\n", True),
            (100, b"", False),
        ):
            clock.ms = ms
            await send({"type": "http.response.body", "body": body, "more_body": more})
        clock.ms = 5000  # a background task of the server

    run(send_request(ModelCallCapture(app, clock=clock), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert (record.latency_ttft_ms, record.latency_total_ms) == (50.0, 100.0)
    assert (record.started_at, record.completed_at) == (1_800_000_000.0, 1_800_000_005.0)
    (chat,) = [span for span in live_store.spans("3-1") if span.name == "chat toy"]
    assert chat.attributes["gen_ai.response.time_to_first_chunk"] == 0.02
    assert chat.end_ns - chat.start_ns == 100 * 10**6


@pytest.mark.parametrize(
    ("error", "category", "status"),
    [
        (TimeoutError("late"), "timeout", None),
        (ConnectionResetError("gone"), "connection", None),
        (asyncio.CancelledError(), "cancelled", None),
        (RuntimeError("odd"), "exception", None),
    ],
)
def test_an_exception_reaches_the_server_and_the_record(live_store, error, category, status):
    async def app(scope, receive, send):
        await receive()
        raise error

    with pytest.raises(type(error)):
        run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert (record.error_category, record.status_code, record.request) == (category, status, REQUEST)
    (chat,) = [span for span in live_store.spans("3-1") if span.name == "chat toy"]
    assert (chat.status, chat.attributes["error.type"]) == (STATUS_ERROR, type(error).__name__)


def test_a_client_that_leaves_in_mid_stream_leaves_a_partial_record(live_store):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        (chunk,) = sse({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hel"}}]})
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert record.error_category == "cancelled"
    assert record.response["choices"][0]["message"]["content"] == "Hel"


def test_a_compressed_answer_goes_on_as_it_is_and_is_stored_readable(live_store):
    body = gzip.compress(json.dumps(ANSWER).encode())
    app = ModelCallCapture(json_app(body, headers={"content-encoding": "gzip"}))
    sent = run(send_request(app, PREFIXED, REQUEST))

    assert sent.body == body
    (record,) = live_store.records("3-1")
    assert (record.response, record.response_raw, record.error_category) == (ANSWER, None, None)


def test_bytes_that_are_no_text_survive(live_store):
    body = b"\xff\xfe\x00binary"
    run(send_request(ModelCallCapture(json_app(body)), PREFIXED, b"\x80\x81"))

    (chat,) = [span for span in live_store.spans("3-1") if span.name == "chat"]
    assert base64.b64decode(chat.attributes["gym.response.body"]) == body
    assert base64.b64decode(chat.attributes["gym.request.body"]) == b"\x80\x81"
    (record,) = live_store.records("3-1")
    assert record.error_category == "capture_parse_error"


def test_a_lone_surrogate_and_a_huge_integer_lose_nothing(live_store):
    choice = b'{"index":0,"message":{"content":"\\ud83e"},"finish_reason":"stop"}'
    body = b'{"id":"x","choices":[' + choice + b'],"n":123456789012345678901234567890}'
    run(send_request(ModelCallCapture(json_app(body)), PREFIXED, REQUEST))

    (chat,) = [span for span in live_store.spans("3-1") if span.name == "chat toy"]
    assert chat.attributes["gym.response.body"].encode() == body
    (record,) = live_store.records("3-1")
    assert record.response["n"] == 123456789012345678901234567890
    assert record.response["choices"][0]["message"]["content"] == "\ufffd"


def test_an_exchange_beyond_the_queue_is_kept_as_head_length_and_hash(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_QUEUE_BYTES", str(2 * 1024 * 1024))
    otel_gym.configure(directory=tmp_path)
    chunks = [b"x" * 1_000_000] * 6
    sent = run(send_request(ModelCallCapture(body_app(chunks)), PREFIXED, REQUEST))
    assert otel_gym.flush(10)

    assert len(sent.body) == 6_000_000
    (path,) = (tmp_path / "spans" / "rollout_id=3-1").glob("*.jsonl")
    text = path.read_text()
    assert '"gym.response.body.bytes","value":{"intValue":"6000000"}' in text
    assert "gym.response.body.sha256" in text
    assert len(text) < 200_000


def test_a_failure_of_the_capture_is_said_once_and_never_fails_the_call(live_store, caplog, monkeypatch):
    monkeypatch.setattr("otel_gym.tracing.logs._said", set())

    def broken(scope: Any) -> str:
        raise RuntimeError("no id")

    app = ModelCallCapture(json_app(ANSWER), call_id=broken)
    with caplog.at_level(logging.WARNING, "otel_gym"):
        for _ in range(3):
            assert run(send_request(app, PREFIXED, REQUEST)).status == 200

    assert len([entry for entry in caplog.records if "could not be captured" in entry.message]) == 1


@pytest.mark.parametrize("kind", [memoryview, bytearray])
def test_a_body_that_is_no_bytes_object_is_stored(live_store, kind):
    content = kind(b'{"id":"x","choices":[]}')

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": content, "more_body": False})
        if kind is bytearray:
            content[:] = b"X" * len(content)  # servers reuse their buffers

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert record.response_id == "x"


def test_a_number_that_no_float_holds_loses_nothing(live_store):
    body = b'{"model":"m","temperature":1' + b"0" * 400 + b',"seed":1' + b"0" * 40 + b"}"
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, body))

    (record,) = live_store.records("3-1")
    assert record.request["temperature"] == 10**400


def test_a_failing_parser_costs_the_attributes_and_not_the_exchange(live_store, monkeypatch):
    monkeypatch.setattr("otel_gym.tracing.model_call.parse_exchange", lambda exchange: 1 / 0)
    run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert (record.response, record.tokens_in) == (ANSWER, 11)


ODD = {"upstream_attempted": "n/a", "response_source": 5, "upstream_status_code": True, "local_response_reason": None}


def test_a_server_that_says_odd_things_of_itself_is_still_read(live_store):
    async def app(scope, receive, send):
        scope["state"]["nemo_gym_model_execution"] = ODD
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert (record.upstream_attempted, record.upstream_status_code, record.tokens_in) == (None, None, 11)


@pytest.mark.parametrize(("status", "expected"), [(HTTPStatus.TOO_MANY_REQUESTS, 429), (10**20, None), (True, None)])
def test_only_what_can_be_a_status_is_read_off_an_exception(live_store, status, expected):
    error = RuntimeError("upstream")
    error.status = status

    async def app(scope, receive, send):
        raise error

    with pytest.raises(RuntimeError):
        run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    (record,) = live_store.records("3-1")
    assert record.status_code == expected


def test_another_vendors_processor_that_raises_does_not_fail_the_call(live_store, monkeypatch):
    class Broken(SpanProcessor):
        def on_start(self, span, parent_context=None):
            raise RuntimeError("broken")

    provider = active_pipeline().provider
    monkeypatch.setattr(provider._active_span_processor, "_span_processors", (Broken(),))
    sent = run(send_request(ModelCallCapture(json_app(ANSWER)), PREFIXED, REQUEST))

    assert json.loads(sent.body) == ANSWER


def test_two_captures_around_one_app_make_one_record(live_store):
    run(send_request(ModelCallCapture(ModelCallCapture(json_app(ANSWER))), PREFIXED, REQUEST))

    assert len(live_store.records("3-1")) == 1


def test_a_mounted_app_is_captured_behind_its_root_path(live_store):
    seen = {}

    async def app(scope, receive, send):
        seen.update(path=scope["path"], raw_path=scope["raw_path"])
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), f"/sub{PREFIXED}", REQUEST, root_path="/sub"))

    assert seen == {"path": f"/sub{CHAT_PATH}", "raw_path": f"/sub{CHAT_PATH}".encode()}
    assert len(live_store.records("3-1")) == 1


def test_a_prefix_before_the_root_path_leaves_the_undecoded_path_as_it_came(live_store):
    seen = {}

    async def app(scope, receive, send):
        seen.update(path=scope["path"], raw_path=scope["raw_path"])
        await json_app(ANSWER)(scope, receive, send)

    raw_path = b"/ng-rollout/3-1/sub/v1/files/a%20b"
    path = "/ng-rollout/3-1/sub/v1/files/a b"
    run(send_request(ModelCallCapture(app), path, REQUEST, root_path="/sub", raw_path=raw_path))

    assert seen == {"path": "/sub/v1/files/a b", "raw_path": b"/sub/v1/files/a%20b"}


def test_a_call_that_is_closed_in_another_context_is_quiet(live_store, caplog):
    @types.coroutine
    def wait_for_ever():
        yield

    async def app(scope, receive, send):
        await wait_for_ever()

    coroutine = send_request(ModelCallCapture(app, server_spans=False), PREFIXED, REQUEST)
    contextvars.copy_context().run(coroutine.send, None)
    coroutine.close()

    assert [entry for entry in caplog.records if entry.name == "opentelemetry.context"] == []
    assert len(live_store.records("3-1")) == 1


def test_a_queue_that_nothing_drains_bounds_memory_and_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_QUEUE_BYTES", str(1024 * 1024))
    recorder = otel_gym.configure(directory=tmp_path).recorder
    monkeypatch.setattr(recorder, "_start", lambda: None)
    app = ModelCallCapture(json_app(b"y" * 100_000), server_spans=False)
    for _ in range(500):
        run(send_request(app, PREFIXED, b"x" * 100_000))

    assert recorder.pending_bytes <= 1024 * 1024
    assert recorder._counts["lost_calls"] > 100
    assert recorder.open_spans.spans() == [] or len(recorder.open_spans.spans()) < 300


def test_a_stream_that_was_cut_for_lack_of_room_is_no_failed_call(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_QUEUE_BYTES", str(2 * 1024 * 1024))
    otel_gym.configure(directory=tmp_path)
    chunks = sse(*[{"choices": [{"index": 0, "delta": {"content": "x" * 100_000}}]}] * 60, "[DONE]")
    run(send_request(ModelCallCapture(body_app(chunks, 200, EVENT_STREAM)), PREFIXED, REQUEST))
    assert otel_gym.flush(10)

    (rollout,) = Store(tmp_path).rollouts("3-1")
    (record,) = model_call_records(rollout)
    assert record.error_category is None


def test_websockets_pass_with_the_prefix_stripped(live_store):
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["type"], scope["path"]))

    scope = http_scope("/ng-rollout/3-1/v1/responses") | {"type": "websocket"}
    run(ModelCallCapture(app)(scope, None, None))

    assert seen == [("websocket", "/v1/responses")]


def test_shutdown_waits_until_what_was_captured_is_on_disk(live_store):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await json_app(ANSWER)(scope, receive, send)

    on_disk = []

    async def send(message):
        on_disk.append(list(live_store.directory.rglob("*.jsonl")))

    async def server() -> None:
        capture = ModelCallCapture(app)
        await send_request(capture, PREFIXED, REQUEST)
        await capture({"type": "lifespan"}, None, send)

    run(server())

    assert len(on_disk[0]) == 1


def test_a_fastapi_app_is_instrumented_once(live_store):
    app = FastAPI()

    @app.post(CHAT_PATH)
    async def complete(body: dict) -> dict:
        return ANSWER

    instrument_app(instrument_app(app))

    async def client() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model.local") as http:
            return await http.post(PREFIXED, json=REQUEST)

    assert run(client()).json() == ANSWER
    assert len(live_store.records("3-1")) == 1
    assert [span.kind for span in live_store.spans("3-1")].count(KIND_SERVER) == 1


def test_fastapis_own_server_span_gives_way_and_leaks_no_query(live_store):
    app = FastAPI()

    @app.post(CHAT_PATH)
    async def complete(body: dict) -> dict:
        return ANSWER

    wrapped = ModelCallCapture(app)
    run(send_request(wrapped, PREFIXED, REQUEST, query_string=b"api-key=SECRETKEY"))
    run(send_request(instrument_app(app), PREFIXED, REQUEST, query_string=b"api-key=SECRETKEY"))

    spans = live_store.spans("3-1")
    assert [span.kind for span in spans].count(KIND_SERVER) == 2
    assert len({span.trace_id for span in spans}) == 1
    assert "SECRETKEY" not in live_store.text()


def test_another_instrumentations_query_is_not_stored(live_store):
    with otel_gym.rollout(3, 1):
        attributes = {"url.query": "key=SECRET", "url.full": "http://h/p?key=SECRET", "http.target": "/p?key=SECRET"}
        trace.get_tracer("other").start_span("GET", attributes=attributes).end()

    (other,) = [span for span in live_store.spans("3-1") if span.name == "GET"]
    assert other.attributes["url.full"] == "http://h/p"
    assert "SECRET" not in live_store.text()


def test_spans_of_the_server_become_children_of_the_call(live_store):
    async def app(scope, receive, send):
        with trace.get_tracer("app").start_as_current_span("upstream", kind=SpanKind.CLIENT):
            await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    spans = {span.name: span for span in live_store.spans("3-1")}
    assert spans["upstream"].parent_span_id == spans["chat toy"].span_id


def test_with_tracing_off_requests_pass_with_the_prefix_stripped(monkeypatch):
    monkeypatch.setattr("otel_gym.capture.middleware.active_pipeline", lambda: None)
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["path"])
        await json_app(ANSWER)(scope, receive, send)

    run(send_request(ModelCallCapture(app), PREFIXED, REQUEST))

    assert seen == [CHAT_PATH]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/chat/completions", True),
        ("/v1/v1/messages", True),
        ("/v1/v1/models", False),
        ("/openai/v1/responses", True),
        ("/v1/messages/", True),
        ("/v1/messages", False),
        ("/v1/threads/t/messages", False),
        ("/v1/messages/count_tokens", False),
        ("/health", False),
    ],
)
def test_a_path_that_nearly_is_a_model_calls_is_told(path: str, is_one: bool) -> None:
    assert is_near_miss(path) is is_one
