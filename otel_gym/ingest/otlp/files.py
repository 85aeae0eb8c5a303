"""Files of OTLP that others wrote → spans: what a Collector's file exporter makes, and answers of Tempo and Jaeger.

What a file is stands in its first bytes, not in its name: JSON, a document or a line each; protobuf; or messages of
either with their length before them, each perhaps packed, as a Collector writes protobuf and whatever it compresses.
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from otel_gym.ingest.otlp.json_text import spans_of_json
from otel_gym.ingest.otlp.proto import spans_of_proto
from otel_gym.ingest.otlp.received import MalformedError, Received
from otel_gym.store.lines import Line, Report, spans_of
from otel_gym.store.otlp_json import parse_document
from otel_gym.store.repair import Damage

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LENGTH_BYTES = 4
# The largest message of a file; what claims to be larger is damage, or another kind of file.
_MOST_BYTES = 256 * 1024 * 1024
# A JSON document that is not on one line is parsed at once.
_MOST_DOCUMENT_BYTES = 1024 * 1024 * 1024
_SKIPPED = "the message is skipped; every other one was read"
_KINDS = "JSON or protobuf of OTLP, plain, or packed by gzip or zstd"

_SPANS_KEY = re.compile(rb'"(?:resourceSpans|resource_spans|batches)"\s*:')

OfJson = Callable[[bytes], Received]


class NotOtlpError(ValueError):
    """A file that is no OTLP at all; the text says so."""


def received_of_file(path: Path, report: Report, of_json: OfJson = spans_of_json) -> Iterator[Received]:
    """What stands in a file, message by message. Raises NotOtlpError, and OSError where it cannot be read."""
    with path.open("rb") as packed, _unpacked(path, packed, report) as content:
        start = content.read(_LENGTH_BYTES + len(_ZSTD))
        content.seek(0)
        if not start:
            return
        if start.lstrip()[:1] in (b"{", b"["):
            yield from _of_json_file(path, content, report, of_json)
        elif _is_framed(start):
            yield from _of_frames(path, content, report, of_json)
        elif start[0] == 0x0A:  # the first field of TracesData
            yield from _of_message(path, content.read(_MOST_BYTES), report)
        else:
            raise NotOtlpError(f"{path}: no OTLP: {_KINDS} is read")


@contextmanager
def _unpacked(path: Path, packed: IO[bytes], report: Report) -> Iterator[IO[bytes]]:
    """The file, or a temporary one with what is packed in it."""
    unpack = _packing_of(packed.read(len(_ZSTD)))
    packed.seek(0)
    if unpack is None:
        yield packed
        return
    with tempfile.TemporaryFile() as content:
        try:
            unpack(packed, content)
        except _DamagedError as error:
            report(Damage(path, 0, f"the packed file is cut or damaged: {error}", "what comes before was read"))
        content.seek(0)
        yield content


class _DamagedError(ValueError):
    """Packed bytes that end too early, or are none."""


def _packing_of(start: bytes) -> Callable[[IO[bytes], IO[bytes]], None] | None:
    if start == _ZSTD:
        return _unpack_zstd
    return _unpack_gzip if start.startswith(_GZIP) else None


def _unpack_gzip(packed: IO[bytes], content: IO[bytes]) -> None:
    try:
        shutil.copyfileobj(gzip.GzipFile(fileobj=packed), content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _DamagedError(error) from None


def _unpack_zstd(packed: IO[bytes], content: IO[bytes]) -> None:
    zstandard = _zstandard()
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
            shutil.copyfileobj(reader, content)
    except zstandard.ZstdError as error:
        raise _DamagedError(error) from None


def _zstandard() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise NotOtlpError("packed with zstd, which needs a package: pip install 'otel_gym[compression]'") from None
    return zstandard


def _is_framed(start: bytes) -> bool:
    """Whether a message of a length that can be stands behind its length."""
    length, message = int.from_bytes(start[:_LENGTH_BYTES], "big"), start[_LENGTH_BYTES:]
    return 0 < length <= _MOST_BYTES and (message == _ZSTD or message[:1] in (b"\x0a", b"{"))


def _of_frames(path: Path, content: IO[bytes], report: Report, of_json: OfJson) -> Iterator[Received]:
    offset = number = 0
    while head := content.read(_LENGTH_BYTES):
        number += 1
        length = int.from_bytes(head, "big")
        message = content.read(length) if len(head) == _LENGTH_BYTES and length <= _MOST_BYTES else b""
        if length > _MOST_BYTES or len(head) < _LENGTH_BYTES or len(message) < length:
            problem = f"message {number} is cut: its writer was killed or still writes it, or its length is damaged"
            report(Damage(path, 0, problem, "all messages before it were read", offset))
            return
        try:
            plain = _plain(message)
            received = of_json(plain) if plain[:1] == b"{" else spans_of_proto(plain)
        except (MalformedError, _DamagedError) as error:
            report(Damage(path, 0, f"message {number}: {error}", _SKIPPED, offset))
        else:
            _report_refused(received, Damage(path, 0, f"message {number}", offset=offset), report)
            yield received
        offset += _LENGTH_BYTES + length


def _plain(message: bytes) -> bytes:
    unpack = _packing_of(message[: len(_ZSTD)])
    if unpack is None:
        return message
    content = _Bounded()
    unpack(BytesIO(message), content)
    return content.getvalue()


class _Bounded(BytesIO):
    def write(self, content: Any) -> int:
        if self.tell() + len(content) > _MOST_BYTES:
            raise _DamagedError(f"unpacked it is larger than {_MOST_BYTES:,} bytes")
        return super().write(content)


def _of_message(path: Path, content: bytes, report: Report) -> Iterator[Received]:
    try:
        received = spans_of_proto(content)
    except MalformedError as error:
        raise NotOtlpError(f"{path}: {error}; take it from its source again") from None
    _report_refused(received, Damage(path, 0, ""), report)
    yield received


def _of_json_file(path: Path, content: IO[bytes], report: Report, of_json: OfJson) -> Iterator[Received]:
    """Line by line, if the first line is a document or begins as one that was damaged; else the whole is one."""
    first = content.readline()
    while first and not first.strip():
        first = content.readline()
    content.seek(0)
    if not _is_document(first) and _SPANS_KEY.search(first) is None:
        document = content.read(_MOST_DOCUMENT_BYTES)
        try:
            received = of_json(document)
        except MalformedError as error:
            raise NotOtlpError(f"{path}: {error}") from None
        _report_refused(received, Damage(path, 0, ""), report)
        yield received
        return
    offset, any_known = 0, False
    for number, text in enumerate(content, 1):
        if text.strip():
            received = _of_line(Line(path, number, offset, text), report, of_json, may_raise=not any_known)
            any_known = True
            yield received
        offset += len(text)


def _is_document(line: bytes) -> bool:
    try:
        parse_document(line)
    except (ValueError, RecursionError):
        return False
    return True


def _of_line(line: Line, report: Report, of_json: OfJson, *, may_raise: bool) -> Received:
    """``may_raise``: of a file that begins with JSON of another kind nothing is read."""
    try:
        received = of_json(line.content)
    except MalformedError as error:
        if may_raise and _is_document(line.content):
            raise NotOtlpError(f"{line.path}: {error}") from None
        received = Received()
        for span in spans_of(line, report):  # of a damaged line what is whole
            received.add(span)
        if _is_document(line.content):
            report(Damage(line.path, line.number, str(error), offset=line.offset))
    _report_refused(received, Damage(line.path, line.number, "", offset=line.offset), report)
    return received


def _report_refused(received: Received, place: Damage, report: Report) -> None:
    if received.refused:
        where = f"{place.problem}: " if place.problem else ""
        number = "a span is" if received.refused == 1 else f"{received.refused:,} spans are"
        cure = "every other span was read"
        report(replace(place, problem=f"{where}{number} refused: {received.problem}", cure=cure))
