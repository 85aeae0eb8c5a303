"""Folders and files of a store, for their owner alone; and how they outlast a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_folder(folder: Path, *, synced: bool = False) -> None:
    """Makes the folder, and those above it that are missing; ``synced``: their names are on the disk."""
    if folder.is_dir() or folder == folder.parent:
        return
    make_folder(folder.parent, synced=synced)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    if synced:
        sync(folder.parent)


def sync(path: Path) -> None:
    """Forces a file's content, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
