"""``otel-gym receive`` with the exporters that programs really use, and with what they must not send."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from otel_gym.store.otlp_json import parse_document
from tests.otlp.conftest import Receive, RunningReceiver, spans_by_rollout
from tests.otlp.messages import TRACE, full_request, request, span

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}

EXPORTERS: dict[str, Callable[[RunningReceiver], SpanExporter]] = {
    "http": lambda to: HttpExporter(endpoint=to.traces),
    "http gzip": lambda to: HttpExporter(endpoint=to.traces, compression=Compression.Gzip),
    "http deflate": lambda to: HttpExporter(endpoint=to.traces, compression=Compression.Deflate),
    "grpc": lambda to: GrpcExporter(endpoint=to.grpc, insecure=True),
    "grpc gzip": lambda to: GrpcExporter(endpoint=to.grpc, insecure=True, compression=grpc.Compression.Gzip),
}


def post(to: RunningReceiver, message: ExportTraceServiceRequest | bytes, **headers: str) -> httpx.Response:
    content = message if isinstance(message, bytes) else message.SerializeToString()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(to.traces, content=content, headers=PROTOBUF | named)


def test_a_slash_behind_the_path_was_answered_with_a_redirect_that_exporters_take_for_a_success(
    receive: Receive,
) -> None:
    to = receive()
    answers = [httpx.post(f"{to.http}/v1/{path}/", content=b"", headers=PROTOBUF) for path in ("traces", "metrics")]
    assert [answer.status_code for answer in answers] == [200, 200]


def rejected(response: httpx.Response) -> tuple[int, str]:
    partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    return partial.rejected_spans, partial.error_message


def lines_of(directory: Path) -> list[Any]:
    files = sorted(directory.glob("spans/*/*.jsonl"))
    return [parse_document(line) for file in files for line in file.read_bytes().splitlines()]


def message_of(document: Any) -> TracesData:
    """As the official parser of JSON reads it; it takes ids for base64."""

    def with_base64(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: with_base64(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [with_base64(item) for item in value]
        is_id = key in ("traceId", "spanId", "parentSpanId")
        return base64.b64encode(bytes.fromhex(value)).decode() if is_id else value

    return ParseDict(with_base64(document), TracesData())


def test_each_exporter_of_the_sdk_is_taken_with_a_megabyte_in_an_attribute(receive: Receive) -> None:
    receiver = receive()
    for number, new_exporter in enumerate(EXPORTERS.values()):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(new_exporter(receiver)))
        tracer = provider.get_tracer("agent", "1.0")
        big = {"big": "é" * 500_000, "bytes": b"\x00\xff"}
        with (
            tracer.start_as_current_span("rollout", attributes={"gym.rollout.id": f"{number}-0"}),
            tracer.start_as_current_span("chat m", attributes=big),
        ):
            pass
        provider.shutdown()
    code, said, problems = receiver.stop()
    assert (code, problems) == (0, "")
    assert said.splitlines()[-1] == "otel-gym receive: 10 spans taken"
    stored = spans_by_rollout(receiver.directory)
    assert sorted(stored) == [f"{number}-0" for number in range(len(EXPORTERS))]
    for spans in stored.values():
        root, chat = spans
        assert (root.name, chat.name, chat.parent_span_id) == ("rollout", "chat m", root.span_id)
        assert chat.attributes == {"big": "é" * 500_000, "bytes": b"\x00\xff"}


def test_a_span_is_kept_whole_as_it_came(receive: Receive) -> None:
    receiver = receive()
    sent = full_request()
    assert rejected(post(receiver, sent)) == (0, "")
    receiver.stop()
    [line] = lines_of(receiver.directory)
    stored = message_of(line)
    in_scope = stored.resource_spans[0].scope_spans[0].scope.attributes
    assert in_scope.pop().key == "gym.store.version"
    assert stored.SerializeToString() == sent.SerializeToString()


def test_ids_on_the_resource_and_old_names_name_the_rollout_too(receive: Receive) -> None:
    receiver = receive()
    post(receiver, request(span(1), resource={"gym.rollout.id": "1-0"}))
    post(receiver, request(span(2, attributes={"nemo.gym.rollout.id": "2-0"})))
    post(receiver, request(span(3, attributes={"gym.rollout.id": "unassigned"}), resource={"gym.rollout.id": "3-0"}))
    post(receiver, request(span(4, attributes={"gym.rollout.id": "../4"})))
    post(receiver, request(span(5)))
    receiver.stop()
    names = {name: [each.name for each in spans] for name, spans in spans_by_rollout(receiver.directory).items()}
    assert names == {"1-0": ["span 1"], "2-0": ["span 2"], "3-0": ["span 3"], "unassigned": ["span 4", "span 5"]}


def test_a_child_that_comes_before_its_parent_leaves_unassigned(receive: Receive) -> None:
    receiver = receive()
    post(receiver, request(span(3, parent=2)))
    post(receiver, request(span(2, parent=1), span(7, parent=6)))
    assert [each.name for each in spans_by_rollout(receiver.directory)["unassigned"]] == ["span 2", "span 3", "span 7"]
    post(receiver, request(span(1, attributes={"gym.rollout.id": "1-0"})))
    post(receiver, request(span(4, parent=3)))
    receiver.stop()
    names = {name: [each.name for each in spans] for name, spans in spans_by_rollout(receiver.directory).items()}
    assert names == {"1-0": ["span 1", "span 2", "span 3", "span 4"], "unassigned": ["span 7"]}


def test_spans_of_several_processes_stand_in_one_file_of_the_receiver(receive: Receive) -> None:
    receiver = receive()
    for number, host in enumerate(("a", "b")):
        ids = {"gym.rollout.id": "1-0"}
        post(receiver, request(span(number + 1, attributes=ids), resource={"host.name": host}))
    receiver.stop()
    [folder] = (receiver.directory / "spans").iterdir()
    assert len(list(folder.iterdir())) == 1
    assert [each.resource["host.name"] for each in spans_by_rollout(receiver.directory)["1-0"]] == ["a", "b"]


def test_two_receivers_write_one_store(receive: Receive) -> None:
    receivers = [receive(), receive()]
    for number in range(20):
        post(receivers[number % 2], request(span(number + 1, attributes={"gym.rollout.id": "1-0"})))
    for receiver in receivers:
        receiver.stop()
    assert len(spans_by_rollout(receivers[0].directory)["1-0"]) == 20


def test_what_was_acknowledged_is_there_after_a_kill(receive: Receive) -> None:
    receiver = receive()
    stub = TraceServiceStub(grpc.insecure_channel(receiver.grpc))
    for number in range(50):
        message = request(span(2 * number + 1, attributes={"gym.rollout.id": f"{number % 3}-0", "text": "x" * 50_000}))
        assert post(receiver, message).status_code == 200
        stub.Export(request(span(2 * number + 2, attributes={"gym.rollout.id": f"{number % 3}-0"})))
    receiver.stop(signal.SIGKILL)
    stored = spans_by_rollout(receiver.directory)
    assert sorted(each.name for spans in stored.values() for each in spans) == sorted(
        f"span {n + 1}" for n in range(100)
    )


def test_spans_with_ids_that_are_none_are_refused_and_counted(receive: Receive) -> None:
    receiver = receive()
    ids = {"gym.rollout.id": "1-0"}
    good = span(1, attributes=ids)
    bad = [
        span(2, attributes=ids, trace_id=b"short"),
        span(3, attributes=ids, span_id=bytes(8)),
        span(4, attributes=ids, parent_span_id=b"x"),
    ]
    number, problem = rejected(post(receiver, request(*bad, good)))
    assert number == 3 and "16 bytes" in problem
    answered = TraceServiceStub(grpc.insecure_channel(receiver.grpc)).Export(request(bad[0]))
    assert answered.partial_success.rejected_spans == 1
    in_json = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "5", "spanId": "6", "name": "x"}]}]}]}
    response = httpx.post(receiver.traces, json=in_json)
    assert response.json()["partialSuccess"]["rejectedSpans"] == "1"
    code, said, _ = receiver.stop()
    assert code == 0 and said.endswith("1 span taken, 5 refused\n")
    assert [each.name for each in spans_by_rollout(receiver.directory)["1-0"]] == ["span 1"]
    [counts] = (receiver.directory / "counts").iterdir()
    assert json.loads(counts.read_bytes()) == {"refused_spans": 5}


BODIES: list[tuple[bytes, dict[str, str], int]] = [
    (b"\xff\xff\xff", {}, 400),
    (b"no json", JSON, 400),
    (b"[]", JSON, 400),
    (b'{"resourceSpans": 5}', JSON, 400),
    (b"hello", {"content-encoding": "gzip"}, 400),
    (gzip.compress(b"\x00" * 100_000)[:-20], {"content-encoding": "gzip"}, 400),
    (b"", {"content-type": "text/plain"}, 415),
    (b"", {"content-encoding": "br"}, 415),
    (b"", {}, 200),
    (b"{}", JSON, 200),
]


def test_a_body_that_is_no_message_is_said_so(receive: Receive) -> None:
    receiver = receive()
    for content, headers, status in BODIES:
        response = httpx.post(receiver.traces, content=content, headers=PROTOBUF | headers)
        assert response.status_code == status, (content, headers)
        if status != 200 and headers is not JSON:
            assert Status.FromString(response.content).message
    assert post(receiver, request(span(1, attributes={"gym.rollout.id": "1-0"}))).status_code == 200
    assert receiver.stop()[0] == 0


def test_a_few_bytes_that_stand_for_a_gigabyte_are_refused(receive: Receive) -> None:
    receiver = receive()
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    assert post(receiver, bomb, content_encoding="gzip").status_code == 413
    stub = TraceServiceStub(grpc.insecure_channel(receiver.grpc))
    call = grpc.insecure_channel(receiver.grpc).unary_unary(
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export", request_serializer=None
    )
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(1 << 28), compression=grpc.Compression.Gzip)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    stub.Export(request(span(1, attributes={"gym.rollout.id": "1-0"})))
    status = Path(f"/proc/{receiver.process.pid}/status")
    if status.exists():
        [peak] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        assert int(peak.split()[1]) < 500_000  # kB
    receiver.stop()


def test_json_is_taken_as_well_as_protobuf(receive: Receive) -> None:
    receiver = receive()
    document = MessageToDict(request(span(1, attributes={"gym.rollout.id": "1-0", "n": 2**60})))
    response = httpx.post(receiver.traces, json=document, headers={"content-type": "application/json; charset=utf-8"})
    assert (response.status_code, response.json()) == (200, {})
    receiver.stop()
    [stored] = spans_by_rollout(receiver.directory)["1-0"]
    assert stored.trace_id == TRACE.hex() and stored.attributes["n"] == 2**60


def test_metrics_and_logs_are_answered_and_said_once(receive: Receive) -> None:
    receiver = receive()
    for _ in range(2):
        assert httpx.post(f"{receiver.http}/v1/metrics", content=b"abc", headers=PROTOBUF).status_code == 200
    LogsServiceStub(grpc.insecure_channel(receiver.grpc)).Export(ExportLogsServiceRequest())
    _, said, problems = receiver.stop()
    assert said.endswith("0 spans taken, 3 messages of metrics and logs not kept\n")
    assert problems.count("metrics come in too") == problems.count("logs come in too") == 1


def test_a_store_that_cannot_be_written_asks_senders_to_try_again(receive: Receive) -> None:
    receiver = receive()
    in_the_way = receiver.directory / "spans" / "rollout_id=1-0"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_bytes(b"")
    message = request(span(1, attributes={"gym.rollout.id": "1-0"}), span(2, attributes={"gym.rollout.id": "2-0"}))
    response = post(receiver, message)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    with pytest.raises(grpc.RpcError) as refused:
        TraceServiceStub(grpc.insecure_channel(receiver.grpc)).Export(message)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    in_the_way.unlink()
    assert post(receiver, message).status_code == 200
    receiver.stop()
    assert {name: len(spans) for name, spans in spans_by_rollout(receiver.directory).items()} == {"1-0": 1, "2-0": 1}


def test_secrets_never_reach_the_disk(receive: Receive) -> None:
    receiver = receive()
    secret = "sk-" + "A1b2C3d4" * 6
    said = {"gym.rollout.id": "1-0", "api_key": "hunter22", "gym.request.body": f'{{"k":"{secret}"}}', "text": secret}
    post(receiver, request(span(1, attributes=said), resource={"authorization": "Bearer abcdef0123456789"}))
    of_process = {"process.command_args": ["--api-key=canary-1", "--token", "canary-2"], "api.key": "canary-3"}
    post(receiver, request(span(2, attributes={"gym.rollout.id": "1-0"}), resource=of_process))
    receiver.stop()
    written = b"".join(path.read_bytes() for path in receiver.directory.rglob("*") if path.is_file())
    for hidden in (secret, "hunter22", "abcdef0123456789", "canary"):
        assert hidden.encode() not in written


def test_content_none_leaves_out_what_was_said(receive: Receive) -> None:
    receiver = receive(OTEL_GYM_CONTENT="none")
    said = {"gym.rollout.id": "1-0", "gym.request.body": "hello", "gen_ai.prompt.0.content": "hello", "n": 1}
    post(receiver, request(span(1, attributes=said)))
    receiver.stop()
    [stored] = spans_by_rollout(receiver.directory)["1-0"]
    assert stored.attributes == {"gym.rollout.id": "1-0", "n": 1}


def test_requests_that_grow_are_stored_once(receive: Receive) -> None:
    receiver = receive()
    bodies = ['{"messages":[' + ",".join(f'"{"x" * 2000} {n}"' for n in range(count)) + "]}" for count in (5, 6, 7)]
    for number, body in enumerate(bodies):
        said = {"gym.rollout.id": "1-0", "gym.request.body": body, "gym.response.body": "é"}
        post(receiver, request(span(number + 1, attributes=said)))
    receiver.stop()
    [file] = (receiver.directory / "spans").glob("*/*")
    assert file.stat().st_size < len("".join(bodies))
    stored = spans_by_rollout(receiver.directory)["1-0"]
    assert [each.body("gym.request.body") for each in stored] == bodies


def test_with_the_sealed_form_ended_rollouts_become_parquet(receive: Receive) -> None:
    receiver = receive(OTEL_GYM_FORMAT="parquet")
    ids = {"gym.rollout.id": "1-0"}
    post(receiver, request(span(1, name="rollout", attributes=ids), span(2, parent=1)))
    deadline = time.monotonic() + 20
    while not any(receiver.directory.glob("parquet/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert any(receiver.directory.glob("parquet/*.parquet"))
    post(receiver, request(span(3, parent=1)))
    receiver.stop()
    assert [each.name for each in spans_by_rollout(receiver.directory)["1-0"]] == ["rollout", "span 2", "span 3"]
    assert not any(receiver.directory.glob("spans/*/*.jsonl"))


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_a_port_that_is_taken_ends_with_2(receive: Receive, tmp_path: Path, option: str) -> None:
    receiver = receive()
    taken = (receiver.http if option == "--http" else receiver.grpc).rpartition(":")[2]
    ports = {"--http": "0", "--grpc": "0"} | {option: taken}
    arguments = [text for pair in ports.items() for text in pair]
    command = [sys.executable, "-m", "otel_gym.cli", "receive", *arguments, "--dir", str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"give another {option}" in done.stderr and "Traceback" not in done.stderr


def test_when_turned_off_nothing_is_received(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_gym.cli", "receive", "--http", "0", "--grpc", "0", "--dir", str(tmp_path)]
    done = subprocess.run(command, env=os.environ | {"OTEL_GYM": "0"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "OTEL_GYM=0" in done.stderr


def test_many_senders_at_a_time_are_all_told(receive: Receive) -> None:
    receiver = receive()
    channel = grpc.insecure_channel(receiver.grpc)
    stub = TraceServiceStub(channel)

    def one(number: int) -> None:
        message = request(span(number, attributes={"gym.rollout.id": f"{number % 5}-0", "text": "x" * 20_000}))
        if number % 2:
            assert post(receiver, message).status_code == 200
        else:
            stub.Export(message)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(1, 301)))
    receiver.stop()
    assert sum(map(len, spans_by_rollout(receiver.directory).values())) == 300


def test_a_receiver_that_is_behind_asks_senders_to_wait(receive: Receive) -> None:
    """Two large messages at a time are more than the room: one is taken, the other is told when to come again."""
    receiver = receive(OTEL_GYM_QUEUE_BYTES="1000000")
    message = request(*(span(n, attributes={"gym.rollout.id": "1-0", "t": "x" * 10_000}) for n in range(1, 1001)))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(receiver, message), range(16)))
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 503)
    assert post(receiver, message).status_code == 200
    receiver.stop()
    assert len(spans_by_rollout(receiver.directory)["1-0"]) == 1000
