"""The versions of ATIF, and what came with which."""

from __future__ import annotations

from typing import Literal, get_args

AtifVersion = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]
VERSIONS: tuple[str, ...] = get_args(AtifVersion)
DEFAULT_VERSION: AtifVersion = "ATIF-v1.7"
# The first version whose parts may be audio.
AUDIO_VERSION: AtifVersion = "ATIF-v1.8"

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def version_number(version: str | None) -> int:
    """The minor number: 4 of ``ATIF-v1.4``; that of the newest where the text is none of the known versions."""
    return VERSIONS.index(version) if version in VERSIONS else len(VERSIONS) - 1
