"""Base64 media of a stored text, and the references that stand for it.

Replaced is only what is media for certain and comes back character by character: canonical base64 without breaks or
escapes.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable

from otel_gym.media import REFERENCE, find_media, media_reference

_REFERENCE = re.compile(rf"{REFERENCE}([0-9a-f]{{64}}):([0-9]+)")


def extract_media(text: str, put: Callable[[bytes], str | None]) -> tuple[str, int]:
    """``text`` with references for its media, and how many there are.

    ``put`` keeps the bytes and returns their sha256; None: it could not, and the media stays where it
    is. A text that already speaks of references is returned as it is, since they could not be told apart.
    """
    pieces: list[str] = []
    end = 0
    for media in find_media(text):
        if not pieces and REFERENCE in text:
            break
        if not media.is_sure or _encoded(media.content) != text[media.begin : media.end]:
            continue
        sha256 = put(media.content)
        if sha256 is not None:
            pieces += (text[end : media.begin], media_reference(sha256, len(media.content)))
            end = media.end
    return ("".join([*pieces, text[end:]]), len(pieces) // 2) if pieces else (text, 0)


def restore_media(text: str, get: Callable[[str, int], bytes]) -> str:
    """The reverse: ``get(sha256, length)`` gives the bytes that a reference names, or raises."""
    return _REFERENCE.sub(lambda found: _encoded(get(found[1], int(found[2]))), text)


def references(text: str) -> dict[str, int]:
    """sha256 → length of every blob that the text names."""
    return {sha256: int(length) for sha256, length in _REFERENCE.findall(text)}


def _encoded(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")
