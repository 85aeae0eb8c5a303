"""Where things lie in a store.

    <dir>/spans/rollout_id=<id>/<writer>.jsonl    OTLP/JSON, one TracesData a line, append-only
    <dir>/blobs/<sha256>                          media, once
    <dir>/open/<writer>.jsonl                     start records of spans that are still open
    <dir>/counts/<writer>.json                    what a process counted: uncaptured calls, lost spans
    <dir>/notes/<writer>.json                     of its setup what weakens a promise, where anything does
    <dir>/parquet/part-*.parquet                  sealed form, nothing else in the folder
    <dir>/manifest/part-*.json                    what each part holds, for people; what counts is the parts' footers
    <dir>/compacting/                             parts that are not whole yet

One file per process and rollout, created exclusively, so that no two writers ever share one: no
lock between processes, and nothing torn on network file systems.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from otel_gym.conventions import UNASSIGNED
from otel_gym.id_rules import is_valid_id

SPANS = "spans"
COUNTS = "counts"
NOTES = "notes"
BLOBS = "blobs"
OPEN = "open"
PARQUET = "parquet"
MANIFEST = "manifest"
COMPACTING = "compacting"
ROLLOUT_KEY = "rollout_id="
LIVE_SUFFIX = ".jsonl"

# What a store may hold at its top, its lock included.
PARTS = frozenset({SPANS, COUNTS, NOTES, BLOBS, OPEN, PARQUET, MANIFEST, COMPACTING, "compact.lock"})

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def is_store(path: Path) -> bool:
    """Whether this is a store's folder, and no file, Parquet or folder of lines that others wrote."""
    return any((path / part).is_dir() for part in (SPANS, OPEN, PARQUET, COUNTS))


def is_foreign(folder: Path) -> bool:
    """Whether the folder holds something, and none of it is a store's. Raises OSError."""
    names = {entry.name for entry in os.scandir(folder)}
    return bool(names) and names.isdisjoint(PARTS)


def holds_rollouts(path: Path) -> bool:
    """The same of a folder that nobody named, where a ``spans/`` alone may be another's."""
    return any((path / SPANS).glob(f"{ROLLOUT_KEY}*")) or is_sealed(path)


def is_sealed(store: Path) -> bool:
    """Whether anything of it stands in Parquet."""
    return any((store / PARQUET).glob("*.parquet"))


def rollout_folder(directory: Path, rollout_id: str) -> Path:
    """Folder of a rollout's live files; ids that may not touch a path raise ValueError."""
    if rollout_id != UNASSIGNED and not is_valid_id(rollout_id):
        raise ValueError(f"{rollout_id[:80]!r} may not name a folder")
    return directory / SPANS / f"{ROLLOUT_KEY}{rollout_id}"


def rollout_id_of_folder(folder: Path) -> str | None:
    """The id that a folder below ``spans/`` stands for; None for folders of another making."""
    name = folder.name
    return name[len(ROLLOUT_KEY) :] if name.startswith(ROLLOUT_KEY) else None


def new_writer_name(service: str) -> str:
    """``<service>.<host>.<pid>.<8 random hex>``: unique to a process, even across forks and hosts."""
    parts = (_name_part(service), _name_part(socket.gethostname()), str(os.getpid()), os.urandom(4).hex())
    return ".".join(parts)


def is_this_host(part: str) -> bool:
    """Whether the host in a writer's name is the one that this process runs on."""
    return part == _name_part(socket.gethostname())


def _name_part(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-")[:40] or "unknown"
