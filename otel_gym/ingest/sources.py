"""What can be imported, by name: a new source is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from otel_gym.ingest.atif import read_atif
from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.codex import read_codex
from otel_gym.ingest.imported import ImportedRollout

SOURCES: dict[str, Callable[[Path], list[ImportedRollout]]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "atif": read_atif,
}
