"""Logs of OTLP → Dynamo's trace records, where its sink ``otel`` sent them. Other logs are passed over.

A record is the attribute ``payload`` of a log of the scope ``dynamo.request_trace``, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from otel_gym.ingest.dynamo.reading import row_of
from otel_gym.ingest.otlp.received import LogRecord, MalformedError, Received
from otel_gym.records.dynamo import DynamoRecordError
from otel_gym.store.otlp_json import parse_document

_SCOPE = "dynamo.request_trace"
_PAYLOAD = "payload"


def may_be_dynamo(content: bytes) -> bool:
    return _SCOPE.encode() in content


def logs_of_proto(content: bytes) -> Received:
    """Of ExportLogsServiceRequest and LogsData. MalformedError where it names Dynamo's scope, and is neither."""
    if not may_be_dynamo(content):
        return Received(other_signals=1)
    try:
        message = LogsData.FromString(content)
    except DecodeError as error:
        raise MalformedError(f"no logs in protobuf: {error}") from None
    return _received(
        next((pair.value.string_value for pair in log.attributes if pair.key == _PAYLOAD), None)
        for group in message.resource_logs
        for scope_logs in group.scope_logs
        if scope_logs.scope.name == _SCOPE
        for log in scope_logs.log_records
    )


def logs_of_json(content: bytes) -> Received:
    """The same of JSON."""
    if not may_be_dynamo(content):
        return Received(other_signals=1)
    try:
        document = parse_document(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"no JSON: {error}") from None
    return logs_of_parsed(document)


def logs_of_parsed(document: Any) -> Received:
    return _received(map(_payload_of, _logs_in(document)))


def _logs_in(document: Any) -> Iterator[Any]:
    for group in _list(document, "resourceLogs", "resource_logs"):
        for scope_logs in _list(group, "scopeLogs", "scope_logs"):
            scope = scope_logs.get("scope") if isinstance(scope_logs, dict) else None
            if isinstance(scope, dict) and scope.get("name") == _SCOPE:
                yield from _list(scope_logs, "logRecords", "log_records")


def _list(holder: Any, *names: str) -> list[Any]:
    found = [holder.get(name) for name in names] if isinstance(holder, dict) else []
    return next((each for each in found if isinstance(each, list)), [])


def _payload_of(log: Any) -> str | None:
    for pair in _list(log, "attributes"):
        if isinstance(pair, dict) and pair.get("key") == _PAYLOAD and isinstance(pair.get("value"), dict):
            value = pair["value"].get("stringValue", pair["value"].get("string_value"))
            return value if isinstance(value, str) else None
    return None


def _received(payloads: Iterator[str | None]) -> Received:
    """A message without any log of Dynamo's is one of another signal."""
    received, number = Received(), 0
    for number, payload in enumerate(payloads, 1):  # noqa: B007
        if payload is None:
            received.refuse("a log of Dynamo's has no payload")
            continue
        line = payload.encode("utf-8", "surrogatepass")
        try:
            received.records.append(LogRecord(line, row_of(line)))
        except DynamoRecordError as problem:
            received.refuse(f"a payload is no record of Dynamo's: {problem}")
    received.other_signals = 0 if number else 1
    return received
