"""Where Codex keeps its session files, and what else in a folder may tell of a run."""

from __future__ import annotations

from pathlib import Path

from otel_gym.id_rules import is_valid_id
from otel_gym.ingest.codex.rows import JsonObject, json_lines
from otel_gym.ingest.files import readable

_SESSION_FILES = "rollout-*.jsonl"
_PRINTED_FILES = "stdout*.jsonl"
_SESSION_FOLDERS = ("sessions", "archived_sessions")


def session_files(path: Path, damage: list[str]) -> list[Path]:
    """The session files at a path, oldest first: their names begin with the time. ``damage``: what cannot be read."""
    if path.is_file():
        return [path] if is_session_file(path) else []
    folders = [path / name for name in _SESSION_FOLDERS if (path / name).is_dir()] or [path]
    found = (file for folder in folders for file in folder.rglob(_SESSION_FILES))
    return readable(sorted(found, key=lambda file: file.name), damage)


def stdout_files(path: Path, damage: list[str]) -> list[Path]:
    """What ``codex exec --json`` printed: the file itself, or files named ``stdout*.jsonl`` in a folder."""
    if path.is_file():
        return [] if is_session_file(path) else [path]
    return readable(sorted(path.glob(_PRINTED_FILES)), damage)


def is_session_file(path: Path) -> bool:
    """By its name, or where it was renamed by its first record: only those of a session have a payload."""
    return path.match(_SESSION_FILES) or "payload" in _first_record(path)


def is_codex(path: Path) -> bool:
    """Whether a file is a session's, or what was printed of one, by its first record. OSError."""
    first = _first_record(path)
    return isinstance(first.get("payload"), dict) or first.get("type") == "thread.started"


def _first_record(path: Path) -> JsonObject:
    return next((record for _, record in json_lines(path, [])), {})


def file_of_thread(thread_id: str, beside: Path) -> Path | None:
    """The file of another thread in the sessions folder that ``beside`` lies in: names end with the thread's id."""
    if not is_valid_id(thread_id):
        return None
    name = f"rollout-*-{thread_id}.jsonl"
    folder = next((above for above in beside.parents if above.name in _SESSION_FOLDERS), None)
    found = beside.parent.glob(name) if folder is None else folder.rglob(name)
    return next(iter(readable(found, [])), None)
