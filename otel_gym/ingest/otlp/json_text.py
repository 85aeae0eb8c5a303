"""OTLP in JSON → spans, in every form that is met.

What the format asks for is read by the store's own reader. Others write ids as base64 (Tempo), keys in snake_case,
``batches`` for ``resourceSpans``, and put the whole into an envelope (``trace`` in Tempo's second API, ``result`` in
Jaeger's third): such a document is brought into the usual form first.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from otel_gym.ingest.otlp.received import MalformedError, Received, has_plain_ids
from otel_gym.store.decode import decode_line
from otel_gym.store.otlp_json import MalformedLineError, parse_document, spans_of_document

_ENVELOPES = ("trace", "result", "data")
_GROUPS = ("resourceSpans", "batches")
_SNAKE = re.compile(r"_([a-z])")
# Before OTLP 0.15 (Tempo still gives them of old blocks).
_OLD_KEYS = {
    "instrumentationLibrarySpans": "scopeSpans",
    "instrumentationLibrary": "scope",
    "ilSpans": "scopeSpans",
    "batches": "resourceSpans",
}
_ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def spans_of_json(content: bytes) -> Received:
    """The spans of one document. MalformedError if it is none; spans that do not follow OTLP are refused."""
    try:
        spans = decode_line(content)
        if all(map(has_plain_ids, spans)):
            return Received(spans)
    except MalformedLineError:
        pass
    try:
        document = parse_document(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"no JSON: {error}") from None
    return spans_of_parsed(document)


def spans_of_parsed(document: Any) -> Received:
    """The same of JSON that is parsed."""
    received = Received()
    if document == {}:
        return received
    try:
        spans = spans_of_document(_usual(_opened(document)))
    except MalformedLineError as error:
        if not error.spans and not _has_groups(document):
            raise MalformedError("no OTLP: a JSON object with the list resourceSpans is asked for") from None
        spans = list(error.spans)
        received.refused, received.problem = error.faults, str(error)
    for span in spans:
        received.add(span)
    return received


def _has_groups(document: Any) -> bool:
    opened = _opened(document)
    return isinstance(opened, dict) and any(isinstance(_usual(opened).get(name), list) for name in _GROUPS)


def _opened(document: Any) -> Any:
    """What is in the envelope, if there is one."""
    if not isinstance(document, dict):
        return document
    for name in _ENVELOPES:
        inner = document.get(name)
        if isinstance(inner, dict) and not any(key in document for key in (*_GROUPS, "resource_spans")):
            return inner
    return document


def _usual(value: Any, name: str = "") -> Any:
    """Keys in lowerCamelCase, ids as hex. No key of OTLP is a name of a user's, those are values of ``key``."""
    if isinstance(value, dict):
        return {key: _usual(item, key) for key, item in ((_usual_key(key), item) for key, item in value.items())}
    if isinstance(value, list):
        return [_usual(item) for item in value]
    if isinstance(value, str) and name in _ID_BYTES:
        return _hex(value, _ID_BYTES[name])
    return value


def _usual_key(key: str) -> str:
    camel = _SNAKE.sub(lambda match: match[1].upper(), key) if "_" in key else key
    return _OLD_KEYS.get(camel, camel)


def _hex(text: str, size: int) -> str:
    """An id of ``size`` bytes as hex: base64 of the same bytes is shorter, so that its length tells it."""
    if len(text) == 2 * size or not text:
        return text
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if re.search("[-_]", text) else None)
    except (binascii.Error, ValueError):
        return text
    return content.hex() if len(content) == size else text
