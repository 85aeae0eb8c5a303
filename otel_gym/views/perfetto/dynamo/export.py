"""Trace files of Dynamo's → a trace for Perfetto, in one go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from otel_gym.records.dynamo import DynamoRecordError, decode_audit
from otel_gym.store.dynamo_files import lines_of_trace
from otel_gym.store.repair import Damage
from otel_gym.views.perfetto.chrome_json import StartsTooEarlyError
from otel_gym.views.perfetto.dynamo.shown import Record, decode_shown
from otel_gym.views.perfetto.dynamo.writer import DynamoTraceWriter
from otel_gym.views.perfetto.export import opened
from otel_gym.views.perfetto.stages import WantedStages

Report = Callable[[Damage], None]
_MOST_HELD = 1000


def write_dynamo_trace(
    files: Collection[Path],
    path: Path,
    wanted: WantedStages,
    report: Report,
    name: str | None = None,
    told: Collection[Path] | None = None,
) -> DynamoTraceWriter:
    """Writes Chrome's format; returns the writer, for what it counted. OSError.

    ``name`` (else that of ``path``) says with ``.gz`` that it is compressed. ``report`` gets each damage once.
    ``told``: the files that are traces for sure, default all; of the others those that hold no record are passed over.
    """
    base_ns: int | None = None
    while True:
        try:
            return _write(
                _records(files, files if told is None else told, report), path, name or path.name, wanted, base_ns
            )
        except StartsTooEarlyError as early:  # the files are not in the order of time: once more, from there on
            base_ns, report = early.start_ns, _silent


def _write(
    records: Iterable[Record], path: Path, name: str, wanted: WantedStages, base_ns: int | None
) -> DynamoTraceWriter:
    with opened(path, name) as file:
        file.write(b"[\n")
        writer = DynamoTraceWriter(file.write, wanted, base_ns)
        add = writer.add
        for record in records:
            add(record)
        writer.end()
        file.write(b"\n]\n")
    return writer


def _records(files: Iterable[Path], told: Collection[Path], report: Report) -> Iterator[Record]:
    """A file that was not ``told`` itself, but found in a folder, and holds no record is of another kind."""
    for path in files:
        held: list[Damage] = []
        is_trace = path in told
        for number, line in lines_of_trace(path, report):
            try:
                record = decode_shown(line)
            except DynamoRecordError as problem:
                if not line.strip() or decode_audit(line) is not None:
                    continue
                damage = Damage(path, number, str(problem))
                if is_trace:
                    report(damage)
                elif len(held) < _MOST_HELD:
                    held.append(damage)
                continue
            if not is_trace:
                is_trace = True
                for damage in held:
                    report(damage)
            yield record


def _silent(damage: Damage) -> None:
    pass
