"""OTLP messages with everything in them that a span may have."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

TRACE = bytes.fromhex("5b8efff798038103d269b633813fc60c")
START = 1_790_000_000_000_000_001


def value(item: Any) -> AnyValue:
    if item is None:
        return AnyValue()
    if isinstance(item, bool):
        return AnyValue(bool_value=item)
    if isinstance(item, int):
        return AnyValue(int_value=item)
    if isinstance(item, float):
        return AnyValue(double_value=item)
    if isinstance(item, bytes):
        return AnyValue(bytes_value=item)
    if isinstance(item, list):
        return AnyValue(array_value=ArrayValue(values=map(value, item)))
    if isinstance(item, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(item)))
    return AnyValue(string_value=item)


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value(item)) for key, item in attributes.items()]


def span(number: int, parent: int | None = None, trace_id: bytes = TRACE, **fields: Any) -> Span:
    """``attributes`` as a dict; all other fields as those of the message."""
    said = {
        "trace_id": trace_id,
        "span_id": number.to_bytes(8, "big"),
        "parent_span_id": b"" if parent is None else parent.to_bytes(8, "big"),
        "name": f"span {number}",
        "kind": Span.SPAN_KIND_CLIENT,
        "start_time_unix_nano": START + number,
        "end_time_unix_nano": START + number + 1000,
    }
    attributes = pairs(fields.pop("attributes", {}))
    return Span(**(said | fields), attributes=attributes)


def request(*spans: Span, resource: dict[str, Any] | None = None, scope: str = "s") -> ExportTraceServiceRequest:
    group = ResourceSpans(
        resource=Resource(attributes=pairs(resource or {"service.name": "policy"})),
        scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope), spans=spans)],
    )
    return ExportTraceServiceRequest(resource_spans=[group])


def full_span() -> Span:
    """One that uses every field."""
    return span(
        1,
        9,
        trace_state="a=b",
        flags=0x301,
        kind=Span.SPAN_KIND_UNSPECIFIED,
        attributes={
            "gym.rollout.id": "1-0",
            "text": "é😀\n",
            "whole": 1.0,
            "nan": float("nan"),
            "int": -(2**63),
            "yes": True,
            "bytes": b"\x00\xff",
            "list": ["a", 1, 1.5, None, [b"x"], {"k": False}],
            "map": {"a": {"b": [1]}},
            "empty": None,
            "": "no name",
        },
        dropped_attributes_count=3,
        events=[Span.Event(time_unix_nano=5, name="e", attributes=pairs({"x": 1}), dropped_attributes_count=1)],
        dropped_events_count=2,
        links=[
            Span.Link(
                trace_id=TRACE,
                span_id=b"\x01" * 8,
                trace_state="c=d",
                attributes=pairs({"y": "z"}),
                dropped_attributes_count=4,
                flags=0x100,
            )
        ],
        dropped_links_count=5,
        status=Status(code=Status.STATUS_CODE_ERROR, message="broken"),
    )


def full_request() -> ExportTraceServiceRequest:
    message = request(full_span())
    group = message.resource_spans[0]
    group.schema_url = "https://example.com/resource"
    group.resource.dropped_attributes_count = 6
    scope_spans = group.scope_spans[0]
    scope_spans.schema_url = "https://example.com/scope"
    scope_spans.scope.version = "1.2"
    scope_spans.scope.attributes.extend(pairs({"scope.attribute": [1]}))
    scope_spans.scope.dropped_attributes_count = 7
    return message
