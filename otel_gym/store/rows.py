"""The columns of the sealed form, and a span as a row of them: StoredSpan ↔ row.

One table, ``COLUMNS``, says what each column holds; the Arrow schema, the rows and docs/store.md are made from it. A
row is a list with one value a column. It gives its span back whole: what a column cannot say exactly (bytes, a NaN
inside a list, a time beyond 64 bit) stands in ``exact``, the span as a line of OTLP/JSON, null for nearly every span.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from otel_gym import conventions as names
from otel_gym.content import fits_int64, safe_text
from otel_gym.store.decode import Count, Enumeration
from otel_gym.store.otlp_json import (
    KIND_NAMES,
    STATUS_NAMES,
    MalformedLineError,
    spans_of_line,
)
from otel_gym.store.span import SpanEvent, SpanLink, StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.tokens import may_hold_tokens, tokens_of
from otel_gym.store.whole_requests import RequestsInOrder

# Raised with any change of COLUMNS; written into every file.
SCHEMA_VERSION = "1"

TEXT, TEXTS, INT, DOUBLE, FLAG, TIME, IDS, DOUBLES = "text", "texts", "int", "double", "flag", "time", "ids", "doubles"


@dataclass(frozen=True, slots=True)
class Column:
    """``attribute``: the span attribute that moved into it. ``repeats``: few values, so kept as a dictionary."""

    name: str
    type: str
    meaning: str
    attribute: str | None = None
    repeats: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("run_id", TEXT, "the launch; null where the span names none", repeats=True),
    Column("rollout_id", TEXT, "where the span is filed; `unassigned` where it had no rollout", repeats=True),
    Column("trace_id", TEXT, "32 hex digits", repeats=True),
    Column("span_id", TEXT, "16 hex digits; unique within the rollout"),
    Column("parent_span_id", TEXT, "null for a root span"),
    Column("name", TEXT, "`chat MODEL`, `execute_tool NAME`, `agent_step`, `rollout` …", repeats=True),
    Column("kind", TEXT, "`INTERNAL`, `SERVER`, `CLIENT` …", repeats=True),
    Column("start_ns", INT, "UTC, nanoseconds since 1970, exact"),
    Column("end_ns", INT, "the same; null for a span that never ended"),
    Column("start_time", TIME, "start_ns as a timestamp, cut to microseconds"),
    Column("end_time", TIME, "end_ns as a timestamp, cut to microseconds"),
    Column("status", TEXT, "`UNSET`, `OK`, `ERROR`", repeats=True),
    Column("status_message", TEXT, "what the span said of its failure"),
    Column("service", TEXT, "`service.name` of the resource", repeats=True),
    Column("scope", TEXT, "the instrumentation that made the span", repeats=True),
    Column("task_index", INT, "task of the rollout", names.TASK_INDEX),
    Column("rollout_index", INT, "which rollout of its task", names.ROLLOUT_INDEX),
    Column("attempt", INT, "which try; null for the first", names.ATTEMPT),
    Column("step_index", INT, "which step of the agent", "gym.step.index"),
    Column("reward", DOUBLE, "the verifier's verdict; a real NaN or infinity stays one", names.REWARD),
    Column("operation", TEXT, "`chat`, `execute_tool`, `invoke_agent` …", "gen_ai.operation.name", True),
    Column("provider", TEXT, "who serves the model", "gen_ai.provider.name", True),
    Column("agent", TEXT, "the agent's name", "gen_ai.agent.name", True),
    Column("conversation_id", TEXT, "the conversation, session or thread", "gen_ai.conversation.id", True),
    Column("request_model", TEXT, "the model asked for", "gen_ai.request.model", True),
    Column("response_model", TEXT, "the model that answered", "gen_ai.response.model", True),
    Column("response_id", TEXT, "the provider's id of the answer", "gen_ai.response.id"),
    Column("model_call_id", TEXT, "the exchange; joins with ModelCallRecords", names.MODEL_CALL_ID),
    Column("dialect", TEXT, "`responses`, `chat` or `messages`", names.DIALECT, True),
    Column("finish_reasons", TEXTS, "the provider's words, one a choice", "gen_ai.response.finish_reasons"),
    Column("input_tokens", INT, "the whole prompt, cache included", "gen_ai.usage.input_tokens"),
    Column("output_tokens", INT, "reasoning included", "gen_ai.usage.output_tokens"),
    Column("cache_read_tokens", INT, "of the prompt, from the cache", "gen_ai.usage.cache_read.input_tokens"),
    Column("cache_write_tokens", INT, "of the prompt, into the cache", "gen_ai.usage.cache_write.input_tokens"),
    Column("reasoning_tokens", INT, "of the answer", "gen_ai.usage.reasoning.output_tokens"),
    Column("time_to_first_chunk_s", DOUBLE, "seconds; null unless streamed", "gen_ai.response.time_to_first_chunk"),
    Column("streamed", FLAG, "the request asked for a stream", "gen_ai.request.stream"),
    Column("http_status", INT, "status of the answer", "http.response.status_code"),
    Column("error_type", TEXT, "class or code of the failure", "error.type", True),
    Column("error_category", TEXT, "why the call was no success, in NeMo Gym's words", names.ERROR_CATEGORY, True),
    Column("tool", TEXT, "the tool's name", "gen_ai.tool.name", True),
    Column("tool_call_id", TEXT, "joins the call in the model's answer with its execution", "gen_ai.tool.call.id"),
    Column("tool_arguments", TEXT, "JSON text", "gen_ai.tool.call.arguments"),
    Column("tool_result", TEXT, "JSON text", "gen_ai.tool.call.result"),
    Column("request_body", TEXT, "the request, whole; media as `otel_gym:blob:…`", names.REQUEST_BODY),
    Column("response_body", TEXT, "the response as it went, whole", names.RESPONSE_BODY),
    Column("system_instructions", TEXT, "JSON text", "gen_ai.system_instructions"),
    Column("input_messages", TEXT, "JSON text", "gen_ai.input.messages"),
    Column("output_messages", TEXT, "JSON text", "gen_ai.output.messages"),
    Column("tool_definitions", TEXT, "JSON text", "gen_ai.tool.definitions"),
    Column("prompt_token_ids", IDS, "where the response says them; copied out of response_body"),
    Column("generation_token_ids", IDS, "the same"),
    Column("generation_log_probs", DOUBLES, "the same; -inf and NaN are real, null stays null"),
    Column("attributes", TEXT, "JSON object: every other attribute, with its type"),
    Column("events", TEXT, "JSON list of {name, time_ns, attributes}; null for none"),
    Column("links", TEXT, "JSON list of {trace_id, span_id, attributes}; null for none"),
    Column("resource", TEXT, "JSON object: attributes of the process that made the span", repeats=True),
    Column("dropped_attributes", INT, "how many attributes a limit dropped; null for none"),
    Column("exact", TEXT, "the span as OTLP/JSON, where the columns cannot say it exactly; else null"),
)

Row = list[Any]
AT = {column.name: index for index, column in enumerate(COLUMNS)}
_WIDTH = len(COLUMNS)

RUN, ROLLOUT, TRACE, SPAN = AT["run_id"], AT["rollout_id"], AT["trace_id"], AT["span_id"]
START, END = AT["start_ns"], AT["end_ns"]
REQUEST, RESPONSE = AT["request_body"], AT["response_body"]
_PARENT, _NAME, _KIND, _STATUS, _MESSAGE = (
    AT["parent_span_id"],
    AT["name"],
    AT["kind"],
    AT["status"],
    AT["status_message"],
)
_SERVICE, _SCOPE, _DROPPED = AT["service"], AT["scope"], AT["dropped_attributes"]
_ATTRIBUTES, _EVENTS, _LINKS, _RESOURCE, _EXACT = (
    AT["attributes"],
    AT["events"],
    AT["links"],
    AT["resource"],
    AT["exact"],
)
_PROMPT_IDS, _DIALECT = AT["prompt_token_ids"], AT["dialect"]

# Attribute → (its column, the type of value that the column says exactly).
_PLACES: dict[str, tuple[int, str]] = {
    column.attribute: (AT[column.name], column.type) for column in COLUMNS if column.attribute
}
_TEXT_PLACES = {attribute: index for attribute, (index, kind) in _PLACES.items() if kind == TEXT}
_OTHER_PLACES = {attribute: place for attribute, place in _PLACES.items() if place[1] != TEXT}
_PROMOTED = tuple((index, attribute) for attribute, (index, _) in _PLACES.items())

# In the JSON text of other attributes: the request is what it adds to an earlier one.
_GROWN = f'"{names.REQUEST_BODY}{names.BODY_BASE}":'
_CUT = (names.REQUEST_BODY + names.BODY_BYTES, names.RESPONSE_BODY + names.BODY_BYTES)

_KINDS = {number: name.removeprefix("SPAN_KIND_") for name, number in KIND_NAMES.items()}
_STATUSES = {number: name.removeprefix("STATUS_CODE_") for name, number in STATUS_NAMES.items()}
_KIND_NUMBERS = {name: number for number, name in _KINDS.items()}
_STATUS_NUMBERS = {name: number for number, name in _STATUSES.items()}

_encode_text = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _json(value: Any) -> str:
    return _encode_text(value).decode()


# --- StoredSpan → row


def row_of_span(span: StoredSpan, rollout_id: str) -> Row:
    """The row of ``span``, filed under ``rollout_id``. Any span has one."""
    row: Row = [None] * _WIDTH
    rest: dict[str, Any] = {}
    exactly = True
    for name, value in span.attributes.items():
        place = _PLACES.get(name)
        if place is None:
            rest[name] = value
            continue
        index, kind = place
        if not _FITS[kind](value):
            # The column says it as well as it can; the JSON text has it with its own type, and wins on reading.
            rest[name] = value
            value = _converted(kind, value)
        row[index] = value
    _fill(row, span, rollout_id)
    texts = (rest, [_event(event) for event in span.events], [_link(link) for link in span.links], span.resource)
    for index, value in zip((_ATTRIBUTES, _EVENTS, _LINKS, _RESOURCE), texts, strict=True):
        if value:
            exactly &= _is_plain(value)
            row[index] = _json_of_any(value)
    if isinstance(row[RESPONSE], str):
        row[_PROMPT_IDS : _PROMPT_IDS + 3] = tokens_of(span.attributes, row[RESPONSE])
    exactly &= _clean(row)
    if not exactly:
        row[_EXACT] = line_of_span(span).decode()
    return row


def _fill(row: Row, span: StoredSpan, rollout_id: str) -> None:
    service = span.resource.get("service.name")
    row[RUN], row[ROLLOUT] = span.run_id, rollout_id
    row[TRACE], row[SPAN], row[_PARENT] = span.trace_id, span.span_id, span.parent_span_id
    row[_NAME], row[_KIND] = span.name, kind_name(span.kind)
    row[START], row[END] = span.start_ns, span.end_ns
    row[_STATUS], row[_MESSAGE] = status_name(span.status), span.status_message
    row[_SERVICE] = service if isinstance(service, str) else None
    row[_SCOPE], row[_DROPPED] = span.scope_name, span.dropped or None


def kind_name(kind: int) -> str:
    return _KINDS.get(kind) or str(kind)


def status_name(status: int) -> str:
    return _STATUSES.get(status) or str(status)


def _event(event: SpanEvent) -> dict[str, Any]:
    return {"name": event.name, "time_ns": event.time_unix_nano, "attributes": event.attributes}


def _link(link: SpanLink) -> dict[str, Any]:
    return {"trace_id": link.trace_id, "span_id": link.span_id, "attributes": link.attributes}


_FITS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: type(value) is str,
    TEXTS: lambda value: type(value) is list and all(type(item) is str for item in value),
    INT: lambda value: type(value) is int and fits_int64(value),
    DOUBLE: lambda value: type(value) is float,
    FLAG: lambda value: type(value) is bool,
}


def _converted(kind: str, value: Any) -> Any:
    """What a column of ``kind`` can say of a value of another type; None for nothing."""
    if kind == DOUBLE and type(value) is int and abs(value) < 2**53:
        return float(value)
    if kind == TEXTS and type(value) is str:
        return [value]
    if kind == INT and type(value) is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return None


def _is_plain(value: Any) -> bool:
    """Whether JSON says the value exactly: what is written is what is read."""
    if value is None or isinstance(value, str | bool):
        return True
    if isinstance(value, int):
        return fits_int64(value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return False


def _json_of_any(value: Any) -> str:
    """JSON text of what may hold anything: NaN as null, bytes as base64."""
    try:
        return _encode_text(value).decode()
    except (TypeError, ValueError, OverflowError, UnicodeError, RecursionError):
        return _encode_text(_sayable(value, 0)).decode()


def _sayable(value: Any, depth: int) -> Any:
    if depth > 200:
        return "<nested too deep>"
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if fits_int64(value) else str(value)
    if isinstance(value, list | tuple):
        return [_sayable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {safe_text(str(key)): _sayable(item, depth + 1) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | float | bytes) else safe_text(str(value))


def _clean(row: Row) -> bool:
    """Makes every cell one that its column takes; False if one had to change."""
    unchanged = True
    for index, cell in enumerate(row):
        if type(cell) is str:
            clean: Any = safe_text(cell)
        elif type(cell) is int:
            clean = min(max(cell, -(2**63)), 2**63 - 1)
        elif type(cell) is list and cell and type(cell[0]) is str:
            clean = [safe_text(item) for item in cell]
        else:
            continue
        if clean is not cell and clean != cell:
            row[index], unchanged = clean, False
    return unchanged


# --- row → StoredSpan


def span_of_row(row: Row) -> StoredSpan:
    """The span that the row was made from."""
    exact = row[_EXACT]
    if exact is not None:
        with suppress(MalformedLineError):
            for span in spans_of_line(exact.encode()):
                return span
    attributes = {attribute: row[index] for index, attribute in _PROMOTED if row[index] is not None}
    if row[_ATTRIBUTES] is not None:
        attributes.update(_decode(row[_ATTRIBUTES]))
    return StoredSpan(
        trace_id=row[TRACE],
        span_id=row[SPAN],
        parent_span_id=row[_PARENT],
        name=row[_NAME],
        kind=_number(row[_KIND], _KIND_NUMBERS),
        start_ns=row[START],
        end_ns=row[END],
        attributes=attributes,
        events=[SpanEvent(e["name"], e["time_ns"], e["attributes"]) for e in _list(row[_EVENTS])],
        links=[SpanLink(link["trace_id"], link["span_id"], link["attributes"]) for link in _list(row[_LINKS])],
        status=_number(row[_STATUS], _STATUS_NUMBERS),
        status_message=row[_MESSAGE],
        resource={} if row[_RESOURCE] is None else _decode(row[_RESOURCE]),
        scope_name=row[_SCOPE],
        dropped=row[_DROPPED] or 0,
    )


def _list(text: str | None) -> list[Any]:
    return [] if text is None else list(_decode(text))


def _number(name: str, numbers: dict[str, int]) -> int:
    number = numbers.get(name)
    return int(name) if number is None else number


# --- a line of the live form → rows, without a StoredSpan between


class _Value(msgspec.Struct, gc=False):
    stringValue: str | None = None  # noqa: N815
    intValue: str | int | None = None  # noqa: N815
    doubleValue: float | str | None = None  # noqa: N815
    boolValue: bool | None = None  # noqa: N815
    arrayValue: msgspec.Raw = msgspec.Raw()  # noqa: N815
    kvlistValue: msgspec.Raw = msgspec.Raw()  # noqa: N815
    bytesValue: str | None = None  # noqa: N815


class _Pair(msgspec.Struct, gc=False):
    key: str
    value: _Value = msgspec.field(default_factory=_Value)


class _Status(msgspec.Struct, gc=False):
    code: Enumeration = 0
    message: str | None = None


class _Span(msgspec.Struct, gc=False):
    traceId: str  # noqa: N815
    spanId: str  # noqa: N815
    startTimeUnixNano: str  # noqa: N815
    endTimeUnixNano: str  # noqa: N815
    kind: Enumeration
    name: str
    parentSpanId: str | None = None  # noqa: N815
    attributes: list[_Pair] = []
    status: _Status | None = None
    events: msgspec.Raw = msgspec.Raw()
    links: msgspec.Raw = msgspec.Raw()
    droppedAttributesCount: Count = 0  # noqa: N815
    droppedEventsCount: Count = 0  # noqa: N815
    droppedLinksCount: Count = 0  # noqa: N815


class _Scope(msgspec.Struct, gc=False):
    name: str | None = None


class _ScopeSpans(msgspec.Struct, gc=False):
    scope: _Scope | None = None
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, gc=False):
    resource: msgspec.Raw = msgspec.Raw()
    scopeSpans: list[_ScopeSpans] = []  # noqa: N815


class _TracesData(msgspec.Struct, gc=False):
    resourceSpans: list[_ResourceSpans]  # noqa: N815


class _OddError(Exception):
    """A line that the quick way does not understand; the slow one does."""


_decode_line = msgspec.json.Decoder(_TracesData).decode


class LineRows:
    """Lines of a store → rows. Our writer's lines take a quick way, any other goes through StoredSpan.

    ``requests`` makes the request of a span whole where its line says only what it adds to an earlier one.
    """

    def __init__(self, requests: RequestsInOrder | None = None) -> None:
        self._requests = requests
        self._resources: dict[bytes, tuple[str | None, str | None, str | None]] = {}

    def rows(self, line: bytes | memoryview, rollout_id: str) -> list[Row]:
        """The rows of one line; MalformedLineError as ``spans_of_line``."""
        try:
            return self._quick_rows(line, rollout_id)
        except (_OddError, msgspec.MsgspecError, ValueError, UnicodeError, RecursionError):
            return self.rows_of_spans(spans_of_line(bytes(line)), rollout_id)

    def rows_of_spans(self, spans: Iterable[StoredSpan], rollout_id: str) -> list[Row]:
        """The rows of spans that were read from one line, in the place of ``rows``."""
        return [self._slow_row(span, rollout_id) for span in spans]

    def _slow_row(self, span: StoredSpan, rollout_id: str) -> Row:
        if self._requests is not None and names.REQUEST_BODY in span.attributes:
            span = self._requests.restored(span)
        return row_of_span(span, rollout_id)

    def _quick_rows(self, line: bytes | memoryview, rollout_id: str) -> list[Row]:
        rows = []
        for group in _decode_line(line).resourceSpans:
            raw = bytes(group.resource)
            resource = self._resources.get(raw) or self._resource(raw)
            for scope_spans in group.scopeSpans:
                scope = None if scope_spans.scope is None else scope_spans.scope.name
                for span in scope_spans.spans:
                    row = _quick_row(span, rollout_id)
                    row[_RESOURCE], row[_SERVICE], run_id = resource
                    row[_SCOPE] = scope
                    if row[RUN] is None:
                        row[RUN] = run_id
                    rows.append(row if row[REQUEST] is None else self._whole(row, rollout_id))
        return rows

    def _whole(self, row: Row, rollout_id: str) -> Row:
        if self._requests is None:
            return row
        if _GROWN in (row[_ATTRIBUTES] or ""):
            return row_of_span(self._requests.restored(span_of_row(row)), rollout_id)
        self._requests.note_whole(row[TRACE], row[SPAN], row[REQUEST])
        return row

    def _resource(self, raw: bytes) -> tuple[str | None, str | None, str | None]:
        """(JSON text, service, run id): the same for all spans of a process, so read once."""
        line = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"spans":[{"traceId":"","spanId":""}]}]}]}'
        (span,) = spans_of_line(line % (raw or b"{}"))
        if not _is_plain(span.resource):
            raise _OddError
        service = span.resource.get("service.name")
        if len(self._resources) > 1000:
            self._resources.clear()
        found = (
            _json(span.resource) if span.resource else None,
            service if isinstance(service, str) else None,
            span.run_id,
        )
        self._resources[raw] = found
        return found


def _quick_row(span: _Span, rollout_id: str) -> Row:
    row: Row = [None] * _WIDTH
    rest: dict[str, Any] = {}
    for pair in span.attributes:
        name, value = pair.key, pair.value
        text = value.stringValue
        if text is not None:
            index = _TEXT_PLACES.get(name)
            if index is not None:
                row[index] = text
            elif name in _OTHER_PLACES:
                raise _OddError
            else:
                rest[name] = text
            continue
        kind, content = _content(value)
        place = _OTHER_PLACES.get(name)
        if place is None:
            if name in _TEXT_PLACES:
                raise _OddError
            rest[name] = content
        elif place[1] == kind:
            row[place[0]] = content
        else:
            raise _OddError
    if span.events or span.links:
        _require_none(span.events, span.links)
    start_ns, end_ns = int(span.startTimeUnixNano), int(span.endTimeUnixNano)
    status = span.status
    run_id = rest.get(names.RUN_ID)
    if not 0 <= start_ns < 2**63 or not 0 < end_ns < 2**63 or (run_id is not None and type(run_id) is not str):
        raise _OddError
    row[RUN], row[ROLLOUT] = run_id, rollout_id
    row[TRACE], row[SPAN], row[_PARENT] = span.traceId.lower(), span.spanId.lower(), span.parentSpanId
    if row[_PARENT] is not None:
        row[_PARENT] = row[_PARENT].lower() or None
    row[_NAME], row[_KIND] = span.name, _KINDS.get(span.kind) or str(span.kind)
    row[START], row[END] = start_ns, end_ns
    row[_STATUS] = "UNSET"
    if status is not None:
        row[_STATUS], row[_MESSAGE] = _STATUSES.get(status.code) or str(status.code), status.message
    if rest:
        row[_ATTRIBUTES] = _encode_text(rest).decode()
    row[_DROPPED] = span.droppedAttributesCount + span.droppedEventsCount + span.droppedLinksCount or None
    response = row[RESPONSE]
    if response is not None and may_hold_tokens(response):
        row[_PROMPT_IDS : _PROMPT_IDS + 3] = tokens_of(rest | {names.DIALECT: row[_DIALECT]}, response)
    return row


def _content(value: _Value) -> tuple[str, Any]:
    """A value that is no text, and the kind of column that says it exactly."""
    if value.intValue is not None:
        number = int(value.intValue)
        if not -_INT64 <= number < _INT64:
            raise _OddError
        return INT, number
    if value.boolValue is not None:
        return FLAG, value.boolValue
    if value.doubleValue is not None:
        if type(value.doubleValue) is not float or not math.isfinite(value.doubleValue):
            raise _OddError
        return DOUBLE, value.doubleValue
    if value.arrayValue:
        texts = _decode_texts(value.arrayValue).values
        return TEXTS, [text.stringValue for text in texts]
    if value.kvlistValue or value.bytesValue is not None:
        raise _OddError
    return "", None


class _Text(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    stringValue: str  # noqa: N815


class _Texts(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    values: list[_Text] = []


_decode_texts = msgspec.json.Decoder(_Texts).decode
_INT64 = 2**63
_NONE = (b"", b"[]", b"null")


def _require_none(*lists: msgspec.Raw) -> None:
    if any(bytes(raw) not in _NONE for raw in lists):
        raise _OddError


# --- which of two rows of one span counts


def rank(row: Row) -> tuple[bool, bool]:
    """Ended before open, whole before cut."""
    attributes = row[_ATTRIBUTES]
    cut = attributes is not None and any(f'"{name}":' in attributes for name in _CUT)
    return row[END] is not None, not cut
