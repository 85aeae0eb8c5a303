"""Files of OTLP that others wrote → spans: what a Collector's file exporter makes, and answers of Tempo and Jaeger.

What a file is stands in its first bytes, not in its name: JSON, a document or a line each; protobuf; or messages of
either with their length before them, each perhaps packed, as a Collector writes protobuf and whatever it compresses.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from otel_gym.ingest.otlp.json_text import spans_of_json
from otel_gym.ingest.otlp.logs import logs_of_parsed, logs_of_proto, may_be_dynamo
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
_CHUNK = 1 << 20
# A block of zstd becomes up to 30,000 times as large: what one piece unpacks to has to fit into memory.
_ZSTD_PIECE = 4096
_BOM = b"\xef\xbb\xbf"
# That many lines of another kind are passed over before the first one that is OTLP.
_MOST_FOREIGN = 1000
_KINDS = "JSON or protobuf of OTLP, plain, or packed by gzip or zstd"

_SPANS_KEY = re.compile(rb'"(?:resourceSpans|resource_spans|batches)"\s*:')
_OTHER_SIGNALS = frozenset(
    f"resource{joint}{signal}"
    for joint, signals in (("", ("Metrics", "Logs", "Profiles")), ("_", ("metrics", "logs", "profiles")))
    for signal in signals
)

OfJson = Callable[[bytes], Received]


class NotOtlpError(ValueError):
    """A file that is no OTLP at all; the text says so."""


def received_of_file(path: Path, report: Report, of_json: OfJson = spans_of_json) -> Iterator[Received]:
    """What stands in a file, message by message. Raises NotOtlpError, and OSError where it cannot be read."""
    with path.open("rb") as packed, _unpacked(path, packed, report) as content:
        begin = len(_BOM) if content.read(len(_BOM)) == _BOM else 0
        if _is_blank(content, begin):
            return
        start = content.read(_LENGTH_BYTES + len(_ZSTD))
        content.seek(begin)
        if start.lstrip()[:1] in (b"{", b"[") and not _is_small_message(content, begin):
            yield from _of_json_file(path, content, begin, report, of_json)
        elif _is_framed(start):
            yield from _of_frames(path, content, report, of_json)
        elif start[0] == 0x0A:  # the first field of TracesData
            yield from _of_message(path, content.read(_MOST_BYTES), report)
        else:
            raise NotOtlpError(f"{path}: no OTLP: {_KINDS} is read")


def _is_small_message(content: IO[bytes], begin: int) -> bool:
    """Whether it is protobuf that begins as a blank line and JSON do: its first field is 123 or 91 bytes long."""
    start = content.read(2)
    if start not in (b"\n{", b"\n["):
        content.seek(begin)
        return False
    try:
        return bool(spans_of_proto(start + content.read(_MOST_BYTES)).spans)
    except MalformedError:
        return False
    finally:
        content.seek(begin)


def _is_blank(content: IO[bytes], begin: int) -> bool:
    """Whether nothing but blanks stands from ``begin`` on; leaves the file there."""
    content.seek(begin)
    is_blank = not any(chunk.strip() for chunk in iter(lambda: content.read(_CHUNK), b""))
    content.seek(begin)
    return is_blank


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
        with gzip.GzipFile(fileobj=packed) as unpacked:
            while chunk := unpacked.read1(_CHUNK):  # what stands before a fault comes first, then the fault
                content.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _DamagedError(str(error).rstrip(".").lower()) from None


def _unpack_zstd(packed: IO[bytes], content: IO[bytes]) -> None:
    """Frame by frame: the package's own readers end a frame that is cut as they end a whole one."""
    zstandard = _zstandard()
    frame = None
    try:
        while piece := packed.read(_ZSTD_PIECE):
            while piece:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                content.write(frame.decompress(piece))
                piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise _DamagedError(error) from None
    if frame is not None:
        raise _DamagedError("the compressed file ended before its end-of-frame marker")


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
            received = _received(plain, of_json) if plain[:1] == b"{" else _of_proto(plain)
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
        received = _of_proto(content)
    except MalformedError as error:
        raise NotOtlpError(f"{path}: {error}; take it from its source again") from None
    _report_refused(received, Damage(path, 0, ""), report)
    yield received


def _of_json_file(path: Path, content: IO[bytes], begin: int, report: Report, of_json: OfJson) -> Iterator[Received]:
    """Line by line, if the first line is a document or begins as one that was damaged; else the whole is one."""
    first = content.readline()
    while first and not first.strip():
        first = content.readline()
    content.seek(begin)
    if not _is_document(first) and _SPANS_KEY.search(first) is None:
        document = content.read(_MOST_DOCUMENT_BYTES)
        try:
            received = _received(document, of_json)
        except MalformedError as error:
            raise NotOtlpError(f"{path}: {error}") from None
        _report_refused(received, Damage(path, 0, ""), report)
        yield received
        return
    yield from _of_lines(path, content, begin, report, of_json)


def _of_lines(path: Path, content: IO[bytes], begin: int, report: Report, of_json: OfJson) -> Iterator[Received]:
    """Lines of another kind are damage, once any line was OTLP; a file that has none is no OTLP."""
    offset, is_otlp = begin, False
    foreign: list[Damage] = []
    for number, text in enumerate(content, 1):
        try:
            if text.strip():
                yield _of_line(Line(path, number, offset, text), report, of_json)
                if not is_otlp:
                    is_otlp = True
                    _report_all(foreign, report)
        except MalformedError as error:
            damage = Damage(path, number, str(error), offset=offset)
            if is_otlp:
                report(damage)
            else:
                foreign.append(damage)
        if len(foreign) > _MOST_FOREIGN:
            break
        offset += len(text)
    if foreign and not is_otlp:
        raise NotOtlpError(f"{path}: {foreign[0].problem}")


def _report_all(damage: list[Damage], report: Report) -> None:
    for each in damage:
        report(each)
    damage.clear()


def _is_document(line: bytes) -> bool:
    return _parsed(line) is not None


def _parsed(content: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return parse_document(content)
    except (ValueError, RecursionError):
        return None


def _of_line(line: Line, report: Report, of_json: OfJson) -> Received:
    """MalformedError for a document of another kind; of a damaged line what is whole is read."""
    try:
        received = _received(line.content, of_json)
    except MalformedError:
        if _is_document(line.content):
            raise
        received = Received()
        for span in spans_of(line, report):
            received.add(span)
    _report_refused(received, Damage(line.path, line.number, "", offset=line.offset), report)
    return received


def _received(content: bytes, of_json: OfJson) -> Received:
    """Metrics and others' logs, which a Collector writes beside spans where it is told to, are counted alone."""
    try:
        return of_json(content)
    except MalformedError:
        document = _parsed(content)
        if isinstance(document, dict) and not _OTHER_SIGNALS.isdisjoint(document):
            return logs_of_parsed(document)
        raise


def _of_proto(content: bytes) -> Received:
    """Logs are the same bytes as spans, of which none would have ids."""
    if may_be_dynamo(content):
        try:
            logs = logs_of_proto(content)
        except MalformedError:
            logs = Received()
        if logs.records:
            return logs
    return spans_of_proto(content)


def _report_refused(received: Received, place: Damage, report: Report) -> None:
    where = f"{place.problem}: " if place.problem else ""
    if received.refused:
        number = "a span is" if received.refused == 1 else f"{received.refused:,} spans are"
        cure = "every other span was read"
        report(replace(place, problem=f"{where}{number} refused: {received.problem}", cure=cure))
    if received.left_out:
        number = "a tag is" if received.left_out == 1 else f"{received.left_out:,} tags are"
        cure = "all else of these spans was read"
        report(replace(place, problem=f"{where}{number} left out: {received.left_out_problem}", cure=cure))
