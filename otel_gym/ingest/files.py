"""The files of a folder that can be read: one that cannot costs itself only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from otel_gym.ingest.imported import ImportedRollout, SourceError


def readable(paths: Iterable[Path], damage: list[str]) -> list[Path]:
    """What is no regular file is passed over; one that cannot be read is told in ``damage``."""
    return [path for path in paths if _can_be_read(path, damage)]


def _can_be_read(path: Path, damage: list[str]) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        damage.append(unreadable_text(path, error))
        return False
    return True


def unreadable_text(path: Path, error: OSError) -> str:
    return f"{error.filename or path}: it cannot be read ({error.strerror}): make it readable, then import again"


def with_damage(rollouts: list[ImportedRollout], damage: list[str]) -> list[ImportedRollout]:
    """What is of no rollout is told with the first. SourceError where there is damage only."""
    if damage and not rollouts:
        raise SourceError("; ".join(damage))
    for rollout in rollouts[:1]:
        rollout.damage += damage
    return rollouts
