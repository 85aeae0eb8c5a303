"""Dynamo's trace files: ``jsonl``, and segments of ``jsonl_gz``.

A flush of a segment appends one gzip member, whole, with one write; a segment is a file that nobody had before. So a
reader finds whole members however the writer ended. Lines of ``jsonl`` go behind what others wrote.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from otel_gym.dynamo_settings import segment_prefix

# No name, no time, no flags, of an unknown system: as Dynamo's.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 6
_MOST_SEGMENTS = 1_000_000


def gzip_member(content: bytes) -> bytes:
    """``content`` as one gzip member, byte for byte as its flags say in each run."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    return _HEADER + body + struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


class SegmentFiles:
    """``PATH.000000.jsonl.gz`` and so on: a new segment before the line that would make it too long. OSError."""

    def __init__(self, path: Path, buffer_bytes: int, roll_bytes: int, roll_lines: int | None) -> None:
        self._prefix = segment_prefix(path)
        self._buffer_bytes = buffer_bytes
        self._roll_bytes = roll_bytes
        self._roll_lines = roll_lines
        self._segment: str | None = None
        self._next = 0
        self._bytes = self._lines = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return len(self._waiting)

    def add(self, line: bytes) -> None:
        is_full = self._bytes + len(line) > self._roll_bytes or self._lines == self._roll_lines
        if self._lines and is_full:
            self.flush()
            self._segment, self._bytes, self._lines = None, 0, 0
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self._bytes += len(line)
        self._lines += 1
        if self._waiting_bytes >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """What cannot be written is given up: it would only grow."""
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if lines:
            self._append(gzip_member(b"".join(lines)))

    def _append(self, member: bytes) -> None:
        segment = self._open()
        try:
            size = os.fstat(segment).st_size
            try:
                _write(segment, member)
            except OSError:
                os.ftruncate(segment, size)
                raise
        finally:
            os.close(segment)

    def _open(self) -> int:
        """The segment at hand; a new one at the first, after a roll, and where somebody took it away."""
        if self._segment is not None:
            try:
                return os.open(self._segment, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            except FileNotFoundError:
                pass
        Path(self._prefix).parent.mkdir(parents=True, exist_ok=True)
        for number in range(self._next, _MOST_SEGMENTS):
            name = f"{self._prefix}.{number:06}.jsonl.gz"
            try:
                segment = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            self._segment, self._next = name, number + 1
            return segment
        raise OSError(f"{self._prefix}: there is no number left for a segment")


class LinesFile:
    """One file of lines, which others may be writing too. OSError."""

    def __init__(self, path: Path, buffer_bytes: int) -> None:
        self._path = path
        self._buffer_bytes = buffer_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._may_be_torn = True

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return len(self._waiting)

    def add(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not lines:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # Behind the half of a line that a killed writer left, ours would be lost with it.
            start = b"\n" if self._may_be_torn and _is_torn(file) else b""
            self._may_be_torn = True
            _write(file, start + b"".join(lines))
            self._may_be_torn = False
        finally:
            os.close(file)


def _is_torn(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
