"""``otel-gym send``: into ``otel-gym receive``, and against endpoints that refuse, break off or are not there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.ingest.otlp.json_text import spans_of_json
from otel_gym.ingest.otlp.proto import spans_of_proto
from otel_gym.store.decode import decode_line
from otel_gym.store.span import Origin, SpanEvent, SpanLink, StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.views.otlp.messages import SentForm, Told, messages_of
from otel_gym.views.otlp.sending import SendError, new_sender
from tests.otlp.conftest import Receive, spans_by_rollout
from tests.store.lines import encoded, live_file, write

WHOLE = ("--content", "--attribute-bytes", "0")
BODY = "gym.request.body"


def send(endpoint: str, directory: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["send", "--endpoint", endpoint, "--dir", str(directory), *options])


def store_of(directory: Path, count: int = 3, **attributes: Any) -> Path:
    write(live_file(directory), *(encoded(str(number), **attributes) for number in range(1, count + 1)))
    return directory


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "store"
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--dir", str(directory), "--rollouts", "4"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return directory


def records(directory: Path) -> list[Any]:
    result = CliRunner().invoke(app, ["export", "model-calls", "--all", "--dir", str(directory)])
    assert result.exit_code == 0, result.output
    return list(map(json.loads, result.stdout.splitlines()))


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_demos_records_are_the_same_after_send_and_receive(
    demo: Path, receive: Receive, protocol: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    receiver = receive()
    endpoint = receiver.grpc if protocol == "grpc" else receiver.http
    result = send(endpoint, demo, "--protocol", protocol, *WHOLE)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    receiver.stop()
    assert records(receiver.directory) == records(demo) != []
    sent, came = spans_by_rollout(demo), spans_by_rollout(receiver.directory)
    for rollout_id, spans in sent.items():
        for one, other in zip(spans, came[rollout_id], strict=True):
            assert replace(one, attributes={}, blobs=None) == replace(other, attributes={}, blobs=None)
            assert (one.flags, one.trace_state) == (other.flags, other.trace_state)
            assert (one.origin.scope_version, one.origin.schema_url) == (
                other.origin.scope_version,
                other.origin.schema_url,
            )


def test_what_was_sent_again_never_grew_out_of_itself(tmp_path: Path, receive: Receive) -> None:
    """A sender that got no answer sends again; the body of the first copy was lost with the second."""
    bodies = ['{"messages":[' + ",".join(f'"{"x" * 2000} {n}"' for n in range(count)) + "]}" for count in (5, 6, 7)]
    said = [{"gym.request.body": body, "gym.rollout.id": "1-0"} for body in bodies]
    lines = [encoded(str(number), **attributes) for number, attributes in enumerate(said, 1)]
    directory = write(live_file(tmp_path / "source"), *lines).parents[2]
    receiver = receive()
    for _ in range(3):
        assert send(receiver.http, directory, "--protocol", "http/protobuf", *WHOLE).exit_code == 0
    receiver.stop()
    assert [each.body(BODY) for each in spans_by_rollout(receiver.directory)["1-0"]] == bodies


def test_the_slim_form_is_the_default(tmp_path: Path, receive: Receive) -> None:
    store_of(tmp_path / "source", 1, **{BODY: "secret plan", "long": "y" * 5000})
    receiver = receive()
    assert send(receiver.http, tmp_path / "source", "--protocol", "http/protobuf").exit_code == 0
    receiver.stop()
    [stored] = spans_by_rollout(receiver.directory)["1-0"]
    assert BODY not in stored.attributes and len(stored.attributes["long"].encode()) <= 2000
    assert stored.attributes["gym.otlp.cut"] == ["long=5000"]


def test_what_nemo_gym_captured_was_sent_though_content_was_not_asked_for(tmp_path: Path, receive: Receive) -> None:
    said = {"gym__capture__content": '{"response":"secret plan"}', "gym__atif__final__extra": '{"note":"secret plan"}'}
    receiver = receive(tmp_path / "other")
    result = send(receiver.http, store_of(tmp_path / "store", 1, **said), "--protocol", "http/protobuf")
    assert result.exit_code == 0, result.output
    receiver.stop()
    [span] = spans_by_rollout(receiver.directory)["1-0"]
    assert "secret plan" not in str(span.attributes)


def test_one_rollout_is_sent_where_it_is_named(tmp_path: Path, receive: Receive) -> None:
    write(live_file(tmp_path / "source", "1-0"), encoded("1"))
    write(live_file(tmp_path / "source", "2-0"), encoded("2", rollout="2-0"))
    receiver = receive()
    result = send(receiver.http, tmp_path / "source", "2-0", "--protocol", "http/protobuf")
    assert result.stdout.startswith("1 span of 1 rollout sent in 1 message")
    assert send(receiver.http, tmp_path / "source", "9-9").exit_code == 2
    receiver.stop()
    assert list(spans_by_rollout(receiver.directory)) == ["2-0"]


def test_open_spans_are_not_sent_and_said(tmp_path: Path, receive: Receive) -> None:
    write(live_file(tmp_path / "source"), encoded("1"), encoded("2", end=None))
    receiver = receive()
    result = send(receiver.http, tmp_path / "source", "--protocol", "http/protobuf")
    assert "1 spans never ended, and are not sent" in result.stdout


class _Endpoint(BaseHTTPRequestHandler):
    """Answers with what the server says, one after the other; the last again and again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        server: Any = self.server
        server.bodies.append(body)
        status, content = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


Serve = Callable[..., Any]


@pytest.fixture
def endpoint() -> Iterator[Serve]:
    servers = []

    def start(*answers: tuple[int, bytes]) -> Any:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
        server.answers, server.bodies = list(answers), []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()


PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
).SerializeToString()


def test_refusals_are_counted_and_end_with_1(tmp_path: Path, endpoint: Serve) -> None:
    result = send(endpoint((200, PARTIAL)).url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert (result.exit_code, result.stdout) == (1, "1 span of 1 rollout sent in 1 message\n")
    assert result.stderr == "otel-gym: 2 spans were refused: too old\n"
    result = send(endpoint((400, b"no")).url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert result.exit_code == 1 and "3 spans were refused: HTTP 400: no" in result.stderr


def test_an_endpoint_that_is_behind_is_asked_again(tmp_path: Path, endpoint: Serve) -> None:
    server = endpoint((503, b"later"), (429, b"later"), (200, b""))
    assert send(server.url, store_of(tmp_path), "--protocol", "http/protobuf").exit_code == 0
    assert len(server.bodies) == 3 and len(set(server.bodies)) == 1


def test_an_endpoint_that_does_not_take_anything_ends_with_2(tmp_path: Path, endpoint: Serve) -> None:
    result = send(endpoint((404, b"nothing here")).url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert result.exit_code == 2 and "HTTP 404: nothing here" in result.stderr
    for protocol in ("http/protobuf", "grpc"):
        result = send("http://127.0.0.1:1", store_of(tmp_path), "--protocol", protocol)
        assert result.exit_code == 2 and "127.0.0.1:1" in result.stderr and "efused" in result.stderr


def test_send_to_an_http_port_of_its_own_took_ten_seconds_and_named_no_cure(
    tmp_path: Path, receive: Receive, endpoint: Serve
) -> None:
    """Any port but 4318 is taken for gRPC's, where no protocol is named."""
    receiver, source = receive(), store_of(tmp_path / "source")
    for url in (receiver.http, endpoint((200, b"")).url):
        result = send(url, source)
        assert result.exit_code == 2 and result.stdout == ""
        assert "answers in HTTP/1" in result.stderr and "give --protocol http/protobuf" in result.stderr
    result = send(receiver.grpc, source, "--protocol", "http/protobuf")
    assert (
        result.exit_code == 2 and "does not answer in HTTP/1; if it takes gRPC, give --protocol grpc" in result.stderr
    )
    receiver.stop()


def test_a_peer_of_another_protocol_is_not_tried_again(endpoint: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = []
    answer = _Endpoint.handle
    monkeypatch.setattr(_Endpoint, "handle", lambda self: (accepted.append(self), answer(self))[1])
    with pytest.raises(SendError, match="--protocol http/protobuf"):
        new_sender(endpoint((200, b"")).url, "grpc", {}).send(b"")
    assert len(accepted) == 1


def test_messages_stay_below_the_limit_with_a_megabyte_in_each_span(tmp_path: Path, endpoint: Serve) -> None:
    server = endpoint((200, b""))
    store_of(tmp_path, 9, long="é" * 500_000)
    assert send(server.url, tmp_path, "--protocol", "http/protobuf", *WHOLE).exit_code == 0
    assert len(server.bodies) > 2 and max(map(len, server.bodies)) < 4 * 1024 * 1024
    spans = [
        span
        for body in server.bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for span in group.scope_spans[0].spans
    ]
    assert len(spans) == 9


def test_a_span_larger_than_a_message_is_cut_to_fit_and_said(tmp_path: Path, endpoint: Serve) -> None:
    server = endpoint((200, b""))
    store_of(tmp_path, 1, long="x" * 9_000_000, other="y" * 9_000_000)
    result = send(server.url, tmp_path, "--protocol", "http/protobuf", *WHOLE)
    assert "1 spans alone were larger than a message, and are cut" in result.stdout
    [body] = server.bodies
    assert len(body) < 4 * 1024 * 1024


def test_headers_of_the_standard_variable_are_sent(
    tmp_path: Path, endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(_Endpoint, "do_GET", None, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=gym")
    server = endpoint((200, b""))
    answer = _Endpoint.do_POST

    def noting(self: Any) -> None:
        seen.append(self.headers["x-team"])
        answer(self)

    monkeypatch.setattr(_Endpoint, "do_POST", noting)
    send(server.url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert seen == ["gym"]


def test_a_wrong_protocol_ends_with_2(tmp_path: Path) -> None:
    assert send("http://127.0.0.1:1", store_of(tmp_path), "--protocol", "http/json").exit_code == 2


# --- what is sent is what is stored, whatever it is

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
attribute_sets = st.dictionaries(texts, values, max_size=5)
times = st.integers(1, 2**63 - 1)
counts = st.integers(0, 2**20)
trace_ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")


@st.composite
def stored_spans(draw: st.DrawFn) -> StoredSpan:
    events = draw(st.lists(st.builds(SpanEvent, texts, times, attribute_sets, counts), max_size=2))
    links = draw(
        st.lists(
            st.builds(SpanLink, trace_ids, span_ids, attribute_sets, texts, st.integers(0, 1023), counts), max_size=2
        )
    )
    own, of_events, of_links = draw(counts), draw(counts), draw(counts)
    return StoredSpan(
        draw(trace_ids),
        draw(span_ids),
        draw(st.none() | span_ids),
        draw(texts),
        draw(st.integers(0, 5)),
        draw(times),
        draw(times),
        draw(attribute_sets),
        events,
        links,
        draw(st.integers(0, 2)),
        draw(st.none() | texts.filter(bool)),
        draw(attribute_sets),
        draw(st.none() | texts.filter(bool)),
        own + of_events + of_links + sum(event.dropped for event in events) + sum(link.dropped for link in links),
        None,
        draw(texts),
        draw(st.integers(0, 1023)),
        of_events,
        of_links,
        draw(st.builds(Origin, texts, attribute_sets, counts, texts, texts, counts)),
    )


def fields(span: StoredSpan) -> dict[str, Any]:
    """All of them, with their types: 1 is not 1.0, and -0.0 not 0.0."""
    return {name: repr(getattr(span, name)) for name in StoredSpan.__slots__}


@given(stored_spans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_span_comes_back_from_protobuf_and_from_json_as_it_was(stored: StoredSpan) -> None:
    [message] = messages_of([stored], SentForm(0, True, 1 << 30), Told())
    [from_proto] = spans_of_proto(message.content).spans
    line = line_of_span(stored)
    [from_json], [from_store] = spans_of_json(line).spans, decode_line(line)
    assert fields(from_proto) == fields(from_json) == fields(from_store) == fields(stored)


def test_an_endpoint_without_a_host_is_one_clear_error(tmp_path: Path) -> None:
    """gRPC's own words came for it."""
    for url in ("", "http://", "http://["):
        result = send(url, store_of(tmp_path))
        assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "names no host" in result.stderr


def test_a_header_that_cannot_be_read_is_said_without_its_text(
    tmp_path: Path, endpoint: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer canary")
    result = send(endpoint((200, b"")).url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert result.exit_code == 0 and "OTEL_EXPORTER_OTLP_HEADERS is no name=value" in result.stderr
    assert "canary" not in result.output + caplog.text


def test_an_answer_that_drips_ends_after_the_timeout(
    tmp_path: Path, endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of it started the timeout anew, and send never ended."""
    left = threading.Event()

    def drip(self: Any) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not left.wait(0.05):
            self.wfile.write(b"a")

    monkeypatch.setattr(_Endpoint, "do_POST", drip)
    monkeypatch.setattr("otel_gym.views.otlp.sending._TIMEOUT_S", 0.5)
    result = send(endpoint((200, b"")).url, store_of(tmp_path), "--protocol", "http/protobuf")
    left.set()
    assert result.exit_code == 2 and "its answer did not end within 0.5 s" in result.stderr


def test_a_wait_that_the_endpoint_asks_for_is_said(
    tmp_path: Path, endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 429 and Retry-After nothing was to be seen for minutes."""
    monkeypatch.setattr("otel_gym.views.otlp.sending._MOST_BACKOFF_S", 0)
    server = endpoint((429, b""), (200, b""))
    send_headers = _Endpoint.end_headers
    monkeypatch.setattr(
        _Endpoint, "end_headers", lambda self: (self.send_header("retry-after", "1"), send_headers(self))[1]
    )
    result = send(server.url, store_of(tmp_path), "--protocol", "http/protobuf")
    assert result.exit_code == 0 and "asks to wait: tried again in 1 s" in result.stderr
