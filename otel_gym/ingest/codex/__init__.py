"""Codex: its session files, or what ``codex exec --json`` printed → spans.

A session file is one thread; the threads that a session spawned stand within its root thread's rollout. A fork refers
to the thread that it continues, and repeats nothing of it. What was printed is read only where no session file tells of
the thread: it names no model, no response, no time and no usage of single calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from otel_gym.ingest.codex.exec_json import read_printed
from otel_gym.ingest.codex.family import threads_by_root
from otel_gym.ingest.codex.files import is_codex, session_files, stdout_files
from otel_gym.ingest.codex.rows import ThreadFile, read_thread_file
from otel_gym.ingest.codex.thread import Thread
from otel_gym.ingest.codex.threads import rollout_of_threads
from otel_gym.ingest.files import with_damage
from otel_gym.ingest.imported import ImportedRollout

__all__ = ["is_codex", "read_codex"]


def read_codex(path: str | Path) -> list[ImportedRollout]:
    """One rollout for each root thread; ``path``: a session file, a folder with such files, or printed JSON lines."""
    path, unreadable = Path(path), list[str]()
    files = _longest_of_each_thread(read_thread_file(file) for file in session_files(path, unreadable))
    roots = threads_by_root([Thread(file, files) for file in files.values()])
    rollouts = [rollout_of_threads(root, threads) for root, threads in roots.items()]
    printed = read_printed(stdout_files(path, unreadable))
    rollouts += [rollout for rollout in printed if rollout.session_id not in files]
    return with_damage(rollouts, unreadable)


def _longest_of_each_thread(files: Iterable[ThreadFile]) -> dict[str, ThreadFile]:
    """A thread may lie there twice, as an archived copy for one: the longer file counts. One without a line waits."""
    longest: dict[str, ThreadFile] = {}
    for file in files:
        if not file.rows:
            continue
        known = longest.get(file.thread_id)
        if known is None or len(file.rows) > len(known.rows):
            longest[file.thread_id] = file
    return longest
