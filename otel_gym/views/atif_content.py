"""Content of Responses items → content of ATIF: a text, or parts whose media lie in files beside the document."""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
from typing import Any

from otel_gym.records.atif_versions import IMAGE_TYPES, version_number
from otel_gym.wire.items.shapes import Item, objects_of

Json = dict[str, Any]

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+);base64,(?P<content>.*)", re.DOTALL)
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "aac": "audio/aac", "opus": "audio/ogg"}
_ENDINGS = {"image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/ogg": ".ogg"}


class Media:
    """Collects the files that a document refers to: relative path → bytes, each content once.

    ``audio_parts``: how many parts were audio.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.audio_parts = 0

    def keep(self, folder: str, media_type: str, content: bytes) -> str:
        ending = _ENDINGS.get(media_type) or f".{media_type.rpartition('/')[2]}"
        path = f"{folder}/{hashlib.sha256(content).hexdigest()[:16]}{ending}"
        self.files[path] = content
        return path


def content_of(value: Any, media: Media) -> Any:
    """A text as it is; parts that are texts alone become one text, a line each."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    if len(value) == 1 and isinstance(value[0], dict) and isinstance(value[0].get("text"), str):
        text: str = value[0]["text"]
        return text
    parts = [_part(part, media) for part in objects_of(value)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def joined(contents: list[Any]) -> Any:
    """Several contents as one."""
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    if all(isinstance(content, str) for content in contents):
        return "\n".join(content for content in contents if content)
    parts: list[Json] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


def _part(part: Item, media: Media) -> Json:
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return {"type": "text", "text": part[name]}
    kind = part.get("type")
    made = _image(part, media) if kind == "input_image" else _audio(part, media) if kind == "input_audio" else None
    return made or {"type": "text", "text": f"[{kind}]"}


def _image(part: Item, media: Media) -> Json | None:
    url = part.get("image_url")
    if not isinstance(url, str):
        return None
    if url.startswith("data:"):
        media_type, content = _content_of_data_url(url) or ("", b"")
        path = media.keep("images", media_type, content) if media_type in IMAGE_TYPES else ""
    else:
        media_type, path = part.get("media_type") or mimetypes.guess_type(url.partition("?")[0])[0] or "", url
    return _source("image", media_type, path) if media_type in IMAGE_TYPES else None


def _audio(part: Item, media: Media) -> Json | None:
    url, told = part.get("audio_url"), part.get("input_audio")
    if isinstance(url, str) and isinstance(part.get("media_type"), str) and not url.startswith("data:"):
        media.audio_parts += 1
        made = _source("audio", part["media_type"], url)
        if "duration_sec" in part:
            made["source"]["duration_sec"] = part["duration_sec"]
        return made
    if not isinstance(told, dict):
        return None
    media_type, data = _AUDIO_TYPES.get(str(told.get("format"))), _decoded(told.get("data"))
    if media_type is None or data is None:
        return None
    media.audio_parts += 1
    return _source("audio", media_type, media.keep("audio", media_type, data))


def _source(kind: str, media_type: str, path: str) -> Json:
    return {"type": kind, "source": {"media_type": media_type, "path": path}}


def _content_of_data_url(url: str) -> tuple[str, bytes] | None:
    found = _DATA_URL.fullmatch(url)
    content = _decoded(found["content"]) if found else None
    return None if found is None or content is None else (found["type"], content)


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def least_version(version: str, needed: str) -> str:
    return needed if version_number(version) < version_number(needed) else version
