"""What ``otel-gym import`` does with the paths it is given. Not with the commands: its parts are slow to load."""

from __future__ import annotations

import shlex
from pathlib import Path

from otel_gym.cli.common import CommandError, progress
from otel_gym.cli.formats import counted
from otel_gym.content_policy import content_policy_from
from otel_gym.ingest.files import unreadable_text
from otel_gym.ingest.imported import ImportedRollout, SourceError
from otel_gym.ingest.sources import SOURCES, check_path, other_source
from otel_gym.ingest.spans import OtherRunError, Written, is_stored, write_rollout
from otel_gym.settings import Settings


class Import:
    """Takes the sessions below some paths into a store, again and again."""

    def __init__(
        self,
        source: str,
        store: Path,
        rollout: str | None,
        run: str | None,
        settings: Settings,
        *,
        follow: bool,
    ) -> None:
        self._source = source
        self._store = store
        self._rollout = rollout
        self._run = run
        self._policy = content_policy_from(settings, messages=True)
        self._content_once = settings.content_once
        self._follow = follow
        self._has_taken = False
        self._places: dict[tuple[str, str], Path | None] = {}

    def take(self, paths: list[Path]) -> list[str]:
        """Returns what could not be read, as it is now: a line that is being written is whole the next time."""
        with progress("importing") as advancing:
            if SOURCES[self._source].read_together is not None:
                sets = [paths]
            else:
                sets = [[file] for path in paths for file in self._files(path)]
            damage = list(dict.fromkeys(text for files in advancing(sets) for text in self._taken(files)))
        self._has_taken = True
        return damage

    def _files(self, path: Path) -> list[Path]:
        try:
            check_path(path)
            files = SOURCES[self._source].files(path)
        except SourceError as problem:
            raise CommandError(str(problem)) from None
        except OSError as error:
            raise CommandError(unreadable_text(path, error)) from None
        if self._rollout is not None and len(files) > 1:
            raise CommandError(f"{path} holds {len(files)} sessions, --rollout names one; import them one by one")
        return files

    def _taken(self, paths: list[Path]) -> list[str]:
        """What cannot be read now may be whole the next time, if there is one."""
        try:
            return self._take(paths)
        except SourceError as problem:
            if self._follow:
                return [str(problem)]
            raise CommandError(str(problem)) from None

    def _take(self, paths: list[Path]) -> list[str]:
        found = self._found(paths)
        if self._rollout is not None and len(found) > 1:
            ids = ", ".join(rollout.identity_id for rollout in found[:3])
            cure = "import them one by one" if len(paths) == 1 else "leave it out"
            raise CommandError(f"{paths[0]} holds {len(found)} sessions ({ids} …), --rollout names one; {cure}")
        for rollout in found:
            rollout.rollout_id = self._rollout or rollout.rollout_id
            try:
                self._write(rollout)
            except OtherRunError as problem:
                rollout.damage.append(str(problem))
        return [text for rollout in found for text in rollout.damage]

    def _write(self, rollout: ImportedRollout) -> None:
        ids = rollout.identity_id, rollout.session_id
        first = self._places.get(ids)
        if first is not None and rollout.place is not None and self._is_another(rollout, rollout.place, first):
            raise OtherRunError(f"{rollout.place}: its session {rollout.session_id} is that of {first} too")
        written = write_rollout(self._store, rollout, self._run, self._policy, content_once=self._content_once)
        self._places.setdefault(ids, rollout.place)
        if written.new or written.changed or not self._has_taken:
            _say(rollout.identity_id, written)

    def _is_another(self, rollout: ImportedRollout, place: Path, first: Path) -> bool:
        """A copy of the first is not."""
        return place.resolve() != first.resolve() and not is_stored(self._store, rollout, self._run, self._policy)

    def _found(self, paths: list[Path]) -> list[ImportedRollout]:
        try:
            found = self._read(paths)
        except SourceError:
            self._refuse_another_source(paths)
            raise
        except OSError as error:
            raise SourceError(unreadable_text(paths[0], error)) from None
        if not found:
            self._refuse_another_source(paths)
            raise SourceError(f"{paths[0]}: nothing here that can be imported")
        return found

    def _read(self, paths: list[Path]) -> list[ImportedRollout]:
        source = SOURCES[self._source]
        if source.read_together is not None:
            return source.read_together(paths)
        check_path(paths[0])
        return source.read(paths[0])

    def _refuse_another_source(self, paths: list[Path]) -> None:
        """Of such a file; waiting makes no other of it."""
        for path in paths:
            source = other_source(path, self._source)
            if source is not None:
                raise another_source(path, source, "import") from None


def another_source(path: Path, source: str, verb: str) -> CommandError:
    """Says what a file is, and the command that takes it."""
    return CommandError(f"{path}: this is {SOURCES[source].made}: otel-gym {verb} {source} {shlex.quote(str(path))}")


def _say(rollout_id: str, written: Written) -> None:
    print(f"{rollout_id}: {said(written)}", flush=True)


def said(written: Written) -> str:
    if not (written.new or written.changed):
        return "nothing new"
    changed = f", {written.changed:,} changed" if written.changed else ""
    return f"{counted(written.new, 'new span')}{changed}"
