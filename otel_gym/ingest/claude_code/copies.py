"""Records that a forked or resumed session copied from another one: they are counted where they were made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otel_gym.ingest.claude_code.lines import Damage, Row, parse, rows
from otel_gym.records.steps import unix_nano

_COPIED_KINDS = frozenset({"user", "assistant", "system", "attachment"})
_FOREIGN = b'"requestSessionId"'


class CopiedRecordError(Exception):
    """A session holds a record that another one asked for."""


def check_owner(asked_in: Any, session_id: str) -> None:
    """Of a record that says by which session it was asked for."""
    if isinstance(asked_in, str) and asked_in != session_id:
        raise CopiedRecordError


class Copies:
    """Which session each record was first seen in. Sessions are asked for in the order in which they began."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self._owners: dict[str, str] = {}
        self._until = -1
        self._foreign: str | None = None
        self._forked_from: str | None = None
        self._forked_ns = 0

    def learn(self, path: Path, session_id: str) -> None:
        """The records of a session that is not itself imported."""
        for _, row in rows(path, Damage(path)):
            self._learn_row(row, session_id)

    def saw(self, row: Row, session_id: str) -> None:
        """A record of a session that is imported; another one may hold it again."""
        if self._several:
            self._learn_row(row, session_id)

    def _learn_row(self, row: Row, session_id: str) -> None:
        for key in _keys(row):
            self._owners.setdefault(key, session_id)

    def begin(self, forked_from: str | None, forked_ns: int) -> None:
        """What a fork holds from before it was made is copied, also where the other file does not show it."""
        self._until, self._foreign = -1, None
        self._forked_from, self._forked_ns = forked_from, forked_ns

    def are_none(self) -> bool:
        """Nothing is known that the session which began could be copied from, nor will it be asked for."""
        return not (self._several or self._owners or self._forked_from)

    def look_ahead(self, path: Path, session_id: str, first_index: int) -> None:
        """Newer versions say of a copied answer which session asked for it; what stands before it is copied, too."""
        with path.open("rb") as lines:
            for index, line in enumerate(lines, first_index):
                if _FOREIGN not in line:
                    continue
                asked_in = _asked_in(line)
                if asked_in is not None and asked_in != session_id:
                    self._until, self._foreign = index, asked_in

    def owner(self, row: Row, index: int, session_id: str) -> str | None:
        """The session that a record was copied from; None if it is the session's own."""
        if row.get("type") not in _COPIED_KINDS:
            return None
        for key in _keys(row) if self._owners else ():
            if self._owners.get(key, session_id) != session_id:
                return self._owners[key]
        if index <= self._until:
            return self._foreign
        time_ns = unix_nano(row.get("timestamp")) if self._forked_from else None
        return self._forked_from if time_ns is not None and time_ns < self._forked_ns else None


def _asked_in(line: bytes) -> str | None:
    try:
        row = parse(line)
    except ValueError:
        return None
    asked_in = row.get("requestSessionId") if isinstance(row, dict) else None
    return asked_in if isinstance(asked_in, str) else None


def _keys(row: Row) -> Iterable[str]:
    """Names of a record that a copy keeps."""
    uuid = row.get("uuid")
    if isinstance(uuid, str):
        yield uuid
    message: Any = row.get("message")
    if row.get("type") == "assistant" and isinstance(message, dict) and row.get("requestId") and row.get("timestamp"):
        yield f"{message.get('id')} {row['requestId']} {row['timestamp']}"
