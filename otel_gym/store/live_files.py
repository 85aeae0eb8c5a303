"""The live files of a store as compaction sees them: who writes them, and how far they hold whole lines."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_gym.store.layout import LIVE_SUFFIX, SPANS, is_this_host, rollout_id_of_folder

# Enough of both ends to tell two files of one name apart: it holds the ids of spans.
_FINGERPRINT_BYTES = 64 * 1024
_READ_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LiveFile:
    path: Path
    rollout_id: str

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def writer(self) -> str:
        return self.path.name.removesuffix(LIVE_SUFFIX)


def live_files(directory: Path) -> Iterator[LiveFile]:
    """Every live file, in the order of rollout id and name."""
    try:
        folders = sorted((directory / SPANS).iterdir())
    except FileNotFoundError:
        return
    for folder in folders:
        rollout_id = rollout_id_of_folder(folder)
        if rollout_id:
            for path in sorted(folder.glob(f"*{LIVE_SUFFIX}")):
                yield LiveFile(path, rollout_id)


def may_be_written(file: LiveFile, idle_s: float) -> bool:
    """Whether its writer may still run: asked of the system on the writer's own host, else told by the file's age."""
    modified = file.path.stat().st_mtime
    parts = file.writer.split(".")
    if len(parts) == 4 and parts[2].isdecimal() and is_this_host(parts[1]):
        return _runs(int(parts[2]), modified)
    return time.time() - modified < idle_s


def _runs(pid: int, modified: float) -> bool:
    """Whether process ``pid`` runs and is old enough to have written at ``modified``: pids come round."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    started = _started(pid)
    return started is None or started <= modified + 1


def _started(pid: int) -> float | None:
    """When the process started (UTC seconds), where the system says so in /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def end_of_lines(path: Path, start: int, size: int) -> int:
    """Where the last whole line between ``start`` and ``size`` ends; ``start`` if there is none."""
    with path.open("rb") as file:
        end = size
        while end > start:
            begin = max(start, end - _FINGERPRINT_BYTES)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return start


def fingerprint(path: Path, start: int, end: int) -> str:
    """Of the bytes from ``start`` to ``end``: their number and what stands at both ends."""
    with path.open("rb") as file:
        file.seek(start)
        head = file.read(min(end - start, _FINGERPRINT_BYTES))
        file.seek(max(start, end - _FINGERPRINT_BYTES))
        tail = file.read(min(end - start, _FINGERPRINT_BYTES))
    return hashlib.sha256(b"%d:%b:%b" % (end - start, head, tail)).hexdigest()[:16]


def lines_between(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The lines from ``start`` to ``end``, each whole, without its newline."""
    rest = b""
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            block = file.read(min(_READ_BYTES, end - start))
            if not block:
                break
            start += len(block)
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            yield from lines
    if rest:
        yield rest
