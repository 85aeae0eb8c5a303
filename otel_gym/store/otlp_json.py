"""OTLP/JSON: Python values ↔ AnyValue, spans ↔ lines of TracesData.

Rules of the OTLP file format: ids are hex, 64-bit integers are decimal strings (readers take numbers
too), enumerations are numbers (readers take names too), bytes are base64, keys are lowerCamelCase.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from otel_gym.content import MOST_REMEMBERED_NAMES, fits_int64, safe_text
from otel_gym.store.span import Origin, SpanEvent, SpanLink, StoredSpan

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
    """A line that is no TracesData; the text says what is wrong, ``spans`` are those that could be read.

    ``faults`` counts what could not.
    """

    def __init__(self, problem: str, spans: Sequence[StoredSpan] = (), faults: int = 1) -> None:
        super().__init__(problem)
        self.spans = spans
        self.faults = faults


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


def python_value(value: Any, depth: int = 0) -> Any:
    """An AnyValue as a Python value; None for an empty or unknown one. ValueError for one of a wrong JSON type."""
    for name, item in _as_object(value, "value").items():
        decoder = _DECODERS.get(name)
        if decoder is not None and item is not None:
            return decoder(item, depth)
    return None


def _string(item: Any, depth: int) -> str:
    return _as_text(item, "stringValue")


def _boolean(item: Any, depth: int) -> bool:
    if item not in (True, False, "true", "false") or type(item) not in (bool, str):
        raise ValueError(f"boolValue is {_said(item)}")
    return item in (True, "true")


def _integer(item: Any, depth: int) -> int | str:
    """As the writer has it: one beyond 64 bits is its digits."""
    number = _as_number(item, "intValue")
    return number if fits_int64(number) else str(number)


def _double(item: Any, depth: int) -> float:
    if type(item) not in (float, int, str):
        raise ValueError(f"doubleValue is {_said(item)}, no number")
    try:
        return float(item)
    except (ValueError, OverflowError):
        raise ValueError(f"doubleValue is {_said(item)}, no number of 64 bits") from None


def _array(item: Any, depth: int) -> list[Any]:
    entries = _list(_as_object(item, "arrayValue"), "values")
    return [python_value(entry, deeper(depth)) for entry in entries]


def _map(item: Any, depth: int) -> dict[str, Any]:
    return attributes_of(_as_object(item, "kvlistValue").get("values"), deeper(depth))


def _bytes(item: Any, depth: int) -> bytes:
    return base64.b64decode(_as_text(item, "bytesValue"))


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "stringValue": _string,
    "boolValue": _boolean,
    "intValue": _integer,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _map,
    "bytesValue": _bytes,
}

# The parsers of protobuf stop at 100 messages within each other.
_VALUE_DEPTH = 100


def deeper(depth: int) -> int:
    """One level further into lists and maps; ValueError where no parser would go on."""
    if depth >= _VALUE_DEPTH:
        raise ValueError(f"a value nests deeper than {_VALUE_DEPTH} levels")
    return depth + 1


def attributes_of(pairs: Any, depth: int = 0) -> dict[str, Any]:
    """KeyValue list → dict; the last of a repeated key wins. ValueError where it is none."""
    attributes: dict[str, Any] = {}
    for entry in _as_list(pairs, "attributes"):
        pair = _as_object(entry, "attribute")
        key = _text(pair, "key") or ""  # an empty one is not written
        try:
            value = pair.get("value")
            attributes[key] = None if value is None else python_value(value, depth)
        except ValueError as error:
            raise ValueError(f"attribute {key[:_SHOWN]!r}: {error}") from None
    return attributes


def spans_of_line(line: bytes) -> list[StoredSpan]:
    """The spans of one line of TracesData (``batches``, as Tempo's API says it, is taken too).

    MalformedLineError if one of them has a field of a wrong type; its neighbours are read all the same. What is said
    once for several spans (their resource, their scope) is the fault of all of these.
    """
    try:
        document = parse_document(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError(f"not JSON: {error}") from None
    return spans_of_document(document)


def spans_of_document(document: Any) -> list[StoredSpan]:
    """The same of its parsed JSON."""
    if not isinstance(document, dict):
        raise MalformedLineError("not a JSON object")
    groups = document.get("resourceSpans", document.get("batches"))
    if not isinstance(groups, list):
        raise MalformedLineError("no resourceSpans: not a line of OTLP/JSON TracesData")
    spans: list[StoredSpan] = []
    faults = _Faults()
    for each in groups:
        with faults:
            group = _as_object(each, "entry of resourceSpans")
            resource = attributes_of(_object(group, "resource").get("attributes"))
            for scope_spans in _list(group, "scopeSpans"):
                with faults:
                    spans_of_scope = _list(_as_object(scope_spans, "entry of scopeSpans"), "spans")
                    scope_name, origin = _text(_object(scope_spans, "scope"), "name"), _origin(group, scope_spans)
                    for span in spans_of_scope:
                        with faults:
                            spans.append(_span(_as_object(span, "span"), resource, scope_name, origin))
    if faults.found:
        more = f" (and {len(faults.found) - 1} more such faults)" if len(faults.found) > 1 else ""
        raise MalformedLineError(
            f"a span that does not follow OTLP/JSON: {faults.found[0]}{more}", spans, len(faults.found)
        )
    return spans


class _Faults:
    """Notes what is wrong within its block, and goes on behind it."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ValueError):
            return False
        self.found.append(str(error))
        return True


def parse_document(line: bytes) -> Any:
    """The JSON value of a line; also of one with a NaN, a lone surrogate or a number without bounds in it.

    ValueError or RecursionError if it is none.
    """
    try:
        return _decode(line)
    except ValueError:
        return _safe(json.loads(line, parse_int=_number_or_digits))


def _number_or_digits(digits: str) -> int | str:
    return int(digits) if len(digits) < _MOST_DIGITS else digits


# Above it Python refuses to make a number of them.
_MOST_DIGITS = 1000


def _origin(group: dict[str, Any], scope_spans: dict[str, Any]) -> Origin:
    scope = _object(scope_spans, "scope")
    return Origin(
        _text(scope, "version") or "",
        attributes_of(scope.get("attributes")),
        _number(scope, "droppedAttributesCount", COUNTS),
        _text(scope_spans, "schemaUrl") or "",
        _text(group, "schemaUrl") or "",
        _number(_object(group, "resource"), "droppedAttributesCount", COUNTS),
    )


def _span(span: dict[str, Any], resource: dict[str, Any], scope_name: str | None, origin: Origin) -> StoredSpan:
    status = _object(span, "status")
    return StoredSpan(
        trace_id=_id(span, "traceId").lower(),
        span_id=_id(span, "spanId").lower(),
        parent_span_id=(_text(span, "parentSpanId") or "").lower() or None,
        name=_text(span, "name") or "",
        kind=_enumerated(span, "kind", KIND_NAMES),
        start_ns=_time(span, "startTimeUnixNano"),
        end_ns=_time(span, "endTimeUnixNano") or None,
        attributes=attributes_of(span.get("attributes")),
        events=[_event(event) for event in _objects(span, "events")],
        links=[_link(link) for link in _objects(span, "links")],
        status=_enumerated(status, "code", STATUS_NAMES),
        status_message=_text(status, "message"),
        resource=resource,
        scope_name=scope_name,
        dropped=_dropped(span),
        trace_state=_text(span, "traceState") or "",
        flags=_number(span, "flags", COUNTS),
        dropped_events=_number(span, "droppedEventsCount", COUNTS),
        dropped_links=_number(span, "droppedLinksCount", COUNTS),
        origin=origin,
    )


_DROPPED_COUNTS = ("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount")


def _dropped(span: dict[str, Any]) -> int:
    """All that limits dropped: of the span, and of its events and links."""
    parts = (span, *_objects(span, "events"), *_objects(span, "links"))
    return sum(_number(part, name, COUNTS) for part in parts for name in _DROPPED_COUNTS)


def _event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(
        _text(event, "name") or "",
        _time(event, "timeUnixNano"),
        attributes_of(event.get("attributes")),
        _number(event, "droppedAttributesCount", COUNTS),
    )


def _link(link: dict[str, Any]) -> SpanLink:
    return SpanLink(
        _id(link, "traceId").lower(),
        _id(link, "spanId").lower(),
        attributes_of(link.get("attributes")),
        _text(link, "traceState") or "",
        _number(link, "flags", COUNTS),
        _number(link, "droppedAttributesCount", COUNTS),
    )


# --- the fields of a JSON object, by type; null is an absent one, and whatever else is a ValueError

COUNTS, TIMES, ENUMERATIONS = range(2**32), range(2**64), range(-(2**31), 2**31)

_SHOWN = 60
_JSON_TYPES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def _said(value: Any) -> str:
    kind = _JSON_TYPES.get(type(value), "a number")
    if isinstance(value, dict | list) or value is None:
        return kind
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return f"{kind} ({text if len(text) <= _SHOWN else text[:_SHOWN] + '…'})"


def _as_object(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is {_said(value)}, no object")


def _as_list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise ValueError(f"{what} is {_said(value)}, no list")


def _as_text(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{what} is {_said(value)}, no text")


def _as_number(value: Any, what: str) -> int:
    """A whole number, also as decimal text."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    try:
        if is_whole or type(value) is str:
            return int(value)
    except ValueError:
        pass
    raise ValueError(f"{what} is {_said(value)}, no whole number")


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return {} if value is None else _as_object(value, name)


def _list(holder: dict[str, Any], name: str) -> list[Any]:
    return _as_list(holder.get(name), name)


def _objects(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [_as_object(entry, f"entry of {name}") for entry in _list(holder, name)]


def _text(holder: dict[str, Any], name: str) -> str | None:
    value = holder.get(name)
    return None if value is None else _as_text(value, name)


def _id(holder: dict[str, Any], name: str) -> str:
    """A text that must be there."""
    return _as_text(holder.get(name), name)


def _number(holder: dict[str, Any], name: str, bounds: range) -> int:
    value = holder.get(name)
    number = 0 if value is None or value == "" else _as_number(value, name)
    if number not in bounds:
        raise ValueError(f"{name} is {_said(value)}, out of bounds")
    return number


def _time(holder: dict[str, Any], name: str) -> int:
    return _number(holder, name, TIMES)


def _enumerated(holder: dict[str, Any], name: str, names: Mapping[str, int]) -> int:
    value = holder.get(name)
    return names.get(value, 0) if isinstance(value, str) else _number(holder, name, ENUMERATIONS)
