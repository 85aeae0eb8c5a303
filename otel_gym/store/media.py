"""Base64 media in JSON texts, and the references that stand for it.

    data:image/png;base64,iVBORw0KGgo…   ↔   data:image/png;base64,otel_gym:blob:<sha256>:<bytes>

Found are data URLs and base64 texts that their object declares as media (``"media_type"``,
``"format"``, ``"mimeType"`` …) or that begin like a known file. Replaced is only what comes back
character by character: canonical base64 without breaks or escapes. Encrypted reasoning and
signatures are base64 too, but no media: they are short, each is new, and the history keeps them once.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

REFERENCE = "otel_gym:blob:"

# No picture, sound or document is smaller.
MIN_CHARACTERS = 32

_RUN = re.compile(rf'[A-Za-z0-9+/]{{{MIN_CHARACTERS},}}+={{0,2}}(?=\\*"|[^A-Za-z0-9+/=\\_%-])')
_REFERENCE = re.compile(rf"{REFERENCE}([0-9a-f]{{64}}):([0-9]+)")

# The quotes of a JSON text that stands in a string of another one are escaped. The word comes first:
# the search runs from one to the next.
_DATA_URL = re.compile(";base64,")
_DATA_KEY = re.compile(r'data\\*"\s*:\s*\\*"')
_IMAGE_KEY = re.compile(r'(?:result|b64)\\*"\s*:\s*\\*"')
_IMAGE_GENERATION = "image_generation_call"

_DECLARATION = re.compile(r'(?i)"(?:media_?type|mime_?type|format|encoding)\\*"|:\s*\\*"base64\\*"')
_CONTEXT = 256
# PNG, JPEG, GIF, RIFF (WebP, WAV), PDF, ID3 and plain MP3, Ogg, FLAC, Matroska
_FILE_HEADS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0", "SUQz", "//uQ", "T2dnUw", "ZkxhQ", "GkXfo")


def extract_media(text: str, put: Callable[[bytes], str | None]) -> tuple[str, int]:
    """``text`` with references for its media, and how many there are.

    ``put`` keeps the bytes and returns their sha256; None: it could not, and the media stays where it
    is. A text that already speaks of references is returned as it is, since they could not be told apart.
    """
    pieces: list[str] = []
    end = 0
    for start, stop, content in _media(text):
        if not pieces and REFERENCE in text:
            break
        sha256 = put(content)
        if sha256 is not None:
            pieces += (text[end:start], f"{REFERENCE}{sha256}:{len(content)}")
            end = stop
    return ("".join([*pieces, text[end:]]), len(pieces) // 2) if pieces else (text, 0)


def restore_media(text: str, get: Callable[[str, int], bytes]) -> str:
    """The reverse: ``get(sha256, length)`` gives the bytes that a reference names, or raises."""
    return _REFERENCE.sub(lambda found: base64.b64encode(get(found[1], int(found[2]))).decode("ascii"), text)


def references(text: str) -> dict[str, int]:
    """sha256 → length of every blob that the text names."""
    return {sha256: int(length) for sha256, length in _REFERENCE.findall(text)}


def _media(text: str) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and bytes of each base64 run that is media, in the order of the text."""
    end = 0
    for start in _starts(text):
        run = _RUN.match(text, start)
        if start < end or run is None:
            continue
        end = run.end()
        content = _decoded(run[0])
        if content is not None and (text.startswith(";base64,", start - 8) or _is_declared(text, start, end)):
            yield start, end, content


def _starts(text: str) -> list[int]:
    patterns = [_DATA_URL, _DATA_KEY]
    if _IMAGE_GENERATION in text:
        patterns.append(_IMAGE_KEY)
    found = [match.end() for pattern in patterns for match in pattern.finditer(text)]
    return sorted(found) if len(found) > 1 else found


def _is_declared(text: str, start: int, end: int) -> bool:
    """Whether the bytes begin like a file, or a neighbour in the same object says what they are."""
    if text.startswith(_FILE_HEADS, start):
        return True
    before = text[max(0, start - _CONTEXT) : start].rpartition("{")[2]
    after = text[end : end + _CONTEXT].partition("}")[0]
    return _DECLARATION.search(before) is not None or _DECLARATION.search(after) is not None


def _decoded(run: str) -> bytes | None:
    """The bytes, if encoding them gives the same text."""
    try:
        content = binascii.a2b_base64(run, strict_mode=True)
    except binascii.Error:
        return None
    return content if base64.b64encode(content).decode("ascii") == run else None
