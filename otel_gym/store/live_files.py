"""The live files of a store as compaction sees them: who writes them, and how far they hold whole lines."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from otel_gym.store.layout import LIVE_SUFFIX, SPANS, is_this_host, rollout_id_of_folder
from otel_gym.store.lines import is_line_file

# Enough of both ends to tell two files of one name apart: it holds the ids of spans.
_FINGERPRINT_BYTES = 8 * 1024
_SEARCH_BYTES = 64 * 1024
_READ_BYTES = 4 * 1024 * 1024


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
    return (file for file in _files(directory) if file.name.endswith(LIVE_SUFFIX))


def other_line_files(directory: Path) -> Iterator[Path]:
    """What readers take beside live files, and compaction does not: no writer of ours makes compressed files, say."""
    return (file.path for file in _files(directory) if is_line_file(file.path) and not file.name.endswith(LIVE_SUFFIX))


def _files(directory: Path) -> Iterator[LiveFile]:
    spans = directory / SPANS
    for folder in _names(spans):
        rollout_id = rollout_id_of_folder(spans / folder)
        if rollout_id:
            for name in _names(spans / folder):
                yield LiveFile(spans / folder / name, rollout_id)


def _names(folder: Path) -> list[str]:
    """Of folders and files; whoever opened a FIFO would wait for ever."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() or entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


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


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor to read from by position; many small files are opened here, so without Python's own buffers."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def end_of_lines(descriptor: int, start: int, size: int) -> int:
    """Where the last whole line between ``start`` and ``size`` ends; ``start`` if there is none."""
    end, step = size, 1
    while end > start:
        begin = max(start, end - step)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end, step = begin, _SEARCH_BYTES
    return start


def end_of_line(descriptor: int, start: int, end: int) -> int:
    """Where the first line after ``start`` ends; ``end`` if it has no newline before that."""
    while start < end:
        block = os.pread(descriptor, min(_SEARCH_BYTES, end - start), start)
        newline = block.find(b"\n")
        if newline >= 0:
            return start + newline + 1
        if not block:
            break
        start += len(block)
    return end


def fingerprint(descriptor: int, start: int, end: int) -> str:
    """Of the bytes from ``start`` to ``end``: their number and what stands at both ends."""
    size = min(end - start, _FINGERPRINT_BYTES)
    head, tail = os.pread(descriptor, size, start), os.pread(descriptor, size, end - size)
    return hashlib.sha256(b"%d:%b:%b" % (end - start, head, tail)).hexdigest()[:16]


_RUN_ID = re.compile(rb'"gym\.run\.id","value":\{"stringValue":"([A-Za-z0-9._-]+)"')


def first_run_id(descriptor: int, start: int) -> str | None:
    """The run id that the first line names near its beginning; a guess, from which order is planned."""
    found = _RUN_ID.search(os.pread(descriptor, _FINGERPRINT_BYTES, start))
    return found[1].decode() if found else None


class LineReader:
    """Reads lines, one file after the other, in the same memory."""

    def __init__(self) -> None:
        self._buffer = bytearray(_READ_BYTES)

    def lines(self, descriptor: int, start: int, end: int) -> Iterator[memoryview]:
        """The lines from ``start`` to ``end`` without their newlines; each holds until the next is asked for."""
        held = 0  # of an unfinished line, at the front
        while start < end:
            if held == len(self._buffer):
                self._buffer = self._buffer + bytearray(held)
            view = memoryview(self._buffer)
            got = os.preadv(descriptor, [view[held : held + end - start]], start)
            if not got:
                break
            start += got
            stop, at = held + got, 0
            while (newline := self._buffer.find(b"\n", at, stop)) >= 0:
                yield view[at:newline]
                at = newline + 1
            held = stop - at
            view[:held] = bytes(view[at:stop])
        if held:
            yield memoryview(self._buffer)[:held]
