"""Which texts may be the id of a run or a rollout: ids name files."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from functools import lru_cache

from otel_gym.conventions import UNASSIGNED

MAX_ID_BYTES = 200
# What readers take for the newest run; no run may be called so.
LATEST = "latest"

_HASH_CHARACTERS = 8
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class InvalidIdError(ValueError):
    """A run or rollout id that may not name a file."""


def is_valid_id(text: str) -> bool:
    """``[A-Za-z0-9][A-Za-z0-9._-]*`` of at most 200 bytes, and not the reserved ``unassigned``."""
    return len(text) <= MAX_ID_BYTES and _has_valid_form(text)


@lru_cache(maxsize=4096)
def _has_valid_form(text: str) -> bool:
    return _ID.fullmatch(text) is not None and text != UNASSIGNED


def rollout_id_of_session(session_id: str) -> str:
    """A session's id as a rollout id. One that may not be one, has other characters as ``_`` and a hash of all at its
    end, so that each session has a rollout of its own.
    """
    if is_valid_id(session_id):
        return session_id
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    cleaned = _NOT_IN_IDS.sub("_", session_id).lstrip("._-")[: MAX_ID_BYTES - _HASH_CHARACTERS - 1]
    return f"{cleaned or 'session'}-{digest}"


def refusal_of(text: str) -> str | None:
    """Why ``text`` may not name a rollout; None if it may."""
    if is_valid_id(text):
        return None
    if text == UNASSIGNED:
        return f"{UNASSIGNED!r} stands for calls without a rollout id"
    return f"use {ID_PATTERN}"


def is_valid_run_id(text: str) -> bool:
    """The same, and not ``latest``, by which readers mean the newest run."""
    return is_valid_id(text) and text != LATEST


_ID_KINDS: dict[str, tuple[Callable[[str], bool], str]] = {
    "rollout id": (is_valid_id, f"not {UNASSIGNED!r}"),
    "run id": (is_valid_run_id, f"neither {UNASSIGNED!r} nor {LATEST!r}"),
}
# The pattern in words.
ID_PATTERN = f"letters, digits, '.', '_' and '-', starting with a letter or digit, at most {MAX_ID_BYTES} bytes"


def checked_id(text: str, what: str = "rollout id") -> str:
    """``text`` if it may name a rollout or a run (``what`` says which), else InvalidIdError."""
    is_valid, reserved = _ID_KINDS[what]
    if is_valid(text):
        return text
    raise InvalidIdError(f"{what} {text[:80]!r} is refused: use {ID_PATTERN}, and {reserved}")


def new_run_id() -> str:
    """``<UTC>-<4 hex>``, new for each launch."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(2).hex()}"
