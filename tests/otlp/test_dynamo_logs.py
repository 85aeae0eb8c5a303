"""Logs of Dynamo's sink ``otel``: over HTTP and gRPC, and from files, become the spans of ``import dynamo``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from otel_gym.store.reader import Store
from otel_gym.store.span import NO_ORIGIN, StoredSpan
from tests.otlp.conftest import Receive, RunningReceiver

T0 = 1777312800000
CONTEXT = {"session_id": "run-1:planner", "parent_session_id": "run-1"}


def record(event_type: str, at: int, **said: Any) -> dict[str, Any]:
    schema = {"schema": "dynamo.request.trace.v1", "event_type": event_type, "event_time_unix_ms": at}
    return {**schema, **said}


REQUEST = {
    "request_id": "6ba0f973-2b95-4152-b710-1c2e5a743892",
    "model": "qwen",
    "input_tokens": 12,
    "output_tokens": 5,
    "request_received_ms": T0,
    "ttft_ms": 22.75,
    "total_time_ms": 100.4,
    "worker": {"decode_worker_id": 7587894923333011487},
}
PAYLOAD = {
    "request_id": REQUEST["request_id"],
    "endpoint": "openai.chat_completion",
    "model": "qwen",
    "request": {"model": "qwen", "messages": [{"role": "user", "content": "Hello"}]},
    "response": {
        "id": "chatcmpl-" + str(REQUEST["request_id"]),
        "object": "chat.completion",
        "model": "qwen",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
    },
    "payload_complete": True,
}
TOOL = {"tool_call_id": "c1", "tool_class": "search", "started_at_unix_ms": T0 + 101, "ended_at_unix_ms": T0 + 140}
TOO_LARGE = {
    "request_id": "r2",
    "endpoint": "openai.chat_completion",
    "model": "qwen",
    "payload_complete": False,
    "payload_drop_reason": "otel_payload_too_large:max_bytes=4194304:actual_bytes=5000000",
}
RECORDS = [
    record("request_payload", T0 + 99, payload=PAYLOAD),
    record("request_end", T0 + 100, event_source="dynamo", agent_context=CONTEXT, request=REQUEST),
    record("tool_end", T0 + 140, event_source="harness", agent_context=CONTEXT, tool={**TOOL, "status": "succeeded"}),
    record("request_payload", T0 + 200, payload=TOO_LARGE),
    record("request_end", T0 + 201, request={"request_id": "r2", "output_tokens": 3, "request_received_ms": T0 + 150}),
]


def logs_of(payloads: list[str], scope: str = "dynamo.request_trace") -> dict[str, Any]:
    logs = [
        {
            "timeUnixNano": str(T0 * 10**6),
            "severityText": "INFO",
            "body": {"stringValue": "request_end"},
            "attributes": [
                {"key": "rid", "value": {"stringValue": "r"}},
                {"key": "payload", "value": {"stringValue": payload}},
            ],
        }
        for payload in payloads
    ]
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {"name": scope}, "logRecords": logs}]}]}


WHOLE = logs_of(list(map(json.dumps, RECORDS)))


def proto_of(document: dict[str, Any]) -> bytes:
    return ParseDict(document, ExportLogsServiceRequest()).SerializeToString()


def by_json(receiver: RunningReceiver, document: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(f"{receiver.http}/v1/logs", json=document)
    assert answer.status_code == 200
    return dict(answer.json())


def by_proto(receiver: RunningReceiver, document: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/x-protobuf"}
    answer = httpx.post(f"{receiver.http}/v1/logs", content=proto_of(document), headers=headers)
    assert answer.status_code == 200
    return MessageToDict(ExportLogsServiceResponse.FromString(answer.content))


def by_grpc(receiver: RunningReceiver, document: dict[str, Any]) -> dict[str, Any]:
    with grpc.insecure_channel(receiver.grpc) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        return MessageToDict(ExportLogsServiceResponse.FromString(call(proto_of(document), timeout=30)))


Send = Callable[[RunningReceiver, dict[str, Any]], dict[str, Any]]
EVERY_WAY = pytest.mark.parametrize("send", [by_json, by_proto, by_grpc])


def spans_of(directory: Path) -> dict[tuple[str, str], StoredSpan]:
    store = Store(directory)
    spans = {
        (rollout_id, span.span_id): replace(span, resource={}, origin=NO_ORIGIN, flags=0)
        for rollout_id in store.rollout_ids()
        for span in store.spans(rollout_id)
    }
    assert store.damage == []
    return {ids: replace(span, attributes=with_bodies(span)) for ids, span in spans.items()}


def with_bodies(span: StoredSpan) -> dict[str, Any]:
    names = ("gym.request.body", "gym.response.body")
    bodies = {name: span.body(name) for name in names if name in span.attributes}
    return {name: value for name, value in span.attributes.items() if not name.startswith(names)} | bodies


def imported(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "otel_gym.cli", "import", *arguments, "--dir", str(directory)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def expected(tmp_path: Path) -> dict[tuple[str, str], StoredSpan]:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 1, "event": each}) + "\n" for each in RECORDS))
    imported(tmp_path / "expected", "dynamo", str(trace))
    return spans_of(tmp_path / "expected")


@EVERY_WAY
@pytest.mark.parametrize("at_once", [True, False])
def test_records_become_the_spans_of_the_import(
    receive: Receive, expected: dict[tuple[str, str], StoredSpan], send: Send, at_once: bool
) -> None:
    receiver = receive()
    for each in [RECORDS] if at_once else [[each] for each in RECORDS]:
        assert send(receiver, logs_of(list(map(json.dumps, each)))) == {}
    code, out, _ = receiver.stop()
    assert code == 0 and "0 spans taken, 5 of Dynamo's records" in out
    assert spans_of(receiver.directory) == expected
    assert {rollout_id for rollout_id, _ in expected} == {"run-1", "dynamo-requests"}


@EVERY_WAY
def test_what_is_no_record_is_refused_and_the_others_are_taken(receive: Receive, send: Send) -> None:
    receiver = receive()
    answer = send(receiver, logs_of([json.dumps(RECORDS[1]), "{", json.dumps({"schema": "v9"})]))
    assert answer["partialSuccess"]["rejectedLogRecords"] == "2"
    assert "no record of Dynamo's" in answer["partialSuccess"]["errorMessage"]
    receiver.stop()
    assert sum("chat" in span.name for span in spans_of(receiver.directory).values()) == 1


@EVERY_WAY
def test_others_logs_are_taken_and_counted(receive: Receive, send: Send) -> None:
    receiver = receive()
    assert send(receiver, logs_of(["{}"], scope="another")) == {}
    assert send(receiver, logs_of(["dynamo.request_trace"], scope="another")) == {}
    _, out, err = receiver.stop()
    assert "2 messages of metrics and logs not kept" in out and err.count("logs come in too") == 1


def test_a_request_is_there_when_it_was_acknowledged(receive: Receive) -> None:
    receiver = receive()
    by_json(receiver, WHOLE)
    receiver.process.kill()
    receiver.process.communicate(timeout=30)
    assert sum("chat" in span.name for span in spans_of(receiver.directory).values()) == 2


@pytest.mark.parametrize("form", ["lines", "document", "proto", "frames"])
def test_files_of_logs_are_imported_once(
    tmp_path: Path, expected: dict[tuple[str, str], StoredSpan], form: str
) -> None:
    file, store = tmp_path / "logs", tmp_path / "store"
    message = proto_of(WHOLE)
    contents = {
        "lines": "".join(json.dumps(logs_of([json.dumps(each)])) + "\n" for each in RECORDS).encode(),
        "document": json.dumps(WHOLE, indent=1).encode(),
        "proto": message,
        "frames": len(message).to_bytes(4, "big") + message,
    }
    file.write_bytes(contents[form])
    assert "new span" in imported(store, "otlp", str(file))
    assert spans_of(store) == expected
    assert "new span" not in imported(store, "otlp", str(file))
    assert spans_of(store) == expected


def served(trace_id: str, parent_id: str) -> dict[str, Any]:
    span = {
        "traceId": trace_id,
        "spanId": "00000000000000aa",
        "parentSpanId": parent_id,
        "name": "http-request",
        "kind": 1,
        "startTimeUnixNano": str(T0 * 10**6),
        "endTimeUnixNano": str((T0 + 100) * 10**6),
        "attributes": [
            {"key": name, "value": {"stringValue": value}}
            for name, value in (("uri", "/v1/chat/completions"), ("request_id", "r1"))
        ],
    }
    below = {**span, "spanId": "00000000000000ab", "parentSpanId": span["spanId"], "name": "kv_router.route_request"}
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "dynamo"}, "spans": [below, span]}]}]}


HARNESS = """
    import os, sys, otel_gym
    with otel_gym.rollout(12, 0) as rollout, otel_gym.invoke_agent("planner") as agent:
        context = agent.span.get_span_context()
        print(f"{context.trace_id:032x} {context.span_id:016x}", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("by", ["receive", "import"])
def test_dynamos_spans_are_stored_with_the_rollout_that_another_process_traces(
    receive: Receive, tmp_path: Path, by: str
) -> None:
    store = tmp_path / "store"
    harness = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HARNESS)],
        env={**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(store)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert harness.stdout is not None
    spans = served(*harness.stdout.readline().split())
    if by == "import":
        harness.communicate("done\n", timeout=60)
        (tmp_path / "spans.json").write_text(json.dumps(spans))
        imported(store, "otlp", str(tmp_path / "spans.json"))
    else:
        receiver = receive(store)
        assert httpx.post(receiver.traces, json=spans).status_code == 200
        harness.communicate("done\n", timeout=60)
        receiver.stop()
    names = {span.name: rollout_id for (rollout_id, _), span in spans_of(store).items()}
    assert names["http-request"] == names["kv_router.route_request"] == names["rollout"] == "12-0"
