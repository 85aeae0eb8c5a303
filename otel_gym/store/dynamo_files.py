"""The files that Dynamo writes its traces into, plain or in gzip members, and others of one record a line.

A file is read as a stream, in constant memory. It may be cut anywhere, damaged in the middle, or still be written: what
is whole is read, all else becomes ``Damage`` with its place.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from otel_gym.records.dynamo import DynamoRecord, DynamoRecordError, decode_audit, decode_record
from otel_gym.store.gzip_members import MAGIC, chunks_of_members
from otel_gym.store.lines import Report
from otel_gym.store.repair import Damage

_ENDINGS = (".jsonl", ".jsonl.gz")
_SEGMENTS = ".[0-9][0-9][0-9][0-9][0-9][0-9].jsonl.gz"
_ENDING = re.compile(r"\.jsonl(\.gz)?$")
_CHUNK = 1 << 18
_BOM = b"\xef\xbb\xbf"
# A payload's line may be long; one that is longer than that is of another kind of file.
_MOST_LINE_BYTES = 256 * 1024 * 1024


class NoTraceFileError(ValueError):
    """A path that stands for no file; the text says which."""


def trace_files(paths: Iterable[Path]) -> list[Path]:
    """The files that ``paths`` stand for, each once, those of one path sorted by name. NoTraceFileError.

    A path is a file of any name; a folder, of which ``*.jsonl`` and ``*.jsonl.gz`` at any depth are taken; a glob; or
    what Dynamo has as its OUTPUT_PATH, of which the segments ``.000000.jsonl.gz`` and so on are taken.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _files_of(path):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS) and file.is_file())
        if not files:
            raise NoTraceFileError(f"{path}: no file in it is called *.jsonl or *.jsonl.gz")
        return files
    if path.exists():
        return [path]
    patterns = (str(path), glob.escape(_ENDING.sub("", str(path))) + _SEGMENTS)
    for pattern in patterns:
        files = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
        if files:
            return [file for each in files for file in (_files_of(each) if each.is_dir() else [each])]
    raise NoTraceFileError(f"{path}: no such file or folder")


def records_of_trace(path: Path, report: Report) -> Iterator[tuple[int, DynamoRecord]]:
    """The records of a file with the numbers of their lines. What is no record, nor one of an audit file, is reported.
    OSError.
    """
    for number, line in lines_of_trace(path, report):
        try:
            yield number, decode_record(line)
        except DynamoRecordError as problem:
            if line.strip() and decode_audit(line) is None:
                report(Damage(path, number, str(problem)))


def lines_of_trace(path: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, without their newlines, and their numbers: from 1, in what is unpacked. OSError.

    Blank lines and lines that are no JSON are among them. A line that is cut, at the end of the file or where bytes are
    lost, is reported and left out.
    """
    number, pieces, length = 0, [b""], 0
    with path.open("rb") as content:
        for chunk in _chunks(path, content, report):
            if chunk is None:
                tail, pieces, length = b"".join(pieces), [b""], 0
                if tail:
                    number += 1
                if tail and _is_json(tail):
                    yield number, tail
                continue
            end = chunk.rfind(b"\n")
            if end < 0:
                length += len(chunk)
                pieces.append(chunk if length <= _MOST_LINE_BYTES else b"")
                continue
            lines = b"".join([*pieces, chunk[:end]]).split(b"\n")
            if length > _MOST_LINE_BYTES:
                report(Damage(path, number + 1, f"the line is longer than {_MOST_LINE_BYTES:,} bytes"))
                lines[0] = b""
            pieces, length = [chunk[end + 1 :]], 0
            for line in lines:
                number += 1
                yield number, line
    yield from _last_line(path, number + 1, b"".join(pieces), report)


def _last_line(path: Path, number: int, line: bytes, report: Report) -> Iterator[tuple[int, bytes]]:
    if not line.strip():
        return
    if _is_json(line):
        yield number, line
        return
    problem = "the last line is cut: its writer was killed or still writes it"
    report(Damage(path, number, problem, "every line before it was read"))


def _chunks(path: Path, content: IO[bytes], report: Report) -> Iterator[bytes | None]:
    start = content.read(len(_BOM))
    content.seek(0)
    if start == MAGIC or (path.suffix == ".gz" and not start.startswith((b"{", _BOM))):  # its own start may be damaged
        yield from chunks_of_members(content, lambda problem, cure: report(Damage(path, 0, problem, cure)))
        return
    if start == _BOM:
        content.seek(len(_BOM))
    yield from iter(partial(content.read, _CHUNK), b"")


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
