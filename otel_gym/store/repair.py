"""What a line that is no record still holds: damage recovery on bytes.

A store's file is a sequence of records, one a line. A kill, a power cut or two writers on one file leave lines that are
no record: cut off, glued to the next one, mixed, or filled with NULs. Such a line is cut at every place where a record
starts. That is exact: in a whole record ``{"resourceSpans":`` stands only at its own start, since inside a text its
quotes would be escaped, and no object within a record has that key. A piece is a record if its braces close before the
next start; whatever else stands on the line is lost, and is said with its place. Nothing here reads what a record says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from otel_gym.content import printable

LINE_SKIPPED = "the line is skipped; every other line of the file was read"
REST_READ = "these bytes are skipped; every whole record around them was read"
NOTHING_LOST = "every record of the line was read, nothing is lost"

_RECORD_START = re.compile(rb'\{\s*"(?:resourceSpans|batches)"\s*:')
# A whole text, a brace or bracket, or the quote of a text that never ends.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
_BLANK = b" \t\r\n"
_NOTHING = _BLANK + b"\0"


@dataclass(frozen=True, slots=True)
class Damage:
    """What could not be read, where, and what became of it.

    ``line`` counts from 1; 0 stands for the file. ``offset`` is that of the first byte in the file (of the decompressed
    content, for a compressed file).
    ``lost`` False: it should not be so, but everything could be read.
    """

    path: Path
    line: int
    problem: str
    cure: str = LINE_SKIPPED
    offset: int | None = None
    lost: bool = True

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        place = "" if self.offset is None else f" (at byte {self.offset})"
        return printable(f"{self.path}{line}: {self.problem}{place}; {self.cure}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a line: a record whose braces close, or what is left of one; ``start`` and ``end`` within the line."""

    start: int
    end: int
    is_record: bool


def has_inner_start(line: bytes) -> bool:
    """Whether a record starts within the line, behind its first byte: then it is more than one record."""
    return _RECORD_START.search(line, 1) is not None


def pieces_of(line: bytes) -> list[Piece]:
    """The records and the remains that a line consists of, in order, without blanks between."""
    starts = [match.start() for match in _RECORD_START.finditer(line)]
    pieces = [*_remains(line, 0, starts[0] if starts else len(line))]
    for start, stop in pairwise([*starts, len(line)]):
        end = _end_of_object(line, start, stop)
        if end is None:
            pieces += _remains(line, start, stop)
        else:
            pieces.append(Piece(start, end, True))
            pieces += _remains(line, end, stop)
    return pieces


def _remains(line: bytes, start: int, end: int) -> list[Piece]:
    while start < end and line[start] in _BLANK:
        start += 1
    while start < end and line[end - 1] in _BLANK:
        end -= 1
    return [Piece(start, end, False)] if start < end else []


def _end_of_object(line: bytes, start: int, stop: int) -> int | None:
    """Where the object that starts here closes; None if it does not before ``stop``."""
    open_braces = bytearray()
    for token in _TOKEN.finditer(line, start, stop):
        mark = token.group()
        if mark in (b"{", b"["):
            open_braces += b"}" if mark == b"{" else b"]"
        elif mark in (b"}", b"]"):
            if not open_braces or open_braces.pop() != mark[0]:
                return None
            if not open_braces:
                return token.end()
        elif mark == b'"':
            return None
    return None


def problem_of(remains: bytes, at_end_of_file: bool) -> str:
    """What happened to bytes that are no record."""
    number = f"{len(remains):,} bytes"
    if not remains.strip(_NOTHING):
        return f"{number} of NUL: the file system grew the file, but a power cut came before its content"
    nul = len(remains) - len(remains.rstrip(b"\0"))
    filled = f", {nul:,} of them NUL after a power cut" if nul else ""
    if at_end_of_file:
        return f"torn at the end of the file: {number} of a record{filled}; its writer was killed or still writes it"
    if _RECORD_START.match(remains):
        return f"{number} of a record that was cut off{filled}"
    return f"{number} without the start of a record: lines of several writers were mixed, or the start was overwritten"
