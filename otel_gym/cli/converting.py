"""What ``otel-gym convert`` does with the paths it is given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from otel_gym.cli.common import CommandError, progress, said_settings
from otel_gym.cli.importing import another_source
from otel_gym.cli.writing import Files, without_collector, write_files
from otel_gym.content_policy import content_policy_from
from otel_gym.ingest.claude_code import SessionRun, claude_code_runs
from otel_gym.ingest.files import unreadable_text
from otel_gym.ingest.imported import ImportedRollout, SourceError
from otel_gym.ingest.sources import SOURCES, check_path, other_source
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import WrittenVersion, atif_files_of_run
from otel_gym.views.atif_export import atif_files

ATIF_VERSIONS: dict[str, WrittenVersion] = {"1.7": "ATIF-v1.7", "1.8": "ATIF-v1.8"}


def converted(source: str, paths: list[Path], output: Path, version: WrittenVersion) -> tuple[int, list[str]]:
    """Writes the sessions below ``paths``; returns how many, and what could not be read."""
    converting = _Converting(source, output, version)
    with progress("converting") as advancing, without_collector():
        for path in advancing(paths):
            converting.take(path)
    return len(converting.written), list(dict.fromkeys(converting.damage))


class _Converting:
    """``written``: session → the path that it was found at."""

    def __init__(self, source: str, output: Path, version: WrittenVersion) -> None:
        self._source = source
        self._output = output
        self._version = version
        self._policy = content_policy_from(said_settings(), messages=False)
        self.written: dict[str, Path] = {}
        self.damage: list[str] = []

    def take(self, path: Path) -> None:
        damaged, found = len(self.damage), False
        for session in self._sessions(path):
            found = True
            self._write(session, path)
        if not found and len(self.damage) == damaged:
            self._refuse_another_source(path)
            raise CommandError(f"{path}: nothing here that can be converted")

    def _sessions(self, path: Path) -> Iterator[SessionRun | ImportedRollout]:
        try:
            check_path(path)
            # Spans know what may stay under rules of the user's own.
            if self._source == "claude-code" and self._policy.is_usual:
                yield from claude_code_runs(path, self._policy, self.damage)
            else:
                for rollout in SOURCES[self._source].read(path):
                    self.damage += rollout.damage
                    yield rollout
        except SourceError as problem:
            self._refuse_another_source(path)
            raise CommandError(str(problem)) from None
        except OSError as error:
            raise CommandError(unreadable_text(path, error)) from None

    def _write(self, session: SessionRun | ImportedRollout, path: Path) -> None:
        name = session.rollout_id if isinstance(session, SessionRun) else session.identity_id
        first = self.written.get(name)
        if first is not None:
            cure = "rename one" if first == path else "convert the folder that holds both, or each into its own -o"
            self.damage.append(f"{path}: its session {name} was written from {first} before; left out: {cure}")
            return
        self.written[name] = path
        write_files(self._output / name, self._files(session, name))

    def _files(self, session: SessionRun | ImportedRollout, name: str) -> Files:
        if isinstance(session, SessionRun):
            return _files_of_run(session, self._version)
        spans = RolloutSpans(None, name, stored_spans(session, None, self._policy))
        return {file: (content,) for file, content in atif_files(spans, self._version).items()}

    def _refuse_another_source(self, path: Path) -> None:
        source = other_source(path, self._source)
        if source is not None:
            raise another_source(path, source, "import" if source == "atif" else "convert") from None


def _files_of_run(session: SessionRun, version: WrittenVersion) -> Files:
    try:
        return atif_files_of_run(
            session.run, rollout_id=session.rollout_id, version=version, agent_version=session.version
        )
    except OSError as error:
        folder = tempfile.gettempdir()
        raise CommandError(f"{folder} cannot be written: {error.strerror}; set TMPDIR to a folder with room") from None
