"""Reads a store: which runs and rollouts it holds, and the spans of each.

One way in for every form: a store's folder, a file of OTLP/JSON lines, a folder of such files (also compressed, also a
Collector's), Parquet. One rollout is held at a time, so that memory does not grow with the store.

Damage never hides what is whole around it: what cannot be read becomes a ``Damage`` with file, line, byte and cure, and
reading goes on. A last line without its newline is taken if it parses, since a writer may still be at work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from otel_gym.conventions import BODY_BYTES, OTLP_CUT, REQUEST_BODY, RESPONSE_BODY, UNASSIGNED
from otel_gym.store.executions import Executions, by_run, executions_of, is_ambiguous
from otel_gym.store.foreign import as_gym_spans
from otel_gym.store.layout import COUNTS, NOTES, PARQUET, SPANS, is_store
from otel_gym.store.lines import LINE_FILES, is_line_file, may_hold_spans
from otel_gym.store.repair import Damage
from otel_gym.store.sources import LineFiles, LiveFolders, ParquetFiles, Source, StartRecords, below
from otel_gym.store.span import StoredSpan

__all__ = ["Damage", "RolloutSpans", "Store", "StoreError", "natural_key", "open_store"]

Value = TypeVar("Value")

_PARQUET_SUFFIX = ".parquet"
# What stands in each row of `export model-calls`, and in no span.
_EXPORTED = {"rollout_id", "call_index", "model_call_id"}
_STORES_SAID = 3
_BODIES = (REQUEST_BODY, RESPONSE_BODY)


class StoreError(Exception):
    """The path cannot be read as a store; the text says why and what to do."""


class RolloutSpans:
    """One (run, rollout); ``run_id`` None: the spans name none.

    ``is_ambiguous``: several runs have the rollout, and of these spans none can say which run they are of.
    """

    __slots__ = ("_load", "_spans", "is_ambiguous", "rollout_id", "run_id")

    def __init__(
        self,
        run_id: str | None,
        rollout_id: str,
        spans: list[StoredSpan] | None = None,
        *,
        is_ambiguous: bool = False,
        load: Callable[[], list[StoredSpan]] = list,
    ) -> None:
        self.run_id = run_id
        self.rollout_id = rollout_id
        self.is_ambiguous = is_ambiguous
        self._spans = spans
        self._load = load

    @property
    def spans(self) -> list[StoredSpan]:
        """In order of their start, then of their ids; read again if they were let go."""
        if self._spans is None:
            self._spans = self._load()
        return self._spans

    @property
    def address(self) -> str:
        """How commands name it: ``run/rollout``, or ``rollout`` where there is no run id."""
        return f"{self.run_id}/{self.rollout_id}" if self.run_id else self.rollout_id

    def executions(self) -> Executions:
        return executions_of(self.spans)

    def with_spans(self, spans: Sequence[StoredSpan]) -> RolloutSpans:
        """The same rollout, with some of its spans."""
        return RolloutSpans(self.run_id, self.rollout_id, list(spans), is_ambiguous=self.is_ambiguous)

    def let_go(self) -> None:
        self._spans = None

    def __repr__(self) -> str:
        return f"RolloutSpans({self.address!r})"


def open_store(path: Path | str) -> Store:
    """A store opened for reading: a folder of ours, a ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst`` file of OTLP/JSON
    lines, a folder of such files, or Parquet. StoreError if it is none of these.
    """
    return Store(path)


class Store:
    """A store opened for reading. ``damage`` grows as lines are read, each once."""

    def __init__(self, directory: Path | str, sources: Sequence[Source] | None = None) -> None:
        """``sources`` instead of what lies in the folder."""
        self.directory = Path(directory)
        self._damage: dict[Damage, None] = {}
        self._told_by_live_files: set[str] = set()
        self._sources = _sources_of(self.directory) if sources is None else sources

    @property
    def damage(self) -> list[Damage]:
        return list(self._damage)

    @property
    def has_rollouts_apart(self) -> bool:
        """Whether one rollout is read without the others: not so where a file of lines holds several."""
        return not any(isinstance(source, LineFiles) for source in self._sources)

    @property
    def left_out(self) -> list[Path]:
        """Files of a folder of lines that hold none of OTLP/JSON."""
        return [path for source in self._sources if isinstance(source, LineFiles) for path in source.left_out]

    def _report(self, damage: Damage) -> None:
        """A body that is missing is so in its live file and in the part made of it: the part does not tell it again."""
        if damage.path.suffix != _PARQUET_SUFFIX:
            self._told_by_live_files.add(damage.problem)
        elif damage.problem in self._told_by_live_files:
            return
        self._damage[damage] = None

    def met(self, damage: Iterable[Damage]) -> None:
        """Damage that another process met in it."""
        for each in damage:
            self._report(each)

    def rollout_ids(self) -> list[str]:
        """Every rollout id of the store, `unassigned` last, else in natural order."""
        found = {name for source in self._sources for name in source.rollout_ids(self._report)}
        return sorted(found, key=natural_key)

    def counts(self) -> dict[str, int]:
        """Sums of what the processes counted: ``uncaptured_calls``, ``lost_spans``."""
        total: dict[str, int] = {}
        for numbers in self.counts_by_writer().values():
            for name, number in numbers.items():
                total[name] = total.get(name, 0) + number
        return total

    def counts_by_writer(self) -> dict[str, dict[str, int]]:
        """What each process counted, by its name."""
        return self._by_writer(
            COUNTS, int, Damage(self.directory, 1, "no counts", "its numbers are left out of the sums")
        )

    def notes_by_writer(self) -> dict[str, dict[str, str]]:
        """What of its setup each process noted, by its name: only what weakens a promise."""
        return self._by_writer(NOTES, str, Damage(self.directory, 1, "no notes", "how it was set up is not known"))

    def _by_writer(self, part: str, kind: Callable[[Any], Value], damage: Damage) -> dict[str, dict[str, Value]]:
        by_writer: dict[str, dict[str, Value]] = {}
        for path in sorted((self.directory / part).glob("*.json")):
            if not path.is_file():
                continue
            try:
                said = json.loads(path.read_bytes())
                by_writer[path.stem] = {name: kind(value) for name, value in said.items()}
            except (OSError, ValueError, AttributeError, TypeError, OverflowError, RecursionError):
                self._report(replace(damage, path=path))
        return by_writer

    def rollouts(self, rollout_id: str | None = None) -> Iterator[RolloutSpans]:
        """Rollout by rollout, each run of it apart; of one id only, if given. Spans of others have our names too.

        The spans of each are at hand until the next one is asked for, and read again after that.
        """
        for name in self.rollout_ids() if rollout_id is None else [rollout_id]:
            for rollout in self._runs_of(name):
                yield rollout
                rollout.let_go()

    def spans(self, rollout: RolloutSpans | str) -> Iterator[StoredSpan]:
        """The spans of a rollout, or those of every run of a rollout id, in order of start, then id; each once, as it
        was written."""
        if isinstance(rollout, str):
            yield from self._merged(rollout)
        else:
            yield from self._spans_of_run(rollout.rollout_id, rollout.run_id)

    def _runs_of(self, rollout_id: str) -> list[RolloutSpans]:
        runs = self._by_run(rollout_id)
        return sorted(
            (
                RolloutSpans(
                    run_id,
                    rollout_id,
                    as_gym_spans(spans),
                    is_ambiguous=rollout_id != UNASSIGNED and is_ambiguous(run_id, runs),
                    load=partial(self._spans_to_view, rollout_id, run_id),
                )
                for run_id, spans in runs.items()
            ),
            key=lambda run: run.spans[0].start_ns,
        )

    def _by_run(self, rollout_id: str) -> dict[str | None, list[StoredSpan]]:
        spans = self._merged(rollout_id)
        if rollout_id != UNASSIGNED:
            return by_run(spans)
        runs: dict[str | None, list[StoredSpan]] = {}
        for span in spans:
            runs.setdefault(span.run_id, []).append(span)
        return runs

    def _spans_of_run(self, rollout_id: str, run_id: str | None) -> list[StoredSpan]:
        return self._by_run(rollout_id).get(run_id, [])

    def _spans_to_view(self, rollout_id: str, run_id: str | None) -> list[StoredSpan]:
        return as_gym_spans(self._spans_of_run(rollout_id, run_id))

    def _merged(self, rollout_id: str) -> list[StoredSpan]:
        """Each span once: of several with the same ids the ended one, else the whole one, else the later one."""
        by_id: dict[tuple[str, str], StoredSpan] = {}
        for source in self._sources:
            for span in source.spans(rollout_id, self._report):
                ids = (span.trace_id, span.span_id)
                known = by_id.get(ids)
                if known is None or completeness(span) >= completeness(known):
                    by_id[ids] = span
        return sorted(by_id.values(), key=span_order)


def span_order(span: StoredSpan) -> tuple[int, str]:
    return span.start_ns, span.span_id


def completeness(span: StoredSpan) -> tuple[bool, bool, int]:
    """Ended, nothing cut off, bodies at hand: what is more complete compares as greater."""
    attributes = span.attributes
    is_cut = bool(span.dropped) or OTLP_CUT in attributes or any(body + BODY_BYTES in attributes for body in _BODIES)
    return span.end_ns is not None, not is_cut, sum(body in attributes for body in _BODIES)


def _sources_of(path: Path) -> list[Source]:
    """How a path is read. The order matters while others write: what leaves one part is in the next one already."""
    if path.is_file():
        return [_source_of_file(path)]
    if not path.is_dir():
        raise StoreError(f"{path}: no such folder; give the store's folder with --dir or OTEL_GYM_DIR")
    if is_store(path):
        return [StartRecords(path), LiveFolders(path), ParquetFiles(path / PARQUET)]
    if any(path.glob(f"*{_PARQUET_SUFFIX}")):
        return [ParquetFiles(path)]
    files, stores = below(path)
    if stores:
        raise StoreError(f"{path}: not a store of otel_gym; {_stores_said(stores)}")
    of_spans = list(filter(may_hold_spans, files))
    if of_spans:
        return [LineFiles(of_spans, sorted({*files}.difference(of_spans)))]
    if any(path.iterdir()):
        raise StoreError(f"{path}: not a store of otel_gym, it has no folder {SPANS}/; give another --dir")
    raise StoreError(f"{path}: empty, nothing was recorded here yet; is OTEL_GYM=1 set where the spans are made?")


def _stores_said(stores: Sequence[Path]) -> str:
    if len(stores) == 1:
        return f"there is one at {stores[0]}"
    return f"there are {len(stores)} below it: {', '.join(map(str, stores[:_STORES_SAID]))}" + (
        " …" if len(stores) > _STORES_SAID else ""
    )


def _source_of_file(path: Path) -> Source:
    is_parquet = path.suffix == _PARQUET_SUFFIX
    if is_parquet or is_line_file(path):
        names = _columns(path) if is_parquet else _names_of_first_line(path)
        if names.issuperset(_EXPORTED):
            raise StoreError(f"{path}: model calls that were exported, no spans; give the store that they came from")
        if not is_parquet and not may_hold_spans(path):
            raise StoreError(
                f'{path}: no OTLP/JSON lines, of which each begins with {{"resourceSpans": …; give another --dir'
            )
        return ParquetFiles(path) if is_parquet else LineFiles([path])
    raise StoreError(
        f"{path}: not a folder, and none of the files that are read ({', '.join(LINE_FILES)}, {_PARQUET_SUFFIX})"
    )


def _names_of_first_line(path: Path) -> set[str]:
    try:
        with path.open("rb") as lines:
            first = json.loads(lines.readline())
    except (OSError, ValueError, RecursionError):
        return set()
    return set(first) if isinstance(first, dict) else set()


def _columns(path: Path) -> set[str]:
    try:
        return set(import_module("pyarrow.parquet").read_schema(path).names)  # pyarrow is slow to load
    except (OSError, ValueError):
        return set()


def natural_key(name: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    """Sorts ``2-0`` before ``10-0``, and ``unassigned`` last."""
    parts = name.replace("_", "-").replace(".", "-").split("-")
    keys = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
    return name == UNASSIGNED, keys
