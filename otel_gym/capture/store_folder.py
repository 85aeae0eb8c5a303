"""Whether a folder can take a store, asked before anything is captured: spans that cannot be written are lost."""

from __future__ import annotations

import os
from pathlib import Path

from otel_gym.store.folders import make_folder
from otel_gym.store.layout import SPANS, is_foreign


class StoreFolderError(Exception):
    """The folder cannot take a store; the text says why and what to do."""


def check_store_folder(directory: Path, option: str = "--dir") -> None:
    """Makes the folder where it is missing. Raises StoreFolderError, which names the option to give another by."""
    cure = f"give another {option}"
    if directory.exists() and not directory.is_dir():
        raise StoreFolderError(f"{directory}: a file, and a store is a folder; {cure}")
    try:
        make_folder(directory)
        if is_foreign(directory):
            raise StoreFolderError(f"{directory}: not a store of otel_gym, it has no folder {SPANS}/; {cure}")
        _write_into(directory / SPANS if (directory / SPANS).exists() else directory)
    except OSError as error:
        raise StoreFolderError(f"{directory}: the store cannot be written: {error.strerror}; {cure}") from None


def _write_into(folder: Path) -> None:
    probe = folder / f".writable.{os.getpid()}"
    probe.write_bytes(b"")
    probe.unlink()
