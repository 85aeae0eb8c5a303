"""Traces as Jaeger's query API gives them, and its UI saves them → spans.

Times are in microseconds there; attributes are texts, booleans, numbers and bytes, and what had a shape is its JSON.
What Jaeger keeps of OpenTelemetry under names of its own (kind, status, scope, trace state) is put back in its place.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from otel_gym.ingest.otlp.json_text import spans_of_parsed
from otel_gym.ingest.otlp.received import MalformedError, Received
from otel_gym.store.otlp_json import parse_document
from otel_gym.store.span import STATUS_ERROR, STATUS_UNSET, Origin, SpanEvent, SpanLink, StoredSpan

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES = {"OK": 1, "ERROR": STATUS_ERROR}
_SCOPE_NAMES = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSIONS = ("otel.scope.version", "otel.library.version")
_NS_OF_US = 1000
_SAID = 60
# Says which client wrote it, to Jaeger alone.
_FORMAT = "internal.span.format"


def spans_of_jaeger(content: bytes) -> Received:
    """The spans of an answer of ``/api/traces`` or ``/api/v3/traces``. MalformedError if it is neither."""
    try:
        document = parse_document(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"no JSON: {error}") from None
    traces = document.get("data") if isinstance(document, dict) else document
    if not isinstance(traces, list):
        return _of_otlp(document)
    received = Received()
    for trace in traces:
        if not isinstance(trace, dict) or not isinstance(trace.get("spans"), list):
            received.refuse("a trace without the list spans")
            continue
        resources = _resources(trace.get("processes"), received)
        for span in trace["spans"]:
            try:
                received.add(_span(span, resources, received))
            except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
                received.refuse(f"a span that does not follow Jaeger's JSON: {type(error).__name__}: {error}")
    return received


def _of_otlp(document: Any) -> Received:
    """The third version of the API answers in OTLP."""
    try:
        return spans_of_parsed(document)
    except MalformedError:
        said = document.get("errors") if isinstance(document, dict) else None
        detail = f"; it says: {str(said)[:200]}" if said else ""
        raise MalformedError(f"no traces of Jaeger: an object with the list data is asked for{detail}") from None


def _resources(processes: Any, received: Received) -> dict[str, dict[str, Any]]:
    """The attributes of each process, by the name that its spans give it."""
    found = {}
    for name, process in (processes or {}).items():
        service = {"service.name": process["serviceName"]} if process.get("serviceName") else {}
        found[name] = service | _attributes(process.get("tags"), received)
    return found


def _span(span: dict[str, Any], resources: dict[str, dict[str, Any]], received: Received) -> StoredSpan:
    tags = _attributes(span.get("tags"), received)
    trace_id = _trace_id(span["traceID"])
    parent, links = _references(span, trace_id)
    start_us, duration_us = int(span["startTime"]), int(span.get("duration") or 0)
    process = span.get("process")
    if process is None:
        resource = resources.get(span.get("processID") or "", {})
    else:
        resource = _resources({"": process}, received)[""]
    tags.pop(_FORMAT, None)
    kind, trace_state = tags.pop("span.kind", None), tags.pop("w3c.tracestate", "")
    status, message = _status(tags)
    name, version = _first(tags, _SCOPE_NAMES), _first(tags, _SCOPE_VERSIONS)
    return StoredSpan(
        trace_id,
        span["spanID"].lower().rjust(16, "0"),
        parent,
        str(span.get("operationName") or ""),
        _KINDS.get(str(kind).lower(), 0),
        start_us * _NS_OF_US,
        (start_us + duration_us) * _NS_OF_US,
        tags,
        [_event(log, received) for log in span.get("logs") or ()],
        links,
        status,
        message,
        resource,
        None if name is None else str(name),
        trace_state=str(trace_state),
        origin=Origin(str(version or "")),
    )


def _trace_id(text: str) -> str:
    """Also one of 64 bits, and one without its leading zeros."""
    return text.lower().rjust(32, "0")


def _references(span: dict[str, Any], trace_id: str) -> tuple[str | None, list[SpanLink]]:
    """The parent is the first CHILD_OF in the same trace; every other reference is a link."""
    parent = span.get("parentSpanID")
    parent = parent.lower().rjust(16, "0") if parent else None
    links = []
    for reference in span.get("references") or ():
        its_trace, its_span = _trace_id(reference["traceID"]), reference["spanID"].lower().rjust(16, "0")
        if reference.get("refType") == "CHILD_OF" and its_trace == trace_id and parent in (None, its_span):
            parent = its_span
        else:
            links.append(SpanLink(its_trace, its_span, {}))
    return parent, links


def _status(tags: dict[str, Any]) -> tuple[int, str | None]:
    """``error`` alone was said by who knows no status of OpenTelemetry."""
    code, message = tags.pop("otel.status_code", None), tags.pop("otel.status_description", None)
    is_error = tags.get("error") in (True, "true")
    if code is not None or is_error:
        tags.pop("error", None)
    status = _STATUSES.get(str(code), STATUS_ERROR if is_error else STATUS_UNSET)
    return status, None if message is None else str(message)


def _first(tags: dict[str, Any], names: Iterable[str]) -> Any:
    found = [tags.pop(name, None) for name in names]
    return next((value for value in found if value is not None), None)


def _event(log: dict[str, Any], received: Received) -> SpanEvent:
    fields = _attributes(log.get("fields"), received)
    name = fields.pop("event", None)
    return SpanEvent("" if name is None else str(name), int(log["timestamp"]) * _NS_OF_US, fields)


def _attributes(tags: Any, received: Received) -> dict[str, Any]:
    attributes = {}
    for tag in tags or ():
        name = tag.get("key") if isinstance(tag, dict) else None
        if not isinstance(name, str):
            received.leave_out("one has no key")
            continue
        try:
            attributes[name] = _value(tag)
        except (ValueError, TypeError, OverflowError):
            received.leave_out(f"the value of {name[:_SAID]!r} is no {str(tag.get('type'))[:_SAID]}")
    return attributes


def _value(tag: dict[str, Any]) -> Any:
    value, kind = tag.get("value"), str(tag.get("type") or "").lower()
    if kind == "bool":
        return value in (True, "true")
    if kind == "int64":
        return int(value or 0)
    if kind == "float64":
        return float(value or 0)
    if kind == "binary" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            return value
    return value
