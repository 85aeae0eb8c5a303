"""The records of a set of trace files, each once, in the order in which things happened.

However they lie in files, and in whichever order: the same records give the same rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from otel_gym.agent_identity import LEGACY_NAMES, AgentContext
from otel_gym.ingest.files import unreadable_text
from otel_gym.records.dynamo import (
    AuditRecord,
    DynamoRecord,
    DynamoRecordError,
    RequestPayload,
    decode_audit,
    decode_record,
    event_of,
)
from otel_gym.store.dynamo_files import lines_of_trace
from otel_gym.store.repair import Damage

# Of a file with another content so many lines are told one by one.
_FIRST_LINES = 10
_BODIES = ("request", "response", "http_request_headers")
_CONTEXT_NAMES = frozenset(AgentContext.__dataclass_fields__) | set(LEGACY_NAMES)


@dataclass(slots=True)
class Row:
    """A record. ``digest`` tells it from every other one; ``extra``: what it says in fields that are not known."""

    record: DynamoRecord
    context: AgentContext | None
    extra: dict[str, Any]
    digest: str

    @property
    def order(self) -> tuple[int, bool, str]:
        """A tool's start before its end, where both have the same time."""
        return self.time_ms or 0, self.record.event_type != "tool_start", self.digest

    @property
    def is_payload(self) -> bool:
        return self.record.event_type == "request_payload" and self.record.payload is not None

    @property
    def time_ms(self) -> int | None:
        return self.record.event_time_unix_ms


@dataclass(slots=True)
class Trace:
    """What some files hold. ``payloads``: bodies of requests, those of audit files too, as they came. ``records``: how
    many were read, copies too.
    """

    rows: list[Row] = field(default_factory=list)
    payloads: list[Row] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    records: int = 0


def trace_of(rows: Iterable[Row]) -> Trace:
    """Each once, in order."""
    trace = Trace()
    for row in sorted({row.digest: row for row in rows}.values(), key=lambda row: row.order):
        (trace.payloads if row.is_payload else trace.rows).append(row)
        trace.records += 1
    return trace


def read_trace(files: Iterable[Path], told: Collection[Path]) -> Trace:
    """Of ``files``. One that is of another kind, and was not ``told`` itself but found in a folder, is passed over."""
    trace = Trace()
    seen: set[str] = set()
    for path in files:
        try:
            if path in told or begins_as_dynamo(path) is not False:
                _read_file(path, trace, seen)
        except OSError as error:
            trace.damage.append(unreadable_text(path, error))
    for rows in (trace.rows, trace.payloads):
        rows.sort(key=lambda row: row.order)
    return trace


def begins_as_dynamo(path: Path) -> bool | None:
    """Whether one of the first records is Dynamo's, of whichever version; None where nothing can be told. OSError."""
    first = [line for _, line in islice(lines_of_trace(path, lambda damage: None), _FIRST_LINES) if line.strip()]
    events = [event for event in map(event_of, first) if event is not None]
    if not events:
        return None
    return any(str(event.get("schema")).startswith("dynamo.") or is_audit(event) for event in events)


def is_audit(event: dict[str, Any]) -> bool:
    return "schema_version" in event and "request_id" in event


def _read_file(path: Path, trace: Trace, seen: set[str]) -> None:
    damage: list[Damage] = []
    copies: list[int] = []
    found = 0
    for number, line in lines_of_trace(path, damage.append):
        if not line.strip():
            continue
        try:
            row = row_of(line)
        except DynamoRecordError as problem:
            damage.append(Damage(path, number, str(problem)))
            continue
        found += 1
        if row.digest in seen:
            copies.append(number)
            continue
        seen.add(row.digest)
        (trace.payloads if row.is_payload else trace.rows).append(row)
    trace.records += found
    trace.damage += _said(path, damage, found)
    if copies:
        number_of = "a record is" if len(copies) == 1 else f"{len(copies):,} records are"
        twice = f"{number_of} written twice, the first copy stands here"
        trace.damage.append(str(Damage(path, copies[0], twice, "each is counted once")))


def _said(path: Path, damage: list[Damage], found: int) -> Iterator[str]:
    if found or not damage:
        if not found:
            cure = "nothing is lost of what was written; leave it out, or import again once it is written"
            yield str(Damage(path, 0, "the file is empty: its writer was killed before it wrote", cure))
        yield from map(str, damage)
        return
    kinds = Counter(each.problem for each in damage if each.line)
    if not kinds:
        yield from map(str, damage)
        return
    problem, _ = kinds.most_common(1)[0]
    cure = "name files of Dynamo's agent or request trace, or of its audit"
    yield str(Damage(path, 0, f"none of its {len(damage):,} lines is a record of Dynamo's: {problem}", cure))


def row_of(line: bytes) -> Row:
    """DynamoRecordError."""
    try:
        record = decode_record(line)
    except DynamoRecordError as problem:
        audit = decode_audit(line)
        if audit is None:
            raise problem from None
        record = _of_audit(audit)
        return Row(record, None, {}, _digest(record, {}))
    extra = _unknown(event_of(line) or {}, msgspec.to_builtins(record, builtin_types=(msgspec.Raw,)))
    return Row(record, record.context, extra, _digest(record, extra))


def _of_audit(audit: AuditRecord) -> DynamoRecord:
    """As if it stood in the trace: an audit has the bodies alone, no time."""
    payload = RequestPayload(
        request_id=audit.request_id, model=audit.model, request=audit.request, response=audit.response
    )
    return DynamoRecord("dynamo.agent.trace.v1", "request_payload", payload=payload)


def _digest(record: DynamoRecord, extra: dict[str, Any]) -> str:
    return hashlib.blake2b(msgspec.json.encode((record, extra)), digest_size=16).hexdigest()


def _unknown(said: dict[str, Any], known: dict[str, Any], beside: Collection[str] = ()) -> dict[str, Any]:
    """What is said, and not read: fields that are not known, and values of another type. Not those ``beside``."""
    unknown: dict[str, Any] = {}
    for name, given in said.items():
        read = known.get(name)
        if given is None or name in beside:
            continue
        if name == "agent_context" and isinstance(given, dict):
            more: Any = {key: one for key, one in given.items() if key not in _CONTEXT_NAMES and one is not None}
        elif isinstance(given, dict) and isinstance(read, dict):
            more = _unknown(given, read, _BODIES if name == "payload" else ())
        else:
            more = None if _without_nulls(given) == read else given
        if more or (more is not None and read is None):
            unknown[name] = more
    return unknown


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
