"""Reads a store: which runs and rollouts it holds, and the spans of each.

Damage never hides what is whole around it: each line that cannot be read becomes a ``Damage`` with
file, line and cure, and reading goes on. A last line without its newline is taken if it parses,
since a writer may still be at work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from otel_gym.conventions import UNASSIGNED
from otel_gym.store.blobs import BlobStore
from otel_gym.store.layout import COUNTS, LIVE_SUFFIX, SPANS, rollout_folder, rollout_id_of_folder
from otel_gym.store.otlp_json import MalformedLineError, spans_of_line
from otel_gym.store.span import StoredSpan
from otel_gym.store.whole_requests import whole_requests


class StoreError(Exception):
    """The folder cannot be read as a store; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Damage:
    path: Path
    line: int
    problem: str
    cure: str = "the line is skipped; every other line of the file was read"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}; {self.cure}"


@dataclass(slots=True)
class RolloutSpans:
    """The spans of one (run, rollout), oldest first; ``run_id`` None: the spans name none."""

    run_id: str | None
    rollout_id: str
    spans: list[StoredSpan] = field(default_factory=list)

    @property
    def address(self) -> str:
        """How commands name it: ``run/rollout``, or ``rollout`` where there is no run id."""
        return f"{self.run_id}/{self.rollout_id}" if self.run_id else self.rollout_id


class Store:
    """A store opened for reading. ``damage`` grows as lines are read."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.damage: list[Damage] = []
        self.blobs = BlobStore(self.directory)
        if not self.directory.exists():
            raise StoreError(f"{self.directory}: no such folder; give the store's folder with --dir or OTEL_GYM_DIR")
        if not self.directory.is_dir():
            raise StoreError(f"{self.directory}: not a folder; give the folder that holds {SPANS}/")
        if not (self.directory / SPANS).is_dir():
            raise StoreError(self._no_store())

    def _no_store(self) -> str:
        if any(self.directory.iterdir()):
            return f"{self.directory}: not a store of otel_gym, it has no folder {SPANS}/; give another --dir"
        return f"{self.directory}: empty, nothing was recorded here yet; is OTEL_GYM=1 set where the spans are made?"

    def rollout_ids(self) -> list[str]:
        """Every rollout id of the store, `unassigned` last, else in natural order."""
        folders = (rollout_id_of_folder(folder) for folder in (self.directory / SPANS).iterdir() if folder.is_dir())
        return sorted((name for name in folders if name), key=natural_key)

    def counts(self) -> dict[str, int]:
        """Sums of what the processes counted: ``uncaptured_calls``, ``lost_spans``."""
        total: dict[str, int] = {}
        for path in sorted((self.directory / COUNTS).glob("*.json")):
            try:
                counts = json.loads(path.read_bytes())
                for name, number in counts.items():
                    total[name] = total.get(name, 0) + int(number)
            except (OSError, ValueError, AttributeError, TypeError):
                self.damage.append(Damage(path, 1, "no counts", "its numbers are left out of the sums"))
        return total

    def rollouts(self, rollout_id: str | None = None) -> Iterator[RolloutSpans]:
        """Rollout by rollout, each run of it apart; of one id only, if given."""
        for name in self.rollout_ids() if rollout_id is None else [rollout_id]:
            yield from self._runs_of(name)

    def _runs_of(self, rollout_id: str) -> Iterator[RolloutSpans]:
        runs: dict[str | None, RolloutSpans] = {}
        for span in self._spans_of_folder(rollout_id):
            run = runs.setdefault(span.run_id, RolloutSpans(span.run_id, rollout_id))
            run.spans.append(span)
        for run in runs.values():
            run.spans.sort(key=lambda span: (span.start_ns, span.end_ns or span.start_ns))
        yield from sorted(runs.values(), key=lambda run: run.spans[0].start_ns)

    def _spans_of_folder(self, rollout_id: str) -> Iterator[StoredSpan]:
        """Each span once: of two lines with the same ids the ended one wins, then the later."""
        by_id: dict[tuple[str, str], StoredSpan] = {}
        try:
            folder = rollout_folder(self.directory, rollout_id)
        except ValueError:
            return
        for path in sorted(folder.glob(f"*{LIVE_SUFFIX}")):
            for span in self._whole_spans_of_file(path):
                known = by_id.get((span.trace_id, span.span_id))
                if known is None or known.end_ns is None or span.end_ns is not None:
                    by_id[span.trace_id, span.span_id] = span
        yield from by_id.values()

    def _whole_spans_of_file(self, path: Path) -> list[StoredSpan]:
        """What the requests of a file grew out of lies in the same file."""
        spans = list(self.spans_of_file(path))
        cure = "these bodies are absent; all else was read"
        self.damage += [Damage(path, 0, str(gap), cure) for gap in whole_requests(spans, self.blobs)]
        return spans

    def spans_of_file(self, path: Path) -> Iterator[StoredSpan]:
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    yield from self._spans_of_line(path, number, line)
        except OSError as error:
            self.damage.append(Damage(path, 0, f"cannot be read: {error.strerror}", "check its permissions"))

    def _spans_of_line(self, path: Path, number: int, line: bytes) -> Iterator[StoredSpan]:
        if not line.strip():
            return
        try:
            yield from spans_of_line(line)
        except MalformedLineError as error:
            torn = "" if line.endswith(b"\n") else "torn at the end of the file: "
            self.damage.append(Damage(path, number, f"{torn}{error}"))


def natural_key(name: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    """Sorts ``2-0`` before ``10-0``, and ``unassigned`` last."""
    parts = name.replace("_", "-").replace(".", "-").split("-")
    keys = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
    return name == UNASSIGNED, keys
