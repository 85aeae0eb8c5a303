"""The lines of a store's files, with their places: plain, gzip or zstd; and the spans that a line holds.

Lines end at the byte ``\\n`` and nowhere else. A file may be cut anywhere, or still be written: what is whole is read,
the rest becomes ``Damage``.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from otel_gym.store.decode import decode_line
from otel_gym.store.otlp_json import MalformedLineError
from otel_gym.store.repair import LINE_SKIPPED, NOTHING_LOST, REST_READ, Damage, pieces_of, problem_of
from otel_gym.store.span import StoredSpan

GZIP, ZSTD = ".gz", ".zst"
LINE_FILES = tuple(f"{plain}{packed}" for plain in (".jsonl", ".json", ".ndjson") for packed in ("", GZIP, ZSTD))
# In a text its quotes would be escaped.
_SPANS_KEY = re.compile(rb'"(?:resourceSpans|batches)"\s*:')
_FIRST_LINES = 10
_CHUNK = 1 << 20
_BUFFER = 1 << 18

Report = Callable[[Damage], None]


class Line(NamedTuple):
    """``number`` counts from 1, ``offset`` is that of the first byte; ``content`` includes its newline, if any."""

    path: Path
    number: int
    offset: int
    content: bytes


def is_line_file(path: Path) -> bool:
    return path.name.endswith(LINE_FILES)


def may_hold_spans(path: Path) -> bool:
    """Whether a line file begins as those of OTLP do, damage aside; also if it is empty, or cannot be read."""
    damage: list[Damage] = []
    first = [line.content for line in islice(lines_of_file(path, damage.append), _FIRST_LINES)]
    return bool(damage) or not first or any(_SPANS_KEY.search(content) for content in first)


def lines_of_file(path: Path, report: Report) -> Iterator[Line]:
    """Line by line. A file that was sealed and removed meanwhile has none; one that cannot be read is reported."""
    offset = 0
    for number, text in enumerate(_texts_of_file(path, report), 1):
        yield Line(path, number, offset, text)
        offset += len(text)


def _texts_of_file(path: Path, report: Report) -> Iterator[bytes]:
    try:
        with path.open("rb", _BUFFER) as content:
            yield from _unpacked_lines(path, content, report)
    except FileNotFoundError:
        return
    except OSError as error:
        report(Damage(path, 0, f"cannot be read: {error.strerror or error}", "check the file and its permissions"))


def _unpacked_lines(path: Path, content: IO[bytes], report: Report) -> Iterator[bytes]:
    unpack = _UNPACKERS.get(path.suffix)
    if unpack is None:
        yield from content
        return
    rest = b""
    for chunk in unpack(path, content, report):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (text + b"\n" for text in whole)
    if rest:
        yield rest


def _gunzip(path: Path, content: IO[bytes], report: Report) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=content) as packed:
        try:
            while chunk := packed.read1(_CHUNK):
                yield chunk
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            report(_packed_damage(path, f"{error}".rstrip(".").lower()))


def _unzstd(path: Path, content: IO[bytes], report: Report) -> Iterator[bytes]:
    try:
        import zstandard
    except ModuleNotFoundError:
        cure = "the file is left out: pip install 'otel_gym[compression]'"
        report(Damage(path, 0, "zstd needs the package zstandard", cure))
        return
    unpacker = None
    try:
        while packed := content.read(_CHUNK):
            while packed:  # a file that was appended to holds several frames
                unpacker = unpacker or zstandard.ZstdDecompressor().decompressobj()
                yield unpacker.decompress(packed)
                packed, unpacker = (unpacker.unused_data, None) if unpacker.eof else (b"", unpacker)
    except zstandard.ZstdError as error:
        report(_packed_damage(path, str(error)))
        return
    if unpacker is not None:
        report(_packed_damage(path, "the compressed file ended before its end-of-frame marker"))


def _packed_damage(path: Path, problem: str) -> Damage:
    return Damage(path, 0, problem, "what comes before was read; take the file from its source again")


_UNPACKERS = {GZIP: _gunzip, ZSTD: _unzstd}


def spans_of_file(path: Path, report: Report) -> Iterator[StoredSpan]:
    offset = 0
    for number, text in enumerate(_texts_of_file(path, report), 1):
        try:
            yield from decode_line(text)
        except MalformedLineError:
            yield from spans_of(Line(path, number, offset, text), report)
        offset += len(text)


def spans_of(line: Line, report: Report) -> list[StoredSpan]:
    """The spans of a line; of one that is no record, those of every whole record that it holds."""
    try:
        return decode_line(line.content)
    except MalformedLineError as error:
        if not line.content.strip():
            return []
        return _recovered(line, error, report)


def _recovered(line: Line, error: MalformedLineError, report: Report) -> list[StoredSpan]:
    """A record in one piece that is no record of ours is one line's fault; else each piece is told by itself."""
    pieces = pieces_of(line.content)
    spans: list[StoredSpan] = []
    if len(pieces) == 1 and (pieces[0].is_record or _is_json(line.content)):
        spans += error.spans
        cure = LINE_SKIPPED if not spans else f"{len(spans)} other spans of the line were read"
        report(Damage(line.path, line.number, str(error), cure, line.offset + pieces[0].start))
        return spans
    lost = False
    for piece in pieces:
        content = line.content[piece.start : piece.end]
        place = line.offset + piece.start
        if not piece.is_record:
            torn = piece is pieces[-1] and not line.content.endswith(b"\n")
            lost = True
            report(Damage(line.path, line.number, problem_of(content, torn), REST_READ, place))
            continue
        try:
            spans += decode_line(content)
        except MalformedLineError as inner:
            lost = True
            spans += inner.spans
            report(Damage(line.path, line.number, str(inner), REST_READ, place))
    if not lost:
        problem = f"{len(pieces)} records on one line: two writers share the file, or a newline was lost"
        report(Damage(line.path, line.number, problem, NOTHING_LOST, line.offset, lost=False))
    return spans


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
