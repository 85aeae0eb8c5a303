"""Whether a folder can take a store, asked before anything is captured: spans that cannot be written are lost."""

from __future__ import annotations

import os
from pathlib import Path

from otel_gym.store.folders import make_folder
from otel_gym.store.layout import COUNTS, NOTES, SPANS

# What a store may hold at its top; a folder with none of it, that is not empty, is another's.
PARTS = frozenset({SPANS, COUNTS, NOTES, "open", "blobs", "parquet"})


class StoreFolderError(Exception):
    """The folder cannot take a store; the text says why and what to do."""


def check_store_folder(directory: Path) -> None:
    """Makes the folder where it is missing. Raises StoreFolderError."""
    try:
        make_folder(directory)
        entries = {entry.name for entry in directory.iterdir()}
        if entries and not entries & PARTS:
            raise StoreFolderError(
                f"{directory}: not a store of otel_gym, it has no folder {SPANS}/; give another --dir"
            )
        _write_into(directory / SPANS if SPANS in entries else directory)
    except OSError as error:
        raise StoreFolderError(
            f"{directory}: the store cannot be written: {error.strerror}; give another --dir"
        ) from None


def _write_into(folder: Path) -> None:
    probe = folder / f".writable.{os.getpid()}"
    probe.write_bytes(b"")
    probe.unlink()
