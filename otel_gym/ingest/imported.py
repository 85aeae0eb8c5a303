"""What is imported before it is written: the one form that every source is brought into.

Ids come from a hash of the source's own names of things, so that an import that is repeated, or made again after the
source has grown, gives the same spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.id_rules import rollout_id_of_session


class SourceError(ValueError):
    """What cannot be imported at all; the text says which file, where in it, and what to do."""


def hashed_id(bits: int, *parts: str) -> int:
    """An id that the same parts always give: 64 bits for a span, 128 for a trace. Never 0."""
    return _first_bits(bits, _hash_of(*parts).digest())


def _hash_of(*parts: str) -> hashlib._Hash:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))


def _first_bits(bits: int, digest: bytes) -> int:
    return int.from_bytes(digest[: bits // 8], "big") or 1


@dataclass(slots=True)
class ImportedEvent:
    name: str
    time_ns: int
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedSpan:
    """A span before it has a rollout. A value of ``attributes`` may be a function that makes it: what is large is made
    when it is written, and nothing if it gives None.

    ``is_client``: its kind is CLIENT, else INTERNAL. ``error``: the status is ERROR, with this text, which may be
    empty.

    ``end_ns`` None: the source ends while it is open. ``link_id``: the span, of the same trace, that spawned it.
    """

    span_id: int
    name: str
    start_ns: int
    end_ns: int | None
    parent_id: int | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[ImportedEvent] = field(default_factory=list)
    link_id: int | None = None
    error: str | None = None
    is_client: bool = False


@dataclass(slots=True)
class ImportedRollout:
    """What one session of a source holds. ``spans`` begin with the ``rollout`` root, and each stands behind its parent.

    ``source`` is what ``gym.source`` says; ``damage``: what of it could not be read, a text each with file, line, cure.
    ``place``: where it lies, of a source whose session ids may name several runs. ``is_whole_rollout``: the session is
    all that its source has of the rollout, so that another one of the same run is of another launch.
    ``comes_in_parts``: it may be a part of what the store has, as of a trace in several files.
    """

    source: str
    session_id: str
    spans: list[ImportedSpan]
    service: str = "import"
    rollout_id: str | None = None
    damage: list[str] = field(default_factory=list)
    place: Path | None = None
    is_whole_rollout: bool = False
    comes_in_parts: bool = False

    @property
    def identity_id(self) -> str:
        return self.rollout_id or rollout_id_of_session(self.session_id)

    @property
    def trace_id(self) -> int:
        return hashed_id(128, self.source, self.session_id)

    def end_as_last_turn(self) -> None:
        """A run whose last turn failed has failed: its root says so too, by which rollouts are told apart."""
        root, *below = self.spans
        turns = [span for span in below if span.parent_id == root.span_id and span.name.startswith("invoke_agent")]
        if turns:
            root.error = turns[-1].error

    def span_id(self, *parts: str) -> int:
        return hashed_id(64, self.source, self.session_id, *parts)

    def span_ids(self, *parts: str) -> Callable[[str], int]:
        """``span_id`` for many spans of which these parts come first."""
        begun = _hash_of(self.source, self.session_id, *parts, "")

        def span_id(last: str) -> int:
            whole = begun.copy()
            whole.update(last.encode("utf-8", "surrogatepass"))
            return _first_bits(64, whole.digest())

        return span_id
