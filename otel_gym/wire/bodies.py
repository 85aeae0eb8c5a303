"""Bodies as bytes: content codings undone, JSON read as NeMo Gym reads it.

Nothing here raises for what came over the wire. A coding that no decoder is installed for, damaged
data and a body beyond the size bound all end as "could not decode"; what came out before the damage
is kept, since half a stream is worth more than none. brotli and zstandard are used where they import.
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

MAX_DECODED_BYTES = 256 * 1024 * 1024

# A decompressor is fed in slices: one call's output then stays bounded, and a body of many
# small gzip members is not copied once for each of them.
_SLICE_BYTES = 16 * 1024
_ZSTD_SLICE_BYTES = 1024
_GZIP_MAGIC = b"\x1f\x8b"


class UndecodableError(Exception):
    """The bytes are not what their content coding says, or too many."""


class _Decompressor(Protocol):
    def feed(self, data: bytes, limit: int) -> bytes: ...

    def is_finished(self) -> bool:
        """Whether the data can end here: the compressed stream has said so itself."""
        ...


class _Gzip:
    """gzip, also of several members; what follows the last member is ignored, as gunzip does."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._held = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        output: list[bytes] = []
        size = 0
        for start in range(0, len(data), _SLICE_BYTES):
            piece = self._held + data[start : start + _SLICE_BYTES]
            self._held = b""
            while piece:
                if self._member.eof:
                    if len(piece) < 2 and _GZIP_MAGIC.startswith(piece):
                        self._held = piece
                        break
                    if not piece.startswith(_GZIP_MAGIC):
                        break
                    self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
                part = _inflate(self._member, piece, limit - size)
                size += len(part)
                output.append(part)
                piece = self._member.unused_data if self._member.eof else b""
        return b"".join(output)

    def is_finished(self) -> bool:
        return self._member.eof


class _Deflate:
    """deflate as zlib data, which the standard means, or raw, which some servers send."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._head = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            data, self._head = self._head, b""
            is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        if self._stream.eof:
            return b""
        return _inflate(self._stream, data, limit)

    def is_finished(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)


def _inflate(stream: Any, data: bytes, limit: int) -> bytes:
    try:
        output: bytes = stream.decompress(data, max(limit, 0) + 1)
    except zlib.error as error:
        raise UndecodableError(str(error)) from error
    if len(output) > limit:
        raise UndecodableError("too large when decoded")
    return output


class _Brotli:
    def __init__(self) -> None:
        brotli = importlib.import_module("brotli")
        self._error: type[Exception] = brotli.error
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes, limit: int) -> bytes:
        try:
            return self._process(data, limit)
        except self._error as error:
            raise UndecodableError(str(error)) from error

    def _process(self, data: bytes, limit: int) -> bytes:
        if self._stream.is_finished():
            return b""
        if not hasattr(self._stream, "can_accept_more_data"):  # brotli < 1.2 has no bound of its own
            output: bytes = self._stream.process(data)
            if len(output) > limit:
                raise UndecodableError("too large when decoded")
            return output
        parts: list[bytes] = []
        size = 0
        part: bytes = self._stream.process(data, output_buffer_limit=_SLICE_BYTES * 4)
        while True:
            parts.append(part)
            size += len(part)
            if size > limit:
                raise UndecodableError("too large when decoded")
            if self._stream.is_finished() or (not part and self._stream.can_accept_more_data()):
                return b"".join(parts)
            part = self._stream.process(b"", output_buffer_limit=_SLICE_BYTES * 4)

    def is_finished(self) -> bool:
        return bool(self._stream.is_finished())


class _Zstandard:
    """zstd, also of several frames. Frame by frame, since a reader across frames never says that it is done."""

    def __init__(self) -> None:
        zstandard = importlib.import_module("zstandard")
        self._error: type[Exception] = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()

    def feed(self, data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for start in range(0, len(data), _ZSTD_SLICE_BYTES):
            piece = data[start : start + _ZSTD_SLICE_BYTES]
            while piece:
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
                try:
                    part = self._frame.decompress(piece)
                except self._error as error:
                    raise UndecodableError(str(error)) from error
                size += len(part)
                if size > limit:
                    raise UndecodableError("too large when decoded")
                parts.append(part)
                piece = self._frame.unused_data if self._frame.eof else b""
        return b"".join(parts)

    def is_finished(self) -> bool:
        return bool(self._frame.eof)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstandard,
}


class BodyDecoder:
    """Undoes a ``content-encoding``, chunk by chunk.

    ``failed`` is the reason why no more comes out, None while all is well; ``finish`` adds that the
    body was cut, so that whoever keeps it keeps the bytes as they came. A body that fails on its
    first bytes, before anything came out, is handed on as it is: middleware and clients that
    decoded it but left the header are far commoner than damaged first bytes.
    """

    def __init__(self, content_encoding: str | None, limit: int = MAX_DECODED_BYTES) -> None:
        self.failed: str | None = None
        self._room = limit
        self._taken: list[bytes] = []
        self._nothing_out = True
        self._anything_in = False
        self._passing_through = False
        self._stages: list[_Decompressor] = []
        # Codings are listed in the order in which they were applied.
        for coding in reversed((content_encoding or "").split(",")):
            self._add_stage(coding.strip().lower())

    def _add_stage(self, coding: str) -> None:
        if coding in ("", "identity"):
            return
        make = _DECOMPRESSORS.get(coding)
        if make is None:
            self._give_up(f"unknown content coding {coding!r}")
            return
        try:
            self._stages.append(make())
        except ImportError:
            self._give_up(f"no decoder for {coding!r} is installed")

    def _give_up(self, reason: str) -> None:
        self.failed = self.failed or reason
        self._passing_through = True

    def feed(self, data: bytes) -> bytes:
        """Take a piece of the body as sent; return what it decodes to."""
        self._anything_in = self._anything_in or bool(data)
        if self._passing_through or not self._stages:
            return data
        if len(data) <= _SLICE_BYTES:
            return self._feed_slice(data)
        slices = (data[start : start + _SLICE_BYTES] for start in range(0, len(data), _SLICE_BYTES))
        return b"".join(map(self._feed_slice, slices))

    def _feed_slice(self, data: bytes) -> bytes:
        if self._passing_through:
            return data
        if self.failed is not None:
            return b""
        if self._nothing_out:
            self._taken.append(data)
        try:
            output = data
            for stage in self._stages:
                output = stage.feed(output, self._room)
        except UndecodableError as error:
            return self._fail(str(error))
        self._room -= len(output)
        if output:
            self._nothing_out = False
            self._taken.clear()
        return output

    def finish(self) -> str | None:
        """The body has ended: why it is not whole, None if it is. A compressed stream knows where it ends."""
        if self.failed is None and self._anything_in and not all(stage.is_finished() for stage in self._stages):
            self.failed = "the body ends before its compressed data does"
        return self.failed

    def _fail(self, reason: str) -> bytes:
        self.failed = reason
        if not self._nothing_out or self._room <= 0:
            return b""
        self._passing_through = True
        taken = b"".join(self._taken)
        self._taken.clear()
        return taken


@dataclass(slots=True)
class DecodedBody:
    """``content`` as far as it could be decoded; ``failed`` says why it is not whole or not decoded."""

    content: bytes
    failed: str | None = None

    def shown_for(self, sent: bytes) -> bytes:
        """What a record shows for the body that was sent: its own bytes where it is damaged and nothing came out."""
        return self.content or (sent if self.failed else b"")


def decode_body(body: bytes, content_encoding: str | None, limit: int = MAX_DECODED_BYTES) -> DecodedBody:
    """Undo the content codings of a whole body."""
    if not content_encoding or not body:
        return DecodedBody(body)
    decoder = BodyDecoder(content_encoding, limit)
    return DecodedBody(decoder.feed(body), decoder.finish())


_read_json = json.JSONDecoder().raw_decode
_JSON_BLANKS = " \t\n\r"


def load_json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object that a text is, or None.

    Python's own reader is the authority, since NeMo Gym's is: NaN, integers of any length, lone
    surrogates, UTF-16 and a byte order mark pass, the last of equal keys wins. RecursionError is
    what too deep nesting ends as.
    """
    if isinstance(text, str):
        return _load_text(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _load_text(text: str) -> dict[str, Any] | None:
    # What json.loads does, without the two regular expressions that cost a third of a small event.
    text = text.strip(_JSON_BLANKS)
    if not text.startswith("{"):
        return None
    try:
        value, end = _read_json(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) else None
