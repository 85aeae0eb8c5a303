"""The end of a child process of multiprocessing, which runs nothing of what atexit knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

# Longest that a pool's worker waits for the disk when an outermost span has ended.
POOL_WORKER_WAIT_S = 1.0

_told: set[tuple[int, Callable[[], None]]] = set()


def close_when_a_worker_ends(close: Callable[[], None], *, priority: int = 0) -> None:
    """Calls ``close`` once when this process ends, if it is such a child; the higher priority first."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or (os.getpid(), close) in _told:
        return
    _told.add((os.getpid(), close))
    util.Finalize(None, close, exitpriority=priority)


def is_pool_worker() -> bool:
    """Whether this process may be ended by SIGTERM as soon as it has answered: ``with Pool() as pool`` does that."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon
