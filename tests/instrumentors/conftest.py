"""Real clients against a server that says which headers it was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import pytest

from otel_gym.capture.instrumentors import INSTRUMENTORS


class EchoServer(ThreadingHTTPServer):
    """``seen``: path and headers of each request; /redirect/URL leads to URL, /v1/… is a model."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, list[tuple[str, str]]]] = []

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_address[1]}"

    def all(self, name: str) -> list[list[str]]:
        """The values of a header, for each request."""
        return [[value for key, value in headers if key.lower() == name] for _, headers in self.seen]


_ANSWERS = {
    "/v1/chat/completions": b'{"id":"c","object":"chat.completion","created":1,"model":"toy","choices":[]}',
    "/v1/messages": b'{"id":"m","type":"message","role":"assistant","model":"toy","content":[],"stop_reason":'
    b'"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}',
}


class _Handler(BaseHTTPRequestHandler):
    server: EchoServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.seen.append((self.path, list(self.headers.items())))
        body = _ANSWERS.get(self.path, b"{}")
        if self.path.startswith("/redirect/"):
            self.send_response(307)
            self.send_header("location", self.path.removeprefix("/redirect/"))
        else:
            self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def instrumented() -> Iterator[None]:
    """Every library of the table, as ``otel-gym run`` has them."""
    found = []
    for target in INSTRUMENTORS.values():
        module, _, name = target.partition(":")
        found.append(getattr(import_module(module), name)())
    for instrumentor in found:
        instrumentor.instrument()
    yield
    for instrumentor in found:
        instrumentor.uninstrument()
