"""Base64 media in a text: where it stands, and the reference that stands for it where its bytes are not kept there.

    data:image/png;base64,iVBORw0KGgo…   ↔   data:image/png;base64,otel_gym:blob:<sha256>:<bytes>

Images, audio and files travel in bodies as data URLs, or as base64 in a member of their own, also in JSON that stands
in a string of other JSON. The reference names their content by hash and length; their type stays beside it, where it
stood. Encrypted reasoning and signatures are base64 too, but no media.
"""

from __future__ import annotations

import binascii
import re
import string
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

REFERENCE = "otel_gym:blob:"

# Shorter runs are ids, or the start of something: no picture, sound or document is smaller.
SHORTEST = 32

# Runs are found in a mask of the text, A for what base64 consists of: one table and one search, whatever the text.
_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_MASK = bytes(b"A"[0] if byte in _ALPHABET else b" "[0] for byte in range(256))
_LONG_RUN = b"A" * SHORTEST

_DATA_URL = ";base64,"
# What may stand between the colon of a member and its value; the quotes of JSON within a string are escaped.
_BEFORE_VALUE = '"\\ \t\r\n'
_MEMBER = re.compile(r'"(?P<name>\w{1,40})\\{0,15}"\s{0,8}:\s{0,8}\\{0,15}"\Z')
_MEMBER_CHARACTERS = 100
# Members that hold media and nothing else; any member that ends in `data` may, and so may these others.
_MEDIA_MEMBERS = frozenset({"b64_json", "partial_image_b64", "image_base64", "audio_base64"})
_DATA = "data"
_DATA_MEMBERS = frozenset({"data", "file_data"})
_OTHER_MEMBERS = frozenset({"result", "content"})
# PNG, JPEG, GIF, RIFF (WebP, WAV), PDF, ID3 and plain MP3, Ogg, FLAC, Matroska
_FILE_HEADS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0", "SUQz", "//uQ", "T2dnUw", "ZkxhQ", "GkXfo")

_DECLARATION = re.compile(r'(?i)"(?:media_?type|mime_?type|format|encoding)\\*"|:\s*\\*"base64\\*"')
_REDACTED_THINKING = "redacted_thinking"
_NEIGHBOURHOOD = 256
# Behind media that is whole; not behind what was cut, broken into lines or written in the alphabet of URLs.
_END = re.compile(r'\\{0,15}"|[^A-Za-z0-9+/=\\_%-]')


class Media(NamedTuple):
    """``text[begin:end]`` is the base64 of ``content``.

    ``is_sure``: its place, its first bytes or its neighbours say that it is media, and it is whole. Else it is what
    remains of media that was cut, or only the name of its member speaks for it.
    """

    begin: int
    end: int
    content: bytes
    is_sure: bool


def media_reference(content_sha256: str, length: int) -> str:
    return f"{REFERENCE}{content_sha256}:{length}"


def without_media(text: str) -> str:
    """``text`` with references in place of all that may be media; itself where there is none."""
    parts, at = [], 0
    for media in find_media(text):
        parts += [text[at : media.begin], media_reference(sha256(media.content).hexdigest(), len(media.content))]
        at = media.end
    return "".join([*parts, text[at:]]) if parts else text


def find_media(text: str) -> Iterator[Media]:
    """In the order of the text."""
    for begin, end in _runs(text):
        is_media = _is_media(text, begin, end)
        if is_media is None:
            continue
        is_cut = end == len(text)
        is_whole = not is_cut and _END.match(text, end) is not None
        if not (is_whole or is_cut or _is_in_data_url(text, begin)):
            continue
        content = _decoded(text[begin : end - (end - begin) % 4 if is_cut else end])
        if content is not None:
            yield Media(begin, end, content, is_media and is_whole)


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of all that could be base64 by its characters."""
    if len(text) < SHORTEST:
        return
    mask = text.encode("latin-1", "replace").translate(_MASK)  # one byte a character
    begin = mask.find(_LONG_RUN)
    while begin >= 0:
        end = mask.find(b" ", begin)
        if end < 0:
            end = len(text)
        padding = 2 if text.startswith("==", end) else int(text.startswith("=", end))
        yield begin, end + padding
        begin = mask.find(_LONG_RUN, end)


def _is_media(text: str, begin: int, end: int) -> bool | None:
    """None: it is not. False: only the name of its member says so."""
    if _is_in_data_url(text, begin):
        return True
    before = text[max(0, begin - _MEMBER_CHARACTERS) : begin]
    if not before.rstrip(_BEFORE_VALUE).endswith(":"):
        return None
    member = _MEMBER.search(before)
    if member is None:
        return None
    name = member["name"]
    if name in _MEDIA_MEMBERS:
        return True
    if name in _OTHER_MEMBERS:
        return True if text.startswith(_FILE_HEADS, begin) else None
    if not name.endswith(_DATA):
        return None
    neighbours = _neighbours(text, begin - len(before) + member.start(), end)
    if any(_REDACTED_THINKING in each for each in neighbours):
        return None
    if text.startswith(_FILE_HEADS, begin) or any(map(_DECLARATION.search, neighbours)):
        return True
    return False if name in _DATA_MEMBERS else None


def _is_in_data_url(text: str, begin: int) -> bool:
    return text.startswith(_DATA_URL, begin - len(_DATA_URL)) if begin >= len(_DATA_URL) else False


def _neighbours(text: str, begin: int, end: int) -> tuple[str, str]:
    """What stands in the same object, before its member and behind it."""
    before = text[max(0, begin - _NEIGHBOURHOOD) : begin].rpartition("{")[2]
    return before, text[end : end + _NEIGHBOURHOOD].partition("}")[0]


def _decoded(run: str) -> bytes | None:
    try:
        return binascii.a2b_base64(run, strict_mode=True)
    except binascii.Error:
        return None
