"""What clients and model servers see of the proxy, and what it captures: real servers and clients on loopback."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
import uvicorn

import otel_gym
from otel_gym.capture.proxy import UpstreamConnectionError, UpstreamUrlError, proxy_app, upstream_of
from otel_gym.capture.proxy_server import (
    end_line,
    say_cut_calls,
    server_config,
    shorten_upstream_errors,
    start_lines,
)
from otel_gym.listening import listen, url_of
from otel_gym.store.reader import Store
from otel_gym.store.span import KIND_CLIENT, KIND_SERVER
from otel_gym.views.model_calls import model_call_records

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
PREFIXED_CHAT = f"/ng-rollout/3-1{CHAT}"
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}
JSON_HEADERS = [(b"content-type", b"application/json")]

App = Callable[[Any, Any, Any], Awaitable[None]]


class Upstream:
    """An ASGI model server that does what ``answer`` does, and remembers what it was asked."""

    def __init__(self, answer: App) -> None:
        self.answer = answer
        self.scopes: list[Any] = []
        self.disconnected = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await self.answer(scope, receive, send)

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in self.scopes[-1]["headers"]]


async def read_body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def answering(body: bytes, headers: list[tuple[bytes, bytes]] | None = None, status: int = 200) -> App:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await send({"type": "http.response.start", "status": status, "headers": headers or JSON_HEADERS})
        await send({"type": "http.response.body", "body": body})

    return answer


def streaming(chunks: list[bytes], ending: BaseException | None = None, pause_s: float = 0.0) -> App:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(pause_s)
        if ending is not None:
            raise ending
        await send({"type": "http.response.body", "body": b""})

    return answer


_servers: list[uvicorn.Server] = []


@contextmanager
def served(config: uvicorn.Config) -> Iterator[str]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(config)
    _servers.append(server)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(10)
        _servers.remove(server)
        assert not thread.is_alive()


def upstream_config(upstream: Upstream) -> uvicorn.Config:
    quiet: dict[str, Any] = {"lifespan": "off", "ws": "none", "log_level": "critical", "server_header": False}
    return uvicorn.Config(upstream, date_header=False, timeout_graceful_shutdown=1, **quiet)


@contextmanager
def proxy_before(answer: App, **options: Any) -> Iterator[tuple[str, Upstream]]:
    """URL of a proxy before a model server that answers so, and that server."""
    upstream = Upstream(answer)
    with (
        served(upstream_config(upstream)) as target,
        served(server_config(proxy_app(upstream_of(target), **options))) as url,
    ):
        yield url, upstream


@pytest.fixture(scope="module")
def shared_proxy() -> Iterator[tuple[str, Upstream]]:
    with proxy_before(answering(b"{}")) as pair:
        yield pair


Proxy = Callable[[App], AbstractContextManager[tuple[str, Upstream]]]


@pytest.fixture
def proxy(shared_proxy: tuple[str, Upstream], store: Path) -> Proxy:
    """The same two servers for all tests (starting and stopping them takes longest); only the answers differ."""
    url, upstream = shared_proxy

    def before(answer: App) -> AbstractContextManager[tuple[str, Upstream]]:
        upstream.answer = answer
        upstream.scopes.clear()
        return nullcontext((url, upstream))

    return before


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    otel_gym.configure(directory=tmp_path / "store", run_id="run-1", capture_unassigned=True)
    yield tmp_path / "store"
    # A client has its answer before the call has returned: it must not end in the next test's store.
    wait_for(lambda: not any(server.server_state.tasks for server in _servers))
    otel_gym.flush(10)


def spans_of(store: Path, rollout_id: str = "3-1") -> list[Any]:
    assert otel_gym.flush(10)
    return [span for rollout in Store(store).rollouts(rollout_id) for span in rollout.spans]


def records_of(store: Path, rollout_id: str = "3-1", count: int = 1) -> list[Any]:
    """Waits until as many calls are over: a client may have its last byte before the call has returned."""
    deadline = time.monotonic() + 5
    while True:
        otel_gym.flush(10)
        found = Store(store).rollouts(rollout_id) if (store / "spans").exists() else ()
        records = [record for rollout in found for record in model_call_records(rollout)]
        if len([record for record in records if record.completed_at]) >= count or time.monotonic() > deadline:
            assert len(records) == count
            return records
        time.sleep(0.02)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def client() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=10, verify=False)  # plain http: no TLS to set up


def test_a_call_is_answered_unchanged_and_captured_as_a_client_span(store: Path, proxy: Proxy) -> None:
    body = json.dumps(ANSWER).encode()
    with proxy(answering(body)) as (url, upstream), client() as http:
        response = http.post(url + PREFIXED_CHAT, json=QUESTION)
        record = records_of(store)[0]
        assert response.content == body
        assert upstream.scopes[0]["path"] == CHAT
        assert (record.tokens_in, record.tokens_out, record.response_source) == (5, 2, "upstream")
        kinds = {span.kind for span in spans_of(store)}
        assert kinds == {KIND_SERVER, KIND_CLIENT}
        call = next(span for span in spans_of(store) if span.kind == KIND_CLIENT)
        assert call.attributes["server.port"] == int(upstream.scopes[0]["server"][1])


def test_the_openai_client_streams_through_the_proxy(store: Path, proxy: Proxy) -> None:
    openai = pytest.importorskip("openai")
    deltas = [
        {**ANSWER, "choices": [{"index": 0, "delta": {"content": text}}], "usage": None} for text in ("he", "llo")
    ]
    chunks = [b"data: " + json.dumps(delta).encode() + b"\n\n" for delta in deltas] + [b"data: [DONE]\n\n"]
    with proxy(streaming(chunks)) as (url, _):
        http_client = openai.DefaultHttpxClient(trust_env=False)
        with openai.OpenAI(base_url=f"{url}/ng-rollout/3-1/v1", api_key="key", http_client=http_client) as model:
            stream = model.chat.completions.create(stream=True, **QUESTION)
            text = "".join(chunk.choices[0].delta.content for chunk in stream)
        record = records_of(store)[0]
    assert text == "hello"
    assert record.response["choices"][0]["message"]["content"] == "hello"
    assert record.error_category is None


def test_the_anthropic_client_gets_its_answer_through_the_proxy(store: Path, proxy: Proxy) -> None:
    anthropic = pytest.importorskip("anthropic")
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 64},
    }
    with proxy(answering(json.dumps(message).encode())) as (url, _):
        http_client = anthropic.DefaultHttpxClient(trust_env=False)
        with anthropic.Anthropic(base_url=f"{url}/ng-rollout/3-1", api_key="key", http_client=http_client) as model:
            answer = model.messages.create(max_tokens=9, **QUESTION)
        assert answer.content[0].text == "hello"
        assert [record.tokens_in for record in records_of(store) if record.dialect == "messages"] == [69]


def test_a_compressed_answer_stays_compressed_on_the_wire(store: Path, proxy: Proxy) -> None:
    packed = gzip.compress(json.dumps(ANSWER).encode())
    headers = [*JSON_HEADERS, (b"content-encoding", b"gzip"), (b"content-length", str(len(packed)).encode())]
    with proxy(answering(packed, headers)) as (url, _), client() as http:
        with http.stream("POST", url + PREFIXED_CHAT, json=QUESTION) as response:
            assert b"".join(response.iter_raw()) == packed
            assert response.headers["content-encoding"] == "gzip"
            assert response.headers["content-length"] == str(len(packed))
        assert records_of(store)[0].response == ANSWER


def test_chunks_pass_as_they_come(store: Path, proxy: Proxy) -> None:
    with proxy(streaming([b"data: 1\n\n", b"data: 2\n\n"], pause_s=0.3)) as (url, _), client() as http:
        started = time.monotonic()
        with http.stream("POST", url + PREFIXED_CHAT, json=QUESTION) as response:
            first = next(response.iter_raw())
        assert first == b"data: 1\n\n"
        assert time.monotonic() - started < 0.3


def test_a_call_does_not_wait_forty_milliseconds_for_an_acknowledgement(store: Path, proxy: Proxy) -> None:
    """Head and body of an answer are two writes: without TCP_NODELAY the second waits for a delayed ACK."""
    durations = []
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, _), client() as http:
        for _ in range(8):
            started = time.monotonic()
            http.post(url + PREFIXED_CHAT, json=QUESTION)
            durations.append(time.monotonic() - started)
    assert min(durations) < 0.03


def test_connections_to_the_upstream_are_used_again(store: Path, proxy: Proxy) -> None:
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, upstream), client() as http:
        for _ in range(5):
            http.post(url + PREFIXED_CHAT, json=QUESTION)
    assert len({scope["client"] for scope in upstream.scopes}) == 1


def test_headers_that_came_twice_stay_two_in_both_directions(store: Path, proxy: Proxy) -> None:
    headers = [*JSON_HEADERS, (b"set-cookie", b"a=1"), (b"x-thing", b"1"), (b"set-cookie", b"b=2")]
    sent = [("x-tag", "one"), ("x-other", "x"), ("x-tag", "two")]
    with proxy(answering(b"{}", headers)) as (url, upstream), client() as http:
        response = http.post(url + PREFIXED_CHAT, json=QUESTION, headers=sent)
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
    received = [header for header in upstream.headers if header[0].startswith("x-")]
    assert received == sent


def test_no_header_is_made_up(store: Path, proxy: Proxy) -> None:
    with (
        proxy(answering(b"{}", [(b"server", b"vllm"), (b"date", b"then")])) as (url, upstream),
        client() as http,
    ):
        response = http.request("POST", url + CHAT, content=b"{}")
    assert response.headers.get_list("server") == ["vllm"]
    assert response.headers.get_list("date") == ["then"]
    names = {name for name, _ in upstream.headers}
    assert names == {"host", "accept", "accept-encoding", "user-agent", "content-length"}


def test_hop_by_hop_headers_end_at_the_proxy(store: Path, proxy: Proxy) -> None:
    answer = answering(b"{}", [*JSON_HEADERS, (b"connection", b"x-inner"), (b"x-inner", b"1"), (b"keep-alive", b"5")])
    sent = {"connection": "keep-alive, X-Hop", "x-hop": "1", "te": "trailers", "proxy-authorization": "Basic eA=="}
    with proxy(answer) as (url, upstream), client() as http:
        response = http.post(url + PREFIXED_CHAT, json=QUESTION, headers=sent)
        host = upstream.scopes[0]["server"]
    received = dict(upstream.headers)
    assert not {"x-hop", "te", "proxy-authorization"} & set(received)
    assert received["host"] == f"{host[0]}:{host[1]}"
    assert not {"x-inner", "keep-alive"} & set(response.headers)


def test_upstream_sees_neither_prefix_nor_trace_context(store: Path, proxy: Proxy) -> None:
    context = {"baggage": "gym.rollout.id=3-1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "v=1"}
    with proxy(answering(b"{}")) as (url, upstream), client() as http:
        http.post(url + PREFIXED_CHAT, json=QUESTION, headers=context)
        records_of(store)
    assert upstream.scopes[0]["raw_path"] == CHAT.encode()
    assert not set(context) & {name for name, _ in upstream.headers}


def test_propagate_sends_the_calls_own_span_and_rollout(store: Path) -> None:
    with proxy_before(answering(b"{}"), propagate=True) as (url, upstream), client() as http:
        http.post(url + PREFIXED_CHAT, json=QUESTION)
        records_of(store)
    received = dict(upstream.headers)
    call = next(span for span in spans_of(store) if span.kind == KIND_CLIENT)
    assert received["traceparent"].split("-")[1:3] == [call.trace_id, call.span_id]
    assert "gym.rollout.id=3-1" in received["baggage"]
    assert upstream.scopes[0]["raw_path"] == CHAT.encode()


def test_a_key_in_a_query_reaches_upstream_and_no_file(store: Path, proxy: Proxy) -> None:
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, upstream), client() as http:
        http.post(f"{url}{PREFIXED_CHAT}?api_key=sk-SECRET&beta=true", json=QUESTION)
        http.get(f"{url}/ng-rollout/3-1/v1/models?key=sk-SECRET")
        records_of(store)
    assert upstream.scopes[0]["query_string"] == b"api_key=sk-SECRET&beta=true"
    stored = b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    assert b"chat m" in stored
    assert b"SECRET" not in stored


def test_authorization_passes_and_is_not_stored(store: Path, proxy: Proxy) -> None:
    with proxy(answering(b"{}")) as (url, upstream), client() as http:
        http.post(url + PREFIXED_CHAT, json=QUESTION, headers={"authorization": "Bearer sk-SECRET"})
        records_of(store)
    assert dict(upstream.headers)["authorization"] == "Bearer sk-SECRET"
    assert not any(b"SECRET" in path.read_bytes() for path in store.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("path", "error_type"),
    [(CHAT, ["error", "type"]), ("/v1/responses", ["error", "type"]), ("/v1/messages", ["error", "type"])],
)
def test_an_unreachable_upstream_is_502_in_the_dialect_of_the_call(
    store: Path, path: str, error_type: list[str]
) -> None:
    with listen("127.0.0.1", 0) as unused:
        nobody = url_of(unused)
    with served(server_config(proxy_app(upstream_of(nobody)))) as url, client() as http:
        response = http.post(f"{url}/ng-rollout/3-1{path}", json=QUESTION)
        record = records_of(store)[0]
    answer = response.json()
    assert response.status_code == 502
    assert nobody in answer["error"]["message"]
    assert answer["error"]["type"] == "api_error"
    assert (answer.get("type") == "error") is (path == "/v1/messages")
    assert (record.error_category, record.status_code, record.response_source) == ("connection", None, "local")


def test_a_request_that_arrives_after_the_upstream_refused_is_recorded_whole(store: Path) -> None:
    """Clients send headers and body apart, and a refused connection is often known in between."""

    def late() -> Iterator[bytes]:
        time.sleep(0.3)
        yield json.dumps(QUESTION).encode()

    with listen("127.0.0.1", 0) as unused:
        nobody = url_of(unused)
    with served(server_config(proxy_app(upstream_of(nobody)))) as url, client() as http:
        assert http.post(url + PREFIXED_CHAT, content=late()).status_code == 502
        record = records_of(store)[0]
    assert record.request == QUESTION


def test_an_upstream_that_hangs_up_without_an_answer_is_502(store: Path) -> None:
    listener = listen("127.0.0.1", 0)

    def hang_up() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.close()

    threading.Thread(target=hang_up, daemon=True).start()
    with served(server_config(proxy_app(upstream_of(url_of(listener))))) as url, client() as http:
        response = http.post(url + PREFIXED_CHAT, json=QUESTION)
        assert records_of(store)[0].error_category == "connection"
    listener.close()
    assert response.status_code == 502


@contextmanager
def raw_upstream(answer: bytes) -> Iterator[str]:
    """A server that says ``answer`` to a connection, whatever it is."""
    listener = listen("127.0.0.1", 0)

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(answer)
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield url_of(listener)
    listener.close()


@pytest.mark.parametrize("status", [600, 999])
def test_a_status_that_http_lacks_gave_the_client_an_empty_reply(store: Path, status: int) -> None:
    odd = b"HTTP/1.1 %d Odd\r\nContent-Length: 2\r\n\r\n{}" % status
    with raw_upstream(odd) as upstream, served(server_config(proxy_app(upstream_of(upstream)))) as url:
        with client() as http:
            answer = http.post(url + PREFIXED_CHAT, json=QUESTION)
        (record,) = records_of(store)
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
    assert f"status {status}, which HTTP lacks" in answer.json()["error"]["message"]
    assert (record.status_code, record.upstream_status_code, record.error_category) == (502, status, "upstream_error")
    assert (record.response_source, record.local_response_reason) == ("local", "upstream_status_invalid")
    assert record.request == QUESTION


@pytest.mark.parametrize("slashes", ["//", "///", "http://model//"])
def test_a_second_slash_before_the_prefix_sent_the_prefix_upstream(store: Path, proxy: Proxy, slashes: str) -> None:
    body = json.dumps(QUESTION).encode()
    head = f"POST {slashes}ng-rollout/3-1{CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, upstream):
        answer = exchanged(url, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert upstream.scopes[0]["raw_path"] == CHAT.encode()
        assert len(records_of(store)) == 1


def test_an_upstream_that_breaks_off_breaks_the_clients_connection_too(store: Path, proxy: Proxy) -> None:
    """A stream that simply ended would look whole to clients that do not wait for a terminal event."""
    with proxy(streaming([b"data: {}\n\n"], OSError("cable"), pause_s=0.05)) as (url, _), client() as http:
        with (
            pytest.raises(httpx.RemoteProtocolError),
            http.stream("POST", url + PREFIXED_CHAT, json=QUESTION) as answer,
        ):
            assert [*answer.iter_raw()]
        record = records_of(store)[0]
    assert record.error_category == "connection"
    assert record.response_raw == "data: {}\n\n"


def test_an_upstream_that_breaks_off_is_logged_in_one_line() -> None:
    error = UpstreamConnectionError("the upstream's answer broke off: cable")
    record = logging.LogRecord(
        "uvicorn.error", logging.ERROR, "", 1, "Exception in ASGI", (), (type(error), error, None)
    )
    assert shorten_upstream_errors(record)
    assert logging.Formatter("%(message)s").format(record) == str(error)


def test_a_client_that_leaves_ends_the_upstreams_work(store: Path, proxy: Proxy) -> None:
    left = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    with proxy(endless) as (url, _), client() as http:
        with http.stream("POST", url + PREFIXED_CHAT, json=QUESTION) as response:
            next(response.iter_raw())
        assert left.wait(5)
        assert records_of(store)[0].error_category == "cancelled"


def test_a_client_that_leaves_before_the_answer_ends_the_upstreams_work(store: Path, proxy: Proxy) -> None:
    asked, left = threading.Event(), threading.Event()

    async def thinking(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        asked.set()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    with proxy(thinking) as (url, _):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + PREFIXED_CHAT, json=QUESTION, timeout=0.3, trust_env=False, verify=False)
        assert asked.is_set()
        assert left.wait(5)
        assert records_of(store)[0].error_category == "cancelled"


def test_a_client_that_leaves_while_it_sends_ends_the_upstreams_request(store: Path, proxy: Proxy) -> None:
    left = threading.Event()

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    with proxy(listening) as (url, upstream):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST {PREFIXED_CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 1000)
            wait_for(lambda: bool(upstream.scopes))
        assert left.wait(5)
        assert records_of(store)[0].error_category == "cancelled"


def test_an_upstream_that_answers_before_it_has_read_all_is_heard(store: Path, proxy: Proxy) -> None:
    async def too_large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": JSON_HEADERS})
        await send({"type": "http.response.body", "body": b'{"error": {"type": "request_too_large"}}'})

    with proxy(too_large) as (url, _), client() as http:
        response = http.post(url + PREFIXED_CHAT, content=b"x" * 20_000_000)
        assert response.status_code == 413
        assert records_of(store)[0].status_code == 413


def exchanged(url: str, sent: bytes) -> bytes:
    """What comes back for bytes that no client library would send, until the proxy closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


@pytest.mark.parametrize(
    "target", [f"http://model.local:8000{PREFIXED_CHAT}?a=%2F", f"HTTP://model.local{PREFIXED_CHAT}?a=%2F"]
)
def test_a_client_that_took_the_proxy_for_its_http_proxy_got_404(store: Path, proxy: Proxy, target: str) -> None:
    body = json.dumps(QUESTION).encode()
    head = f"POST {target} HTTP/1.1\r\nhost: model.local\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, upstream):
        assert exchanged(url, head.encode() + body).startswith(b"HTTP/1.1 200 ")
        assert (upstream.scopes[0]["raw_path"], upstream.scopes[0]["query_string"]) == (CHAT.encode(), b"a=%2F")
        assert records_of(store)[0].request["messages"] == QUESTION["messages"]


def test_the_bare_name_of_a_host_asks_for_its_root(store: Path, proxy: Proxy) -> None:
    with proxy(answering(b"{}")) as (url, upstream):
        exchanged(url, b"GET http://model.local HTTP/1.1\r\nhost: model.local\r\nconnection: close\r\n\r\n")
        assert upstream.scopes[0]["raw_path"] == b"/"


def test_a_length_beside_chunks_made_the_proxy_fail(store: Path, proxy: Proxy) -> None:
    body = json.dumps(QUESTION).encode()
    head = f"POST {PREFIXED_CHAT} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, upstream):
        for length in (3, len(body) + 5):
            sent = f"{head}content-length: {length}\r\n\r\n".encode() + chunks
            assert exchanged(url, sent).startswith(b"HTTP/1.1 200 ")
        assert "content-length" not in dict(upstream.headers)
        assert [record.request["messages"] for record in records_of(store, count=2)] == [QUESTION["messages"]] * 2


def test_an_answer_with_a_length_beside_chunks_is_whole(store: Path) -> None:
    body = json.dumps(ANSWER).encode()
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"
    )

    def answer_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_once, args=(listener,), daemon=True).start()
        upstream = upstream_of(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with served(server_config(proxy_app(upstream))) as url, client() as http:
            assert http.post(url + PREFIXED_CHAT, json=QUESTION).content == body


def test_expect_100_continue_is_answered_by_the_proxy(store: Path, proxy: Proxy) -> None:
    """As curl asks before it sends a long body."""
    with proxy(answering(b"{}")) as (url, upstream), client() as http:
        response = http.post(url + PREFIXED_CHAT, json=QUESTION, headers={"expect": "100-continue"})
    assert response.status_code == 200
    assert "expect" not in dict(upstream.headers)


def test_a_slow_reader_slows_the_upstream_and_not_the_proxys_memory(store: Path, proxy: Proxy) -> None:
    sent = 0

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
            sent += 65536
        await send({"type": "http.response.body", "body": b""})

    with proxy(flood) as (url, _), client() as http, http.stream("GET", url + "/files/large") as response:
        while sent == 0:
            time.sleep(0.01)
        before = -1
        while before != sent:
            before = sent
            time.sleep(0.2)
        assert sent < 40 * 2**20
        assert sum(len(chunk) for chunk in response.iter_raw()) == 1000 * 65536


def test_a_long_prompt_arrives_whole_chunked_or_not(store: Path, proxy: Proxy) -> None:
    question = {**QUESTION, "padding": "x" * 5_000_000}
    content = json.dumps(question).encode()
    sizes: list[int] = []

    async def measure(scope: Any, receive: Any, send: Any) -> None:
        sizes.append(len(await read_body(receive)))
        await answering(json.dumps(ANSWER).encode())(scope, _nothing_more, send)

    with proxy(measure) as (url, upstream), client() as http:
        http.post(url + PREFIXED_CHAT, content=content)
        http.post(url + PREFIXED_CHAT, content=(content[at : at + 100_000] for at in range(0, len(content), 100_000)))
        records = records_of(store, count=2)
    assert sizes == [len(content)] * 2
    assert dict(upstream.headers)["transfer-encoding"] == "chunked"
    assert [record.request for record in records] == [question] * 2


async def _nothing_more() -> dict[str, Any]:
    return {"type": "http.request"}


def test_calls_of_one_connection_do_not_descend_from_each_other(store: Path, proxy: Proxy) -> None:
    """A prompt above 64 kB used to leave its ended span current for the connection's next request."""
    question = {**QUESTION, "padding": "x" * 300_000}
    with proxy(answering(json.dumps(ANSWER).encode())) as (url, _), client() as http:
        for rollout_id in ("3-1", "3-2"):
            http.post(f"{url}/ng-rollout/{rollout_id}{CHAT}", json=question)
            records_of(store, rollout_id)
    traces = [{span.trace_id for span in spans_of(store, rollout_id)} for rollout_id in ("3-1", "3-2")]
    assert [len(trace) for trace in traces] == [1, 1]
    assert not traces[0] & traces[1]


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", 200, [(b"content-length", b"42")]),
        ("GET", 204, []),
        ("GET", 304, [(b"etag", b'"x"')]),
        ("DELETE", 404, []),
    ],
)
def test_answers_without_a_body_pass(
    store: Path, proxy: Proxy, method: str, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    with proxy(answering(b"", headers or [(b"x", b"y")], status)) as (url, upstream), client() as http:
        first = http.request(method, url + "/v1/anything%2Fhere")
        second = http.request(method, url + "/v1/anything")
    assert (first.status_code, second.status_code) == (status, status)
    assert first.headers.get("content-length") == dict(headers).get(b"content-length", b"0").decode() or status != 200
    assert upstream.scopes[0]["raw_path"] == b"/v1/anything%2Fhere"
    assert upstream.scopes[0]["method"] == method


def test_a_websocket_is_refused_and_the_server_goes_on(store: Path, proxy: Proxy) -> None:
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "eA==",
        "sec-websocket-version": "13",
    }
    with proxy(answering(b"{}")) as (url, upstream), client() as http:
        refused = http.get(f"{url}/ng-rollout/3-1/v1/responses", headers=upgrade)
        served_after = http.post(url + PREFIXED_CHAT, json=QUESTION)
    assert refused.status_code == 403
    assert served_after.status_code == 200
    assert len(upstream.scopes) == 1


def test_other_routes_pass_and_leave_no_model_call(store: Path, proxy: Proxy) -> None:
    with proxy(answering(b'{"data":[]}')) as (url, _), client() as http:
        assert http.get(f"{url}/v1/models").json() == {"data": []}
        assert http.post(f"{url}/ng-rollout/3-1/v1/messages/count_tokens", json=QUESTION).status_code == 200
    otel_gym.flush(10)
    assert records_of(store, count=0) == []


def test_below_an_upstream_with_v1_calls_without_it_worked_and_were_not_captured(tmp_path: Path) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await answering(json.dumps(ANSWER).encode(), status=200 if scope["path"] == CHAT else 404)(scope, receive, send)

    with served(upstream_config(Upstream(answer))) as upstream_url:
        for number, form in enumerate((upstream_url, f"{upstream_url}/v1")):
            store = tmp_path / str(number)
            arguments = ["--upstream", form, "--dir", str(store)]
            with proxy_process(arguments, stderr=subprocess.PIPE) as (process, url, _), client() as http:
                asked = f"{url}/ng-rollout/3-1"
                statuses = [http.post(asked + path, json=QUESTION).status_code for path in (CHAT, "/chat/completions")]
                process.terminate()
                said = process.communicate(timeout=15)[1]
            assert statuses == [200, 404]
            assert said.count("POST /chat/completions looks like a model call and is not captured") == 1
            assert len(records_of(store)) == 1
            assert Store(store).counts() == {"uncaptured_paths": 1}


@pytest.mark.parametrize(
    ("url", "path", "target"),
    [
        ("http://h:1", "/v1/messages", "/v1/messages"),
        ("http://h:1/", "/v1/messages", "/v1/messages"),
        ("http://h:1/v1", "/v1/messages", "/v1/messages"),
        ("http://h:1/v1/", "/v1/messages", "/v1/messages"),
        ("http://h:1/openai/v1", "/v1/responses", "/openai/v1/responses"),
        ("http://h:1/api", "/v1/responses", "/api/v1/responses"),
        ("http://h:1/v1", "/health", "/health"),
        ("http://h:1/v1", "/v1beta/models", "/v1beta/models"),
    ],
)
def test_upstream_urls_work_with_and_without_v1(url: str, path: str, target: str) -> None:
    assert upstream_of(url).target(path.encode(), b"") == target.encode()
    assert upstream_of(url).target(path.encode(), b"a=b") == f"{target}?a=b".encode()


def test_an_upstream_that_is_an_endpoint_was_taken_and_every_call_was_404() -> None:
    for path in ("/v1/chat/completions", "/v1/responses/", "/v1/messages"):
        with pytest.raises(UpstreamUrlError, match=r"give http://h:1/v1$"):
            upstream_of(f"http://h:1{path}")
    with pytest.raises(UpstreamUrlError, match=r"give http://h$"):
        upstream_of("http://h/chat/completions")
    assert upstream_of("http://h/openai/v1").base_path == b"/openai"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h/", "http://", "http://user:pw@h", "http://h/?key=1"])
def test_an_upstream_that_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(UpstreamUrlError):
        upstream_of(url)


def test_start_lines_name_base_urls_and_store() -> None:
    upstream = upstream_of("https://api.openai.com/v1")
    text = "\n".join(start_lines("http://127.0.0.1:1", upstream, Path("/s"), stores_unassigned=True))
    assert "forwarding to https://api.openai.com\n" in text
    assert "http://127.0.0.1:1/ng-rollout/<rollout id>/v1\n" in text
    assert "http://127.0.0.1:1/ng-rollout/<rollout id>\n" in text
    assert "/s" in text
    assert "/v1/responses, /v1/chat/completions, /v1/messages" in text


@contextmanager
def proxy_process(
    arguments: list[str], *, stderr: int | None = None, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """`otel-gym proxy`: the process, its URL, and all that it said on start."""
    command = [sys.executable, "-m", "otel_gym.cli", "proxy", "--port", "0", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT, env={**clean, **environment}, bufsize=1
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        said = first + "".join(iter(lambda: _line(process), "")) if "OTEL_GYM" not in environment else first
        yield process, re.search(r"http://127\.0\.0\.1:\d+", first)[0], said  # type: ignore[index]
    finally:
        process.kill()
        process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    return "" if line.startswith("read it with") else line


def test_a_proxy_that_is_stopped_has_written_every_call(tmp_path: Path) -> None:
    upstream = Upstream(answering(json.dumps(ANSWER).encode()))
    store = tmp_path / "store"
    with served(uvicorn.Config(upstream, lifespan="off", log_level="critical")) as upstream_url:
        arguments = ["--upstream", upstream_url, "--dir", str(store), "--run", "run-7"]
        with proxy_process(arguments) as (process, url, said), client() as http:
            assert http.post(url + PREFIXED_CHAT, json=QUESTION).status_code == 200
            assert http.post(url + CHAT, json=QUESTION).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
            assert process.stdout is not None
            assert process.stdout.read().splitlines()[-1] == "otel-gym proxy: 2 calls captured"
    assert str(store) in said
    stored = {rollout.address: len(model_call_records(rollout)) for rollout in Store(store).rollouts()}
    assert stored == {"run-7/3-1": 1, "run-7/unassigned": 1}


def test_with_otel_gym_0_the_proxy_forwards_and_says_that_it_captures_nothing(tmp_path: Path) -> None:
    upstream = Upstream(answering(b"{}"))
    store = tmp_path / "store"
    with served(uvicorn.Config(upstream, lifespan="off", log_level="critical")) as upstream_url:
        arguments = ["--upstream", upstream_url, "--dir", str(store)]
        with proxy_process(arguments, OTEL_GYM="0") as (process, url, _), client() as http:
            assert process.stdout is not None
            assert "nothing is captured" in process.stdout.readline()
            assert http.post(url + PREFIXED_CHAT, json=QUESTION).json() == {}
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 0
    assert upstream.scopes[0]["path"] == CHAT
    assert not store.exists()


def test_a_busy_port_is_said_before_anything_is_made(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from otel_gym.cli.main import app

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["proxy", "--upstream", "http://h", "--port", port, "--dir", str(tmp_path / "s")]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "cannot listen on 127.0.0.1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "s").exists()


def refused_start(arguments: list[str]) -> str:
    """What the command says as it refuses to start."""
    from typer.testing import CliRunner

    from otel_gym.cli.main import app

    result = CliRunner().invoke(app, ["proxy", "--upstream", "http://h", "--port", "0", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_a_proxy_into_a_foreign_folder_mixed_its_spans_into_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert "not a store of otel_gym" in refused_start(["--dir", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_proxy_whose_store_could_not_be_written_lost_every_call_and_ended_with_0(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused_start(["--dir", str(tmp_path / "file" / "store")])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "spans").write_text("")
    assert "cannot be written" in refused_start(["--dir", str(tmp_path / "store")])


def test_a_store_that_only_counted_so_far_is_one() -> None:
    from otel_gym.capture.store_folder import check_store_folder

    with TemporaryDirectory() as folder:
        (Path(folder) / "counts").mkdir()
        check_store_folder(Path(folder))


def test_lost_spans_are_said_at_the_end() -> None:
    assert end_line(3, 0) == "otel-gym proxy: 3 calls captured"
    assert end_line(3, 2) == "otel-gym proxy: 3 calls captured, 2 spans lost: the store could not be written"


def test_a_host_that_is_not_ours_blamed_the_port(tmp_path: Path) -> None:
    line = refused_start(["--host", "192.0.2.1", "--dir", str(tmp_path / "s")])
    assert "as --host" in line
    assert "--port" not in line


def test_otel_sdk_disabled_was_said_to_be_otel_gym_0(tmp_path: Path) -> None:
    with proxy_process(["--upstream", "http://h"], OTEL_GYM="1", OTEL_SDK_DISABLED="true") as (process, _, _):
        assert process.stdout is not None
        assert process.stdout.readline() == "OTEL_SDK_DISABLED=true: calls are forwarded and nothing is captured\n"


def never(begun: threading.Event, *, after_first_chunk: bool = False) -> App:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        if after_first_chunk:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        begun.set()
        await asyncio.sleep(60)

    return answer


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_ctrl_c_on_a_busy_proxy_hung_and_then_drew_tracebacks(tmp_path: Path, path: str) -> None:
    """The first says what is waited for, the second cuts; a call without an answer gets an error of its dialect."""
    begun = threading.Event()
    answers: list[httpx.Response] = []
    upstream = Upstream(never(begun))
    with served(upstream_config(upstream)) as upstream_url:
        arguments = ["--upstream", upstream_url, "--dir", str(tmp_path / "store")]
        with proxy_process(arguments, stderr=subprocess.PIPE) as (process, url, _), client() as http:
            asking = threading.Thread(
                target=lambda: answers.append(http.post(f"{url}{path}", json=QUESTION, timeout=30))
            )
            asking.start()
            assert begun.wait(10)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            said, problems = process.communicate(timeout=15)
            asking.join(10)
            assert time.monotonic() - started < 4
    assert process.returncode == 0
    assert "Traceback" not in problems
    assert "waiting up to 5 s for the calls under way (1), Ctrl-C cuts them" in problems
    assert said.splitlines()[-1] == "otel-gym proxy: 1 call captured"
    (answer,) = answers
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "api_error"
    assert (answer.json().get("type") == "error") is (path == "/v1/messages")
    (record,) = [each for rollout in Store(tmp_path / "store").rollouts() for each in model_call_records(rollout)]
    assert record.error_category == "cancelled"


def test_a_call_that_outlasts_the_grace_is_cut_and_said_in_a_users_words() -> None:
    uvicorns = "Cancel %s running task(s), timeout graceful shutdown exceeded"
    assert uvicorns in inspect.getsource(uvicorn.Server.shutdown)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, uvicorns, (1,), None)
    assert say_cut_calls(record)
    said = (record.levelname, record.getMessage())
    assert said == ("WARNING", "1 calls did not end within 5 s: cut, and recorded as cancelled")


def test_a_stream_that_is_cut_at_the_end_does_not_look_whole(tmp_path: Path) -> None:
    begun = threading.Event()
    upstream = Upstream(never(begun, after_first_chunk=True))
    with served(upstream_config(upstream)) as upstream_url:
        arguments = ["--upstream", upstream_url, "--dir", str(tmp_path / "store")]
        with proxy_process(arguments, stderr=subprocess.PIPE) as (process, url, _), client() as http:
            with http.stream("POST", url + CHAT, json=QUESTION) as response:
                chunks = response.iter_raw()
                assert next(chunks) == b"data: {}\n\n"
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
                with pytest.raises(httpx.RemoteProtocolError):
                    list(chunks)
            _, problems = process.communicate(timeout=15)
    assert process.returncode == 0
    assert "Traceback" not in problems
