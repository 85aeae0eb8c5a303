"""A file of JSON lines, an object at a time, so that no session is ever in memory both as text and as objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from otel_gym.content import safe_json

Row = dict[str, Any]

_NAMED_LINES = 5
# A line of a session is often longer than the usual buffer.
_BUFFER_BYTES = 128 * 1024
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Damage:
    """What of one file was not understood: how many records, and a text for each fault."""

    path: Path
    # Index of its first line, where the file goes on with a session that another one began.
    first_index: int = 0
    records: int = 0
    texts: list[str] = field(default_factory=list)
    _unreadable: int = 0
    _unknown: dict[str, int] = field(default_factory=dict)

    def _line(self, index: int) -> int:
        return index - self.first_index + 1

    def unreadable(self, index: int) -> None:
        self.records += 1
        self._unreadable += 1
        if self._unreadable <= _NAMED_LINES:
            self.texts.append(
                f"{self.path}:{self._line(index)}: no JSON object, left out; mend the line and import again"
            )

    def torn(self, index: int) -> None:
        """The last line is cut off: no record yet, if the file is still written."""
        self.texts.append(f"{self.path}:{self._line(index)}: the last line is cut off; import again when it is whole")

    def unknown(self, index: int, kind: str) -> None:
        """A record of a kind that this version does not know; each kind is named once, where it came first."""
        self.records += 1
        if kind not in self._unknown:
            self.texts.append(
                f"{self.path}:{self._line(index)}: {kind} is not known here, left out; a newer otel_gym may read it"
            )
        self._unknown[kind] = self._unknown.get(kind, 0) + 1

    def orphan(self, index: int, call_id: str) -> None:
        self.records += 1
        self.texts.append(
            f"{self.path}:{self._line(index)}: result of a call {call_id} that is nowhere; it is left out"
        )

    def summary(self) -> list[str]:
        more = self._unreadable - _NAMED_LINES
        return self.texts + ([f"{self.path}: {more} more lines that are no JSON object"] if more > 0 else [])


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def json_text(value: Any) -> str:
    """Compact JSON; msgspec is several times faster, and refuses what has to be replaced."""
    try:
        return _encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError, OverflowError, TypeError, ValueError, RecursionError):
        return safe_json(value)


def parse(line: bytes) -> Any:
    """The value of a line. ValueError if it is no JSON; what msgspec refuses (a lone surrogate) Python may take."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None


def rows(path: Path, damage: Damage) -> Iterator[tuple[int, Row]]:
    """The records of a file, each with its place in the session; a list on a line stands for its objects.

    ``type`` is a text, and so is ``uuid`` if it is there.
    """
    return records(path, damage, lambda line: None)


Common = TypeVar("Common")


def records(
    path: Path, damage: Damage, read_common: Callable[[bytes], Common | None]
) -> Iterator[tuple[int, Row | Common]]:
    """``rows``, and what ``read_common`` makes of a line that it takes."""
    with path.open("rb", buffering=_BUFFER_BYTES) as lines:
        for index, line in enumerate(lines, damage.first_index):
            common = read_common(line)
            if common is not None:
                yield index, common
                continue
            if line.isspace():
                continue
            try:
                value = parse(line)
            except ValueError:
                value = None
                if not line.endswith(b"\n"):
                    damage.torn(index)
                    return
            found = value if isinstance(value, list) else [value]
            for row in found:
                if not isinstance(row, dict):
                    damage.unreadable(index)
                elif not isinstance(row.get("type"), str):
                    damage.unknown(index, "a record without a type")
                else:
                    if not isinstance(row.get("uuid", ""), str):
                        del row["uuid"]
                    yield index, row
