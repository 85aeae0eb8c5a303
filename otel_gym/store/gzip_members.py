"""A gzip file member by member, so that damage costs the member that it is in, and no other.

Writers that append give each flush a member of its own. The standard library's reader ends at the first fault, and
keeps back what it has unpacked of a member whose checksum is wrong.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import IO

MAGIC = b"\x1f\x8b\x08"
_MAGIC_BYTES = 3
_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_RESERVED, _CHECKSUM, _EXTRA, _NAME, _COMMENT = 0xE0, 0x02, 0x04, 0x08, 0x10
_PACKED, _UNPACKED = 1 << 16, 1 << 18

_TAKE_AGAIN = "take the file from its source again"

# Takes what is wrong, and what became of it.
Tell = Callable[[str, str], None]


def chunks_of_members(content: IO[bytes], tell: Tell) -> Iterator[bytes | None]:
    """What is packed, in chunks of at most 256 KiB; None where something is lost between two of them.

    ``content`` is at the start of a member and can seek. Zeros behind a member are filling, as for gzip itself.
    """
    number = 0
    while (start := _next_member(content, content.tell(), tell)) is not None:
        number += 1
        content.seek(start)
        damage = yield from _member(content)
        if damage is None:
            continue
        fault, cure = damage
        tell(f"gzip member {number} (from byte {start} of the file) {fault}", cure)
        yield None
        content.seek(_found_member(content, start + 1))  # where it ended is not known: it may have run into the next


_ITS_LINES = f"its lines were read, and may be other than what was written; {_TAKE_AGAIN}"
_BEFORE = f"its lines before that and all other members were read; {_TAKE_AGAIN}"
_CUT = ("is cut: its writer was killed or still writes it", "its whole lines and all other members were read")


def _member(content: IO[bytes]) -> Generator[bytes, None, tuple[str, str] | None]:
    """The chunks of a member. Returns its fault, and what became of the rest; None if it is whole."""
    if not _skip_header(content):
        return _CUT
    inflate, checksum, size = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
    packed = b""
    while not inflate.eof:
        packed = packed or content.read(_PACKED)
        if not packed:
            return _CUT
        before = inflate.copy()
        try:
            chunk = inflate.decompress(packed, _UNPACKED)
        except zlib.error as error:
            yield from _before_fault(before, packed)
            return f"is damaged: {str(error).rpartition(': ')[2]}", _BEFORE
        packed = inflate.unconsumed_tail
        checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
        if chunk:
            yield chunk
    content.seek(-len(inflate.unused_data), 1)
    trailer = content.read(_TRAILER_BYTES)
    if len(trailer) < _TRAILER_BYTES:
        return _CUT
    if struct.unpack("<II", trailer) != (checksum, size & 0xFFFFFFFF):
        return "is damaged: its checksum is wrong", _ITS_LINES
    return None


def _before_fault(inflate: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """What can be unpacked before the fault, which takes what else came of the same call with it."""
    for place in range(len(packed)):
        try:
            chunk = inflate.decompress(packed[place : place + 1])
        except zlib.error:
            return
        if chunk:
            yield chunk


def _skip_header(content: IO[bytes]) -> bool:
    """False where it is cut."""
    header = content.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return False
    flags = header[3]
    if flags & _EXTRA:
        length = content.read(2)
        if len(length) < 2 or len(content.read(int.from_bytes(length, "little"))) < int.from_bytes(length, "little"):
            return False
    for text in (_NAME, _COMMENT):
        if flags & text and not _skip_text(content):
            return False
    return not flags & _CHECKSUM or len(content.read(2)) == 2


def _skip_text(content: IO[bytes]) -> bool:
    while byte := content.read(1):
        if byte == b"\0":
            return True
    return False


def _next_member(content: IO[bytes], place: int, tell: Tell) -> int | None:
    """Where the next member starts; tells what lies before it. None at the end of the file."""
    content.seek(place)
    first = content.read(_HEADER_BYTES)
    if _is_header(first) or (first and MAGIC.startswith(first[:_MAGIC_BYTES])):
        return place
    start = _found_member(content, place)
    length = start - place
    if length and not _are_zeros(content, place, length):
        tell(f"{length:,} bytes from byte {place} of the file are no gzip", f"every member was read; {_TAKE_AGAIN}")
    content.seek(start)
    return start if content.read(1) else None


def _is_header(start: bytes) -> bool:
    return start.startswith(MAGIC) and len(start) > _MAGIC_BYTES and not start[_MAGIC_BYTES] & _RESERVED


def _are_zeros(content: IO[bytes], place: int, length: int) -> bool:
    content.seek(place)
    while length and (piece := content.read(min(length, _UNPACKED))):
        if piece.count(0) < len(piece):
            return False
        length -= len(piece)
    return True


def _found_member(content: IO[bytes], place: int) -> int:
    """Where the next bytes that begin as a member do are, from ``place`` on; the end of the file if there are none."""
    content.seek(place)
    block = content.read(_UNPACKED)
    while block:
        found = block.find(MAGIC)
        while 0 <= found <= len(block) - _HEADER_BYTES:
            if _is_header(block[found : found + _HEADER_BYTES]):
                return place + found
            found = block.find(MAGIC, found + 1)
        more = content.read(_UNPACKED)
        if not more:
            break
        kept = block[1 - _HEADER_BYTES :]
        place += len(block) - len(kept)
        block = kept + more
    return content.seek(0, 2)
