"""Media of a store: ``blobs/<sha256>``, each once, whatever the number of calls that carry it.

A blob is written under a temporary name and renamed, so that it is whole or absent, and lies there
before the line that names it. One that exists is not written again; what is read is verified.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from otel_gym.store.folders import FILE_MODE, make_folder, sync
from otel_gym.store.layout import BLOBS


class BlobError(LookupError):
    """A blob that is missing or damaged; the text says which and what to do."""


class BlobStore:
    """``lost`` counts blobs that could not be written (their media stays in the line), ``last_error`` says why.

    fsync  a blob survives the loss of power from the moment that ``put`` returns
    """

    def __init__(self, directory: Path | str, *, fsync: bool = False) -> None:
        self.folder = Path(directory) / BLOBS
        self.fsync = fsync
        self.lost = 0
        self.last_error: OSError | None = None

    def put(self, content: bytes) -> str | None:
        """Keeps ``content`` and returns its sha256; None where it cannot be written."""
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            if not self._has(sha256, len(content)):
                self._write(sha256, content)
        except OSError as error:
            self.lost += 1
            self.last_error = error
            return None
        return sha256

    def get(self, sha256: str, length: int) -> bytes:
        """The bytes; BlobError where they are not there, or not those that were written."""
        path = self.folder / sha256
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BlobError(f"the media {path} cannot be read: {error.strerror}; copy it from where it lies") from None
        if len(content) != length or hashlib.sha256(content).hexdigest() != sha256:
            raise BlobError(f"the media {path} is damaged: its content is not what its name says")
        return content

    def missing(self, named: dict[str, int]) -> list[str]:
        """Which of the blobs (sha256 → length) are not there in full. Looks at names and sizes only."""
        return [sha256 for sha256, length in named.items() if not self._has(sha256, length)]

    def _has(self, sha256: str, length: int) -> bool:
        try:
            return os.stat(self.folder / sha256).st_size == length
        except FileNotFoundError:
            return False

    def _write(self, sha256: str, content: bytes) -> None:
        make_folder(self.folder, synced=self.fsync)
        temporary = self.folder / f".{sha256}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                if self.fsync:
                    file.flush()
                    os.fsync(descriptor)
            os.rename(temporary, self.folder / sha256)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if self.fsync:
            sync(self.folder)
