"""Rows of a Mooncake trace as Dynamo's replay reads them: one line of JSON a request.

``mooncake``: requests that arrive on their own. ``agentic_mooncake``: each waits for those that it names, then for its
delay and the tools. ``hash_ids`` stand for the blocks of the prompt: a shared prefix is a shared beginning of them.
Keys stand in the order in which Dynamo writes them; what is None or empty is not written. Times are milliseconds.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]

_UNSIGNED_64 = 2**64
# What Rust calls white space, which differs from Python's in U+001C to U+001F.
_WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ALIASES = {
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "created_time": "timestamp",
    "delay_ms": "delay",
}


class ToolEvent(msgspec.Struct, omit_defaults=True):
    """A tool that a request waited for; times are UNIX ms. ``status``: running, succeeded, error or cancelled."""

    tool_call_id: str
    tool_class: str
    started_at_unix_ms: Count
    ended_at_unix_ms: Count
    duration_ms: float
    status: str
    output_bytes: Count | None = None
    output_tokens: Count | None = None
    error_type: str | None = None


class MooncakeRow(msgspec.Struct):
    """A request that arrives ``timestamp`` ms after the first one."""

    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float


class AgenticRow(msgspec.Struct, omit_defaults=True):
    """A request that begins ``delay`` + ``tool_wait_ms`` after all of ``wait_for`` ended; without these, at
    ``timestamp``. ``branches`` are the first requests of the agents that it started."""

    request_id: str
    session_id: str
    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float
    delay: float | None = None
    request_kind: str | None = None
    wait_for: list[str] = []
    branches: list[str] = []
    prefix_reset: bool | None = None
    tool_wait_ms: float | None = None
    tool_events: list[ToolEvent] = []


@dataclass(frozen=True, slots=True)
class RowProblem:
    """``line`` counts from 1. ``is_refused`` False: the replay reads the row, but an older one does not."""

    line: int
    request_id: str | None
    text: str
    is_refused: bool = True

    def __str__(self) -> str:
        named = "" if self.request_id is None else f", request {self.request_id!r}"
        return f"row {self.line}{named}: {self.text}"


def encode_row(row: MooncakeRow | AgenticRow) -> bytes:
    """A line without its newline."""
    return msgspec.json.encode(row)


def check_rows(lines: Iterable[bytes], block_size: int, *, agentic: bool) -> Iterator[RowProblem]:
    """What ``python -m dynamo.replay --trace-block-size N`` (1.4.2) refuses in the lines of a trace; nothing: it
    completes every request. Blank lines are none."""
    check = _AgenticCheck(block_size) if agentic else _Check(block_size)
    for number, line in enumerate(lines, 1):
        if not _is_blank(line):
            yield from check.row(number, line)
    yield from check.end()


def _is_blank(line: bytes) -> bool:
    try:
        return not line.strip() or not line.decode("utf-8").strip(_WHITE)
    except UnicodeDecodeError:
        return False


class _RowText(msgspec.Struct):
    """A row as others write it, of both formats."""

    request_id: str | None = None
    session_id: str | None = None
    input_length: Count | None = None
    input_tokens: Count | None = None
    output_length: Count | None = None
    output_tokens: Count | None = None
    output_token_ids: list[Count] | None = None
    hash_ids: list[Count] | None = None
    timestamp: float | None = None
    created_time: float | None = None
    delay: float | None = None
    delay_ms: float | None = None
    priority: int | None = None
    strict_priority: Count | None = None
    policy_class: str | None = None


class _AgenticRowText(_RowText):
    request_kind: str | None = None
    wait_for: list[str] = []
    branches: list[str] = []
    prefix_reset: bool | None = None
    tool_wait_ms: float | None = None
    tool_events: list[ToolEvent] = []


class _Check:
    """Rows of one session are turns of it: each begins after the one before it. Those without one stand alone."""

    row_type: type[_RowText] = _RowText

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._decoder = msgspec.json.Decoder(self.row_type)
        self._is_empty = True
        self._session_times: dict[str, float | None] = {}

    def row(self, line: int, content: bytes) -> Iterator[RowProblem]:
        self._is_empty = False
        try:
            row = self._decoder.decode(content)
            _check_keys(content, row)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as problem:
            yield RowProblem(line, None, f"no row: {problem}")
            return
        for name, alias in ((name, alias) for alias, name in _ALIASES.items()):
            if getattr(row, name) is None:
                setattr(row, name, getattr(row, alias))
        for text in self._problems(row, line):
            yield RowProblem(line, row.request_id, text)
        if row.output_length == 0:
            yield RowProblem(
                line, row.request_id, "output_length is 0: dynamo.replay 1.3.1 never ends such a request", False
            )

    def end(self) -> Iterator[RowProblem]:
        if self._is_empty:
            yield RowProblem(0, None, "no rows")

    def _problems(self, row: Any, line: int) -> Iterator[str]:
        yield from _wrong_lengths(row)
        yield from self._wrong_turn(row)
        if row.input_length == 0 or (row.input_length is None and row.hash_ids == []):
            yield "input_length is 0"

    def _wrong_turn(self, row: Any) -> Iterator[str]:
        is_first = row.session_id is None or row.session_id not in self._session_times
        if is_first and row.delay is not None:
            yield "delay on the first turn of its session"
        if is_first and row.timestamp is None:
            yield "timestamp is missing on the first turn of its session"
        before = None if row.session_id is None else self._session_times.get(row.session_id)
        since = row.timestamp - before if row.timestamp is not None and before is not None else 0.0
        waits = since if row.delay is None else row.delay
        if not is_first and waits < 0:
            yield f"it begins {-waits} ms before the turn before it"
        if row.session_id is not None:
            self._session_times[row.session_id] = row.timestamp if row.timestamp is not None else before


class _AgenticCheck(_Check):
    row_type = _AgenticRowText

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self._places: dict[str, int] = {}
        self._lines: list[int] = []
        self._wait_for: list[list[str]] = []

    def _problems(self, row: Any, line: int) -> Iterator[str]:
        if row.request_id is None or not row.request_id.strip(_WHITE):
            yield "request_id is missing or empty"
            return
        if row.request_id in self._places:
            yield f"request_id stands in row {self._lines[self._places[row.request_id]]} too"
        else:
            self._places[row.request_id] = len(self._lines)
            self._lines.append(line)
            self._wait_for.append(list(dict.fromkeys(row.wait_for)))
        yield from _wrong_lengths(row)
        yield from _wrong_numbers(row)
        capacity = len(row.hash_ids or ()) * self._block_size
        if row.input_length is not None and row.hash_ids is not None and row.input_length > capacity:
            yield f"input_length {row.input_length} needs more than {len(row.hash_ids)} blocks of {self._block_size}"

    def end(self) -> Iterator[RowProblem]:
        yield from super().end()
        names = list(self._places)
        dependents: list[list[int]] = [[] for _ in names]
        waiting = [0] * len(names)
        for place, wait_for in enumerate(self._wait_for):
            for name in wait_for:
                before = self._places.get(name)
                if before is None or before == place:
                    why = "it waits for itself" if before == place else f"it waits for {name!r}, which is no row"
                    yield RowProblem(self._lines[place], names[place], why)
                    continue
                dependents[before].append(place)
                waiting[place] += 1
        for place in _in_cycles(dependents, waiting):
            yield RowProblem(self._lines[place], names[place], "it waits, through others, for itself")


def _wrong_lengths(row: Any) -> Iterator[str]:
    if row.hash_ids is None:
        yield "hash_ids are missing"
    elif max(row.hash_ids, default=0) >= _UNSIGNED_64:
        yield "a hash id is above 2^64"
    if row.output_length is None:
        yield "output_length is missing"
    elif row.output_token_ids is not None and len(row.output_token_ids) != row.output_length:
        yield f"{len(row.output_token_ids)} output_token_ids for an output_length of {row.output_length}"
    if max(row.input_length or 0, row.output_length or 0) >= _UNSIGNED_64:
        yield "a length is above 2^64"


def _wrong_numbers(row: Any) -> Iterator[str]:
    if row.timestamp is not None and row.timestamp < 0:
        yield f"timestamp {row.timestamp} is negative"
    waits = (row.delay or 0.0) + (row.tool_wait_ms or 0.0)
    if waits < 0:
        yield f"delay and tool_wait_ms are {waits} together"
    for event in row.tool_events:
        if max(event.started_at_unix_ms, event.ended_at_unix_ms) >= _UNSIGNED_64:
            yield "a time of a tool event is above 2^64"


def _check_keys(text: bytes, row: _RowText) -> None:
    """A key that comes twice, by whichever of its names, is refused: ValueError. JSON's own readers take the last."""
    for alias, name in _ALIASES.items():
        if getattr(row, alias) is not None and getattr(row, name) is not None:
            raise ValueError(f"{name} and {alias} are one")
    names = {*row.__struct_fields__}
    if isinstance(row, _AgenticRowText):
        names.update(ToolEvent.__struct_fields__)
    if any(text.count(b'"%s"' % name.encode()) > 1 for name in names):
        json.loads(text, object_pairs_hook=partial(_refuse_doubles, names))


def _refuse_doubles(names: set[str], pairs: list[tuple[str, Any]]) -> None:
    known = [name for name, _ in pairs if name in names]
    if len(known) != len(set(known)):
        raise ValueError("a key stands in it twice")


def _in_cycles(dependents: Sequence[Sequence[int]], waiting: list[int]) -> Iterator[int]:
    """One row of each cycle that is found going back through those that can never begin."""
    ready = deque(place for place, number in enumerate(waiting) if not number)
    while ready:
        for place in dependents[ready.popleft()]:
            waiting[place] -= 1
            if not waiting[place]:
                ready.append(place)
    before: dict[int, int] = {}
    for place, those in enumerate(dependents):
        if waiting[place]:
            before.update((after, place) for after in those)
    seen: set[int] = set()
    for place in [place for place, number in enumerate(waiting) if number]:
        path: set[int] = set()
        while place not in seen:
            seen.add(place)
            path.add(place)
            place = before[place]
        if place in path:
            yield place
