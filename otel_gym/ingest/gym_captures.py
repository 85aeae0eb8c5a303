"""NeMo Gym's own captures of model calls, ``<rollout id>.capture.jsonl`` with ``.capture.incomplete`` → spans.

A line is a ``chat MODEL`` span with both bodies, as capture makes one of the live exchange; what the line says and the
bodies do not stands beside them, so that the record is the one that NeMo Gym makes of the line. All calls of a file
stand below one ``model_call_capture`` span, which says what the file lacks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from otel_gym import conventions as names
from otel_gym.content import fits_int64, known, safe_attributes, safe_json
from otel_gym.content_policy import DEFAULT_POLICY
from otel_gym.id_rules import rollout_id_of_session
from otel_gym.identity import indices_from_rollout_id
from otel_gym.ingest.imported import ImportedRollout, ImportedSpan, SourceError
from otel_gym.records.capture_line import CaptureLineError, record_of_capture_line
from otel_gym.records.model_call import LINE_FIELDS, ModelCallRecord
from otel_gym.store.times import unix_nanoseconds
from otel_gym.tracing.model_call import (
    OPERATION,
    error_type_of,
    exchange_attributes,
    provider_of,
    request_attributes,
    response_attributes,
)
from otel_gym.wire.bodies import load_json_object
from otel_gym.wire.dialects import DIALECTS
from otel_gym.wire.exchange import Exchange, Execution, ParsedExchange
from otel_gym.wire.parse import parse_exchange

SOURCE = "gym-captures"
LINES, INCOMPLETE = ".capture.jsonl", ".capture.incomplete"

_SERVICE = "nemo-gym"
_NO_TIME_NS = 1
_EVENT_STREAM = "text/event-stream"
_BODIES = ("request", "response", "request_raw", "response_raw")
# What a line says of a call beside its content.
_FACTS = frozenset(LINE_FIELDS) - {"failure_report", "model_operations"} | {
    "latency_ms",
    "client_session_id",
    "client_assistant_message_id",
}
_STREAM = re.compile(r"\ufeff?(?:event|data|id|retry)?:")

Json = dict[str, Any]


def is_gym_captures(path: Path) -> bool:
    """Whether a file is called as NeMo Gym calls them."""
    return path.name.endswith((LINES, INCOMPLETE))


def capture_files(path: Path) -> list[Path]:
    """One file a rollout: of a folder its captures, and the marks of those that have none. SourceError; OSError."""
    if not path.is_dir():
        return [path]
    by_id = {
        _rollout_of(file): file for ending in (INCOMPLETE, LINES) for file in path.glob(f"*{ending}") if file.is_file()
    }
    if not by_id:
        below = next(path.rglob(f"*{LINES}"), None)
        where = "name the model_call_capture_dir of a run" if below is None else f"there are some in {below.parent}"
        raise SourceError(f"{path}: no file in it is called *{LINES}: {where}")
    return [by_id[rollout_id] for rollout_id in sorted(by_id)]


def read_gym_captures(path: Path) -> list[ImportedRollout]:
    """The rollout of one file, or those of every file of a folder. SourceError."""
    return [_rollout(file) for file in capture_files(path)]


def _rollout_of(path: Path) -> str:
    return path.name.removesuffix(LINES).removesuffix(INCOMPLETE)


@dataclass(slots=True)
class _Line:
    """``index`` counts the lines that are not blank, as ``call_index`` does."""

    index: int
    text: bytes
    said: Json
    record: ModelCallRecord


@dataclass(slots=True)
class _File:
    path: Path
    lines: list[_Line] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    unreadable_records: int = 0
    is_unreadable: bool = False


def _rollout(path: Path) -> ImportedRollout:
    if not is_gym_captures(path):
        raise SourceError(f"{path}: the rollout's id is read from the file's name: call it ID{LINES}")
    name = _rollout_of(path)
    file = _read(path.with_name(name + LINES))
    first = next((line.record.model_call_id for line in file.lines if line.record.model_call_id), None)
    rollout = ImportedRollout(
        SOURCE,
        # Ids begin anew with each launch, those of calls do not.
        name if first is None else f"{name}/{first}",
        [],
        _SERVICE,
        rollout_id_of_session(name),
        file.damage,
        path,
        is_whole_rollout=True,
    )
    is_incomplete = path.with_name(name + INCOMPLETE).exists()
    rollout.spans = _spans(rollout, file, is_incomplete)
    return rollout


def _read(path: Path) -> _File:
    file = _File(path)
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        file.is_unreadable = True
        file.damage.append(f"{path}: it cannot be read ({error.strerror}): make it readable, then import again")
        return file
    index = 0
    lines = content.split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            file.lines.append(_line(text, index))
        except ValueError as problem:
            file.unreadable_records += 1
            is_torn = number == len(lines) and not isinstance(problem, CaptureLineError)
            file.damage.append(f"{path}, line {number}: {_TORN if is_torn else f'{problem}: it is left out'}")
        index += 1
    return file


_TORN = "the last line is cut: import again once it is whole"


def _line(text: bytes, index: int) -> _Line:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(said, dict):
        raise ValueError("no JSON object")
    return _Line(index, text, said, record_of_capture_line(said, index))


# --- a line → its span


def _spans(rollout: ImportedRollout, file: _File, is_incomplete: bool) -> list[ImportedSpan]:
    calls = list(_calls(rollout, file))
    times = [time for span in calls if names.TIME_KNOWN not in span.attributes for time in (span.start_ns, span.end_ns)]
    found = [time for time in times if time is not None]
    start_ns, end_ns = (min(found), max(found)) if found else (_NO_TIME_NS, _NO_TIME_NS)
    indices = indices_from_rollout_id(rollout.identity_id)
    said = {
        names.CAPTURE_UNREADABLE_RECORDS: file.unreadable_records,
        names.CAPTURE_INCOMPLETE: is_incomplete,
        names.CAPTURE_UNREADABLE: file.is_unreadable or None,
        names.TIME_KNOWN: None if found else False,
        names.ATTEMPT: indices.attempt or None if indices else None,
    }
    above = ImportedSpan(rollout.span_id("file"), names.CAPTURE_SPAN, start_ns, end_ns, attributes=known(said))
    for span in calls:
        span.parent_id = above.span_id
    return [above, *calls]


def _calls(rollout: ImportedRollout, file: _File) -> Iterator[ImportedSpan]:
    seen: Counter[str] = Counter()
    last_ns = _NO_TIME_NS
    for line in file.lines:
        call_id = line.record.model_call_id or ""
        span = _span(line, rollout.span_id("call", call_id, str(seen[call_id])), last_ns)
        seen[call_id] += 1
        last_ns = span.end_ns or last_ns
        yield span


def _span(line: _Line, span_id: int, last_ns: int) -> ImportedSpan:
    record, said = line.record, line.said
    bodies = _bodies(line)
    start_ns, total_ns, returned_ns = _times(record)
    exchange = _exchange(line, bodies, f"{span_id:016x}", total_ns, returned_ns)
    parsed = parse_exchange(exchange)
    parsed.error_category = record.error_category
    facts = {name: value for name, value in said.items() if name in _FACTS}
    rest = {name: value for name, value in said.items() if name not in _FACTS and name not in bodies}
    attributes = {
        "gen_ai.operation.name": OPERATION,
        **_attributes(exchange, parsed, record),
        names.SOURCE_INDEX: line.index,
        names.TIME_KNOWN: None if start_ns is not None else False,
        names.CAPTURE_LINE: safe_json(facts),
        names.CAPTURE_CONTENT: safe_json(rest) if rest else None,
        names.REQUEST_BODY: bodies.get("request", bodies.get("request_raw")),
        names.RESPONSE_BODY: bodies.get("response", bodies.get("response_raw")),
    }
    error_type = error_type_of(exchange, parsed)
    message = (parsed.error or {}).get("message")
    begin = last_ns if start_ns is None else start_ns
    model = attributes.get("gen_ai.request.model")
    return ImportedSpan(
        span_id,
        f"{OPERATION} {model}" if model else OPERATION,
        begin,
        begin + (total_ns or 0),
        attributes=known(attributes | {"error.type": error_type}),
        error=None if error_type is None else message[:1000] if isinstance(message, str) else "",
    )


def _bodies(line: _Line) -> dict[str, str]:
    """What the bodies of the span say, by the key of the line that each is the text of.

    ``request`` and ``response`` are objects, of which the line's own text is kept; a ``*_raw`` is told from them by
    being none, or a stream.
    """
    said = line.said
    found: dict[str, str] = {}
    if isinstance(said.get("request"), dict):
        found["request"] = _text_of(line, "request")
    elif _is_raw(said.get("request_raw")):
        found["request_raw"] = said["request_raw"]
    if _is_raw(said.get("response_raw")):
        found["response_raw"] = said["response_raw"]
    elif isinstance(said.get("response"), dict):
        found["response"] = _text_of(line, "response")
    return found


def _is_raw(value: Any) -> bool:
    return isinstance(value, str) and value != "" and (_is_stream(value) or load_json_object(value) is None)


def _is_stream(text: str) -> bool:
    return _STREAM.match(text) is not None


def _text_of(line: _Line, name: str) -> str:
    """Numbers stay as they are written."""
    with suppress(ValueError, RecursionError):
        raw = msgspec.json.decode(line.text, type=dict[str, msgspec.Raw]).get(name)
        if raw is not None:
            return bytes(raw).decode()
    return json.dumps(line.said[name], ensure_ascii=False)


def _times(record: ModelCallRecord) -> tuple[int | None, int | None, int | None]:
    """Start in UTC ns; how long it took, and how long until the server returned, in ns; None where it is unknown."""
    start, end = (_ns(record.started_at, "s"), _ns(record.completed_at, "s"))
    took = _ns(record.latency_total_ms, "ms")
    returned = None if start is None or end is None or end < start else end - start
    total = returned if took is None else took
    if start is not None and total is not None and not fits_int64(start + total):
        return None, None, None
    return start, total, returned


def _ns(value: float | None, unit: str) -> int | None:
    if value is None:
        return None
    try:
        time = unix_nanoseconds(value, unit)
    except ValueError:
        return None
    return time if 0 < time < 2**63 else None


def _exchange(
    line: _Line, bodies: dict[str, str], span_id: str, total_ns: int | None, returned_ns: int | None
) -> Exchange:
    record = line.record
    request, response = (
        (bodies.get(name, bodies.get(f"{name}_raw")) or "").encode("utf-8", "surrogatepass")
        for name in ("request", "response")
    )
    first_ns = _ns(record.latency_ttft_ms, "ms")
    execution = Execution(
        record.upstream_attempted, record.response_source, record.upstream_status_code, record.local_response_reason
    )
    return Exchange(
        dialect=record.dialect if record.dialect in DIALECTS else "chat",
        model_call_id=record.model_call_id or span_id,
        started_unix_nano=0,
        model_ref=dict(record.model_ref) if record.model_ref else None,
        request_headers={"x-session-id": [record.client_session_id]} if record.client_session_id else {},
        request_body=request,
        status_code=record.status_code,
        response_content_type=_EVENT_STREAM if _is_stream(bodies.get("response_raw", "")) else None,
        chunks=[(first_ns or 0, response)] if response else [],
        last_byte_ns=total_ns,
        returned_ns=returned_ns or total_ns or 0,
        first_content_ns=first_ns,
        execution=None if execution == Execution() else execution,
        live=False,
    )


def _attributes(exchange: Exchange, parsed: ParsedExchange, record: ModelCallRecord) -> Json:
    """As capture sets them, where the line says so."""
    attributes = {
        "gen_ai.provider.name": provider_of(exchange.dialect),
        **exchange_attributes(exchange, parsed, DEFAULT_POLICY),
        **request_attributes(exchange.dialect, parsed.request),
        **response_attributes(exchange, parsed),
    }
    if exchange.first_content_ns is None:  # the time of the one chunk that is left is none
        for name in (names.FIRST_CHUNK_NS, "gen_ai.response.time_to_first_chunk"):
            attributes.pop(name, None)
    if record.dialect is None:
        for name in (names.DIALECT, "gen_ai.provider.name", "openai.api.type"):
            attributes.pop(name, None)
    if record.started_at is None or record.completed_at is None:
        attributes.pop(names.RETURNED_NS, None)
    return safe_attributes(attributes)[0]
