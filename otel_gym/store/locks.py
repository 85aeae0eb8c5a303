"""One compaction of a store at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_gym.store.folders import FILE_MODE, make_folder

LOCK = "compact.lock"
_POLL_S = 0.05


class LockedError(Exception):
    """Another process compacts this store, or the file system has no locks; the text says which."""


@contextmanager
def locked(directory: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the store's lock, waiting at most ``wait_s`` for who holds it.

    The kernel's lock on an open file: it ends with the process that held it, killed or not, so that no lock is ever
    stale. The text in the file (host, pid) is for people.
    """
    path = directory / LOCK
    make_folder(directory, synced=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        _acquire(descriptor, path, wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise LockedError(f"{path}: no lock to be had ({error.strerror}); compact on another host") from None
            if time.monotonic() >= deadline:
                raise LockedError(f"{path}: held by {_holder(path)}; wait until it is done, or end it") from None
        time.sleep(_POLL_S)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {int(holder['pid'])} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
