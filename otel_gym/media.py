"""Base64 media in a text, and the reference that stands for it where its bytes are not kept.

Images, audio and files travel in bodies as data URLs, or as base64 in a member of their own. The reference names their
content by hash and length; their type stays beside it, where it stood.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from hashlib import sha256

REFERENCE = "otel_gym:blob:"

# Shorter runs are ids, or the start of something.
_SHORTEST = 32
_BASE64 = rf"[A-Za-z0-9+/]{{{_SHORTEST},}}+={{0,2}}"
_DATA_URL = re.compile(rf";base64,(?P<data>{_BASE64})")
# Members whose string is media if it is base64. `data` is also that of redacted thinking, which is none.
_COLON = r'\\{0,15}"\s{0,8}:\s{0,8}\\{0,15}"'
_MEMBER = re.compile(
    r'(?<=")(?:data|b64_json|partial_image_b64|image_base64|audio_base64)'
    rf'{_COLON}(?P<data>{_BASE64})(?=\\{{0,15}}")'
)
# Other members may hold any text: media there says so in its first bytes.
_RESULT = re.compile(
    rf'(?<=")(?:result|content){_COLON}(?P<data>(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0|SUQz|T2dnUw|GkXfo)'
    r'[A-Za-z0-9+/]{24,}+={0,2})(?=\\{0,15}")'
)
_REDACTED_THINKING = "redacted_thinking"
_NEIGHBOURHOOD = 256


def media_reference(content: bytes) -> str:
    return f"{REFERENCE}{sha256(content).hexdigest()}:{len(content)}"


def without_media(text: str) -> str:
    """``text`` with references in place of base64 media; itself where there is none."""
    parts, at = [], 0
    for begin, end, content in _media(text):
        parts += [text[at:begin], media_reference(content)]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _media(text: str) -> Iterator[tuple[int, int, bytes]]:
    found = [match.span("data") for match in _DATA_URL.finditer(text)] if ";base64," in text else []
    for pattern in (_MEMBER, _RESULT):
        found += [match.span("data") for match in pattern.finditer(text) if not _is_thinking(text, match)]
    for begin, end in sorted(found):
        try:
            content = base64.b64decode(text[begin:end], validate=True)
        except binascii.Error:
            continue
        yield begin, end, content


def _is_thinking(text: str, match: re.Match[str]) -> bool:
    """``{"type": "redacted_thinking", "data": …}``, in either order: its object holds nothing else."""
    before = text[max(0, match.start() - _NEIGHBOURHOOD) : match.start()].rpartition("{")[2]
    after = text[match.end() : match.end() + _NEIGHBOURHOOD].partition("}")[0]
    return _REDACTED_THINKING in before or _REDACTED_THINKING in after
