"""What ``otel-gym import otlp`` and ``jaeger`` do with paths and URLs. Apart from the commands: slow to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from otel_gym.cli.common import CommandError, progress, say
from otel_gym.cli.formats import counted
from otel_gym.cli.importing import said
from otel_gym.conventions import UNASSIGNED
from otel_gym.ingest.imported import SourceError
from otel_gym.ingest.jaeger import spans_of_jaeger
from otel_gym.ingest.otlp.files import NotOtlpError, OfJson, received_of_file
from otel_gym.ingest.otlp.importing import OtlpImport, grew_out_of_another, with_whole_bodies
from otel_gym.ingest.otlp.json_text import spans_of_json
from otel_gym.ingest.otlp.urls import UrlError, fetched, is_url, piped
from otel_gym.ingest.sources import check_path
from otel_gym.ingest.spans import Written
from otel_gym.settings import Settings
from otel_gym.store.layout import is_store
from otel_gym.store.reader import Store, StoreError
from otel_gym.store.repair import Damage
from otel_gym.tracing.otlp.plan import shown_url

OF_JSON: dict[str, OfJson] = {"otlp": spans_of_json, "jaeger": spans_of_jaeger}
# More are summed up.
_MOST_SAID = 20


class ImportOtlp:
    def __init__(self, source: str, store: Path, rollout: str | None, run: str | None, settings: Settings) -> None:
        self._of_json = OF_JSON[source]
        self._importing = OtlpImport(store, settings, rollout, run)
        self._damage: list[str] = []
        self._named_rollout = rollout is not None

    def take(self, places: list[str]) -> list[str]:
        """Returns what could not be read, a line each."""
        with progress("importing") as advancing:
            for place in advancing(places):
                self._take(place)
        _say_written(self._importing.finish(), named_rollout=self._named_rollout)
        return self._damage + self._importing.damage

    def _take(self, place: str) -> None:
        with ExitStack() as stack:
            try:
                path = stack.enter_context(_as_file(place))
            except (UrlError, SourceError) as problem:
                raise CommandError(str(problem)) from None
            name = shown_url(place) if is_url(place) else place
            if path.is_dir() and is_store(path):
                self._read_store(path)
            elif path.is_dir():
                for file in _files_below(path):
                    self._read(file, str(file), lambda problem: self._damage.append(str(problem)))
            else:
                self._read(path, name, _cannot_be_done)

    def _read(self, path: Path, name: str, on_other: Callable[[Exception], None]) -> None:
        """``on_other``: it is no file of traces, or cannot be read."""

        def report(damage: Damage) -> None:
            self._damage.append(str(damage).replace(str(path), name, 1))

        others = 0
        try:
            for received in received_of_file(path, report, self._of_json):
                if any(map(grew_out_of_another, received.spans)):
                    self._read_store(path)
                    return
                self._importing.take(received.spans)
                self._importing.take_records(received.records)
                others += received.other_signals
        except NotOtlpError as problem:
            on_other(NotOtlpError(str(problem).replace(str(path), name, 1)))
        except FileNotFoundError:
            on_other(FileNotFoundError(f"{name}: no such file or folder"))
        if others:
            say(f"{name}: {counted(others, 'message')} of metrics, logs or profiles passed over")

    def _read_store(self, path: Path) -> None:
        """A store of ours, or a file of one: requests that grew, and media, are put together first."""
        try:
            store = Store(path)
        except StoreError as problem:
            raise CommandError(str(problem)) from None
        for rollout in store.rollouts():
            self._importing.take(map(with_whole_bodies, rollout.spans))
        self._damage += map(str, store.damage)


@contextmanager
def _as_file(place: str) -> Iterator[Path]:
    """What stands at an URL, comes through a pipe, or is a file or folder. UrlError, SourceError."""
    path = Path(place)
    with ExitStack() as stack:
        if is_url(place):
            path = stack.enter_context(fetched(place))
        elif path.is_fifo():
            path = stack.enter_context(piped(path))
        else:
            check_path(path)
        yield path


def _cannot_be_done(problem: Exception) -> None:
    raise CommandError(str(problem))


def _files_below(folder: Path) -> Iterator[Path]:
    """In order of their names; without what is hidden."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _say_written(written: dict[str, Written], *, named_rollout: bool) -> None:
    if len(written) > _MOST_SAID:
        new, changed = (sum(getattr(each, name) for each in written.values()) for name in ("new", "changed"))
        print(f"{len(written):,} rollouts: {said(Written(new, changed))}", flush=True)
    else:
        for rollout_id, each in sorted(written.items()):
            print(f"{rollout_id}: {said(each)}", flush=True)
    without = written.get(UNASSIGNED)
    if without is not None and without.new and not named_rollout:
        say(f"{counted(without.new, 'span')} of no rollout: kept under {UNASSIGNED}; --rollout ID gives them one")
