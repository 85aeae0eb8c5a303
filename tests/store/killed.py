"""Run as a program: compacts copies of a store, each killed (SIGKILL) at its next step, until one comes through.

    python -m tests.store.killed BASE OUT compact|into|seal

A step is a system call that changes the disk, or half a part written. OUT gets a folder for each step.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_gym.store import compact as compaction
from otel_gym.store.parquet import PartWriter
from tests.store.stores import WRITER

CALLS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "chmod", "ftruncate")


def compact(store: Path) -> None:
    compaction.compact(store / "source", idle_s=0, remove=True)


def into(store: Path) -> None:
    compaction.compact(store / "source", into=store / "target", idle_s=0, remove=True)


def seal(store: Path) -> None:
    compaction.remove_sealed(compaction.seal(store / "source", WRITER, ["1-0", "2-0"]).sealed)


ACTIONS: dict[str, Callable[[Path], None]] = {"compact": compact, "into": into, "seal": seal}


def die_at(step: int) -> None:
    """From now on the ``step``-th step is not taken: the process is killed before it."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            count()
            return call(*arguments, **options)

        return run

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    close = PartWriter.close

    def close_half(self: PartWriter, claims: Any) -> None:
        close(self, claims)
        content = self.path.read_bytes()
        self.path.write_bytes(content[: len(content) // 2])
        count()
        self.path.write_bytes(content)

    PartWriter.close = close_half  # type: ignore[method-assign]


def main() -> None:
    base, out, action = Path(sys.argv[1]), Path(sys.argv[2]), ACTIONS[sys.argv[3]]
    step = 0
    while True:
        step += 1
        store = out / f"{step:03d}"
        shutil.copytree(base, store)
        pid = os.fork()
        if pid == 0:
            die_at(step)
            action(store)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        if status == 0:
            return
        if not os.WIFSIGNALED(status):
            sys.exit(f"step {step}: failed by itself")


if __name__ == "__main__":
    main()
