"""Lines of a session file, read one by one: a line that is damaged costs itself only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.content import fits_int64
from otel_gym.records.steps import unix_nano

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One record. ``line`` counts from 0; ``index`` is Codex's own number, which a fork continues, else the line.

    ``time_ns`` of a record that gives no time is that of the one before.
    """

    line: int
    index: int
    time_ns: int
    kind: str
    payload: JsonObject
    metadata: JsonObject


@dataclass(slots=True)
class ThreadFile:
    path: Path
    rows: list[Row] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def meta(self) -> JsonObject:
        return next((row.payload for row in self.rows if row.kind == "session_meta"), {})

    @property
    def thread_id(self) -> str:
        """As the file says, else by its name, which ends with the id."""
        said = text_of(self.meta, "id")
        return said or self.path.stem[-36:]

    @property
    def session_id(self) -> str | None:
        """The root thread; usage records say it too, where the first line is damaged."""
        said = (text_of(row.payload, "session_id") for row in self.rows if row.kind in _NAMING_SESSION)
        return next((session_id for session_id in said if session_id is not None), None)


_NAMING_SESSION = frozenset({"session_meta", "token_usage_record"})


def read_thread_file(path: Path) -> ThreadFile:
    file = ThreadFile(path)
    time_ns = 0
    for line, record in json_lines(path, file.damage, repeats=False):
        told_ns = unix_nano(record.get("timestamp"))
        time_ns = time_ns if told_ns is None else told_ns
        row = _row(line, record, time_ns)
        if row is None:
            file.damage.append(f"{path}, line {line + 1}: no record of a session: it is left out")
        else:
            file.rows.append(row)
    return file


def json_lines(path: Path, damage: list[str], *, repeats: bool = True) -> Iterator[tuple[int, JsonObject]]:
    """The objects of a file, with their lines; what is none is told in ``damage``.

    ``repeats`` False: a line that is the same as one before it, to the byte, counts once.
    """
    seen: set[bytes] = set()
    with path.open("rb") as stream:
        for line, raw in enumerate(stream):
            if not raw.strip() or not (repeats or _is_new(raw, seen)):
                continue
            value = _parsed(raw)
            if isinstance(value, dict):
                yield line, value
            elif raw.endswith(b"\n"):
                damage.append(f"{path}, line {line + 1}: no JSON object: it is left out")
            else:
                damage.append(f"{path}, line {line + 1}: the last line is cut: import again once it is whole")


def _is_new(raw: bytes, seen: set[bytes]) -> bool:
    number = len(seen)
    seen.add(hashlib.blake2b(raw.strip(), digest_size=16).digest())
    return len(seen) > number


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _row(line: int, record: JsonObject, time_ns: int) -> Row | None:
    kind, payload = record.get("type"), record.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return None
    ordinal = record.get("ordinal")
    index = ordinal if type(ordinal) is int and fits_int64(ordinal) else line
    return Row(line, index, time_ns, kind, payload, object_of(record, "metadata"))


def text_of(record: JsonObject, name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def object_of(record: JsonObject, name: str) -> JsonObject:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
