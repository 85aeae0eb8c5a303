"""What can be imported, by name: a new source is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_gym.ingest.atif import is_atif, read_atif
from otel_gym.ingest.claude_code import is_claude_code, read_claude_code
from otel_gym.ingest.codex import is_codex, read_codex
from otel_gym.ingest.dynamo import is_dynamo, read_dynamo, read_dynamo_together
from otel_gym.ingest.gym_captures import capture_files, is_gym_captures, read_gym_captures
from otel_gym.ingest.imported import ImportedRollout, SourceError


@dataclass(frozen=True, slots=True)
class Source:
    """``made``: what a file of it is called; ``is_file``: whether a file is one, by its name or its first records.
    ``files``: those of a folder that are read one by one, where all of them at once would be too much.
    ``read_together``: of a source whose files are parts of one trace, which reads all paths, globs too, at once.
    """

    read: Callable[[Path], list[ImportedRollout]]
    made: str
    is_file: Callable[[Path], bool]
    files: Callable[[Path], list[Path]] = lambda path: [path]
    read_together: Callable[[Sequence[Path]], list[ImportedRollout]] | None = None


SOURCES: dict[str, Source] = {
    "claude-code": Source(read_claude_code, "a session of Claude Code", is_claude_code),
    "codex": Source(read_codex, "a session of Codex", is_codex),
    "atif": Source(read_atif, "an ATIF document", is_atif),
    "gym-captures": Source(read_gym_captures, "a capture of NeMo Gym", is_gym_captures, capture_files),
    "dynamo": Source(read_dynamo, "a trace of Dynamo", is_dynamo, read_together=read_dynamo_together),
}


def check_path(path: Path) -> None:
    """SourceError for what is not there, and for what would wait for a writer (a FIFO)."""
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder")
    if not (path.is_file() or path.is_dir()):
        raise SourceError(f"{path}: neither a file nor a folder; write what comes from it to a file first")


def other_source(path: Path, source: str) -> str | None:
    """The name of the source that made a file, if it is another one than ``source`` and can be told."""
    try:
        found = source_of_file(path)
    except OSError:
        return None
    return None if found == source else found


def source_of_file(path: Path) -> str | None:
    """The name of the source that made a file; None for what is no file, or of none. OSError."""
    if not path.is_file():
        return None
    return next((name for name, source in SOURCES.items() if source.is_file(path)), None)
