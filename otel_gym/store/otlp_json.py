"""OTLP/JSON: Python values ↔ AnyValue, spans ↔ lines of TracesData.

Rules of the OTLP file format: ids are hex, 64-bit integers are decimal strings (readers take numbers
too), enumerations are numbers (readers take names too), bytes are base64, keys are lowerCamelCase.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from otel_gym.content import MOST_REMEMBERED_NAMES, fits_int64, safe_text
from otel_gym.store.span import SpanEvent, SpanLink, StoredSpan

# Compiled where it imports; the tracer also runs in environments that lack it.
_encode: Callable[[Any], bytes]
try:
    import orjson

    _encode = orjson.dumps
except ImportError:
    _json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def _encode(value: Any) -> bytes:
        return _json_text(value).encode("utf-8")


_decode: Callable[[bytes], Any]
try:
    import msgspec

    _decode = msgspec.json.Decoder().decode
except ImportError:
    _decode = json.loads

KIND_NAMES = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}
STATUS_NAMES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}


class MalformedLineError(ValueError):
    """A line that is no TracesData; the text says what is wrong, ``spans`` are those that could be read."""

    def __init__(self, problem: str, spans: Sequence[StoredSpan] = ()) -> None:
        super().__init__(problem)
        self.spans = spans


def encode_strict_json(value: Any) -> bytes:
    """Compact JSON; raises for what JSON cannot carry."""
    return _encode(value)


def encode_json(value: Any) -> bytes:
    """Compact JSON; lone surrogates become U+FFFD instead of failing the line."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, ValueError, TypeError, OverflowError):
        return _encode(_safe(value))


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, dict):
        return {safe_text(key): _safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return value


def any_value(value: Any) -> dict[str, Any]:
    """A Python value as an AnyValue. Kinds are looked up by exact type, the common ones first."""
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    # numpy's float64 is a float, an IntEnum is an int.
    for kind, encoder in _ENCODERS_OF_SUBCLASSES:
        if isinstance(value, kind):
            return encoder(value)
    return {"stringValue": str(value)}


def _int_value(value: int) -> dict[str, Any]:
    return {"intValue": str(value)} if fits_int64(value) else {"stringValue": str(value)}


def _double_value(value: float) -> dict[str, Any]:
    if value != value:
        return {"doubleValue": "NaN"}
    if value in (float("inf"), float("-inf")):
        return {"doubleValue": "Infinity" if value > 0 else "-Infinity"}
    return {"doubleValue": value}


def _array_value(value: Any) -> dict[str, Any]:
    return {"arrayValue": {"values": [any_value(item) for item in value]}}


def _map_value(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {"kvlistValue": {"values": key_values(value)}}


_ENCODERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    str: lambda value: {"stringValue": value},
    bool: lambda value: {"boolValue": value},
    int: _int_value,
    float: _double_value,
    tuple: _array_value,
    list: _array_value,
    dict: _map_value,
    bytes: lambda value: {"bytesValue": base64.b64encode(value).decode("ascii")},
    type(None): lambda value: {},
}
_ENCODERS_OF_SUBCLASSES: tuple[tuple[type, Callable[[Any], dict[str, Any]]], ...] = (
    (int, lambda value: _int_value(int(value))),
    (float, lambda value: _double_value(float(value))),
    (str, lambda value: {"stringValue": str.__str__(value)}),
    (bytes, lambda value: {"bytesValue": base64.b64encode(value).decode("ascii")}),
    (Mapping, _map_value),
    (Sequence, _array_value),
)


def key_values(attributes: Mapping[Any, Any]) -> list[dict[str, Any]]:
    return [{"key": _name(key), "value": any_value(value)} for key, value in attributes.items()]


def _name(key: Any) -> str:
    """Of a text its own letters: an enumeration that is a str says its member's name."""
    return str.__str__(key) if isinstance(key, str) else str(key)


def encode_attributes(attributes: Mapping[str, Any]) -> bytes:
    """A KeyValue list, encoded; raises for what JSON cannot carry.

    The spans of one kind have the same names with values of the same types. What these make of a list is kept
    as a template, so that each span costs one call a value.
    """
    names, values = tuple(attributes), list(attributes.values())
    key = (names, tuple(map(type, values)))
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= _MOST_TEMPLATES:
            _templates.clear()
        template = _new_template(*key)
        if len(names) <= MOST_REMEMBERED_NAMES and set(map(type, names)) == {str}:
            _templates[key] = template
    for index in template.others:
        values[index] = any_value(values[index])
    if template.ints is not None and not _fit_int64(template.ints(values)):
        return _encode(key_values(attributes))
    return template.format % tuple(map(_encode, values))


class _Template(NamedTuple):
    """``format`` has a place for each encoded value; those at ``others`` are whole AnyValues.

    ``ints`` picks the integers.
    """

    format: bytes
    others: tuple[int, ...]
    ints: Callable[[Sequence[Any]], tuple[int, ...]] | None


_templates: dict[tuple[tuple[str, ...], tuple[type, ...]], _Template] = {}
_MOST_TEMPLATES = 1024
_PLACES = {str: b'{"stringValue":%b}', bool: b'{"boolValue":%b}', int: b'{"intValue":"%b"}'}


def _new_template(names: tuple[str, ...], types: tuple[type, ...]) -> _Template:
    pairs = [
        b'{"key":' + _encode(_name(name)).replace(b"%", b"%%") + b',"value":' + _PLACES.get(kind, b"%b") + b"}"
        for name, kind in zip(names, types, strict=True)
    ]
    others = tuple(index for index, kind in enumerate(types) if kind not in _PLACES)
    ints = [index for index, kind in enumerate(types) if kind is int]
    # Of one index alone itemgetter would make no tuple.
    return _Template(b"[" + b",".join(pairs) + b"]", others, itemgetter(*ints, ints[0]) if ints else None)


def _fit_int64(numbers: tuple[int, ...]) -> bool:
    return fits_int64(min(numbers)) and fits_int64(max(numbers))


def python_value(value: Any) -> Any:
    """An AnyValue as a Python value; None for an empty or unknown one."""
    if not isinstance(value, dict):
        return None
    for name, item in value.items():
        decoder = _DECODERS.get(name)
        if decoder is not None:
            return decoder(item)
    return None


def _double(item: Any) -> float:
    return float(item)


def _array(item: Any) -> list[Any]:
    return [python_value(entry) for entry in (item or {}).get("values", ())]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "stringValue": lambda item: item,
    "boolValue": lambda item: item in (True, "true"),
    "intValue": int,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": lambda item: attributes_of((item or {}).get("values", ())),
    "bytesValue": lambda item: base64.b64decode(item),
}


def attributes_of(pairs: Any) -> dict[str, Any]:
    """KeyValue list → dict; the last of a repeated key wins."""
    return {pair["key"]: python_value(pair.get("value")) for pair in pairs or ()}


def spans_of_line(line: bytes) -> list[StoredSpan]:
    """The spans of one line of TracesData (``batches``, as Tempo's API says it, is taken too)."""
    try:
        document = _decode(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise MalformedLineError("not a JSON object")
    groups = document.get("resourceSpans", document.get("batches"))
    if not isinstance(groups, list):
        raise MalformedLineError("no resourceSpans: not a line of OTLP/JSON TracesData")
    spans: list[StoredSpan] = []
    problem = None
    try:
        for span, resource, scope in _encoded_spans(groups):
            try:
                spans.append(_span(span, resource, scope))
            except _NOT_OTLP as error:  # one span's fault is not its neighbours'
                problem = error
    except _NOT_OTLP as error:
        problem = error
    if problem is not None:
        raise MalformedLineError(f"a span that does not follow OTLP/JSON: {problem!r}", spans)
    return spans


_NOT_OTLP = (KeyError, TypeError, ValueError, AttributeError)


def _encoded_spans(groups: list[Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], str | None]]:
    for group in groups:
        resource = attributes_of((group.get("resource") or {}).get("attributes"))
        for scope_spans in group.get("scopeSpans") or ():
            scope = (scope_spans.get("scope") or {}).get("name")
            for span in scope_spans.get("spans") or ():
                yield span, resource, scope


def _span(span: dict[str, Any], resource: dict[str, Any], scope: str | None) -> StoredSpan:
    status = span.get("status") or {}
    return StoredSpan(
        trace_id=span["traceId"].lower(),
        span_id=span["spanId"].lower(),
        parent_span_id=(span.get("parentSpanId") or "").lower() or None,
        name=span.get("name", ""),
        kind=_number(span.get("kind", 0), KIND_NAMES),
        start_ns=int(span.get("startTimeUnixNano", 0)),
        end_ns=int(span.get("endTimeUnixNano") or 0) or None,
        attributes=attributes_of(span.get("attributes")),
        events=[_event(event) for event in span.get("events") or ()],
        links=[_link(link) for link in span.get("links") or ()],
        status=_number(status.get("code", 0), STATUS_NAMES),
        status_message=status.get("message"),
        resource=resource,
        scope_name=scope,
        dropped=_dropped(span),
    )


_DROPPED_COUNTS = ("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount")


def _dropped(span: dict[str, Any]) -> int:
    """All that limits dropped: of the span, and of its events and links."""
    parts = (span, *(span.get("events") or ()), *(span.get("links") or ()))
    return sum(int(part.get(name) or 0) for part in parts for name in _DROPPED_COUNTS)


def _event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(event.get("name", ""), int(event.get("timeUnixNano", 0)), attributes_of(event.get("attributes")))


def _link(link: dict[str, Any]) -> SpanLink:
    return SpanLink(link["traceId"].lower(), link["spanId"].lower(), attributes_of(link.get("attributes")))


def _number(value: int | str, names: Mapping[str, int]) -> int:
    return value if isinstance(value, int) else names.get(value, 0)
