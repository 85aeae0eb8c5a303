"""Trace files of Dynamo's → a trace for Perfetto, in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from otel_gym.records.dynamo import DynamoRecordError
from otel_gym.store.dynamo_files import lines_of_trace
from otel_gym.store.repair import Damage
from otel_gym.views.perfetto.chrome_json import StartsTooEarlyError
from otel_gym.views.perfetto.dynamo.shown import Record, decode_shown
from otel_gym.views.perfetto.dynamo.writer import DynamoTraceWriter
from otel_gym.views.perfetto.export import opened
from otel_gym.views.perfetto.stages import WantedStages

Report = Callable[[Damage], None]


def write_dynamo_trace(
    files: Sequence[Path], path: Path, wanted: WantedStages, report: Report, name: str | None = None
) -> DynamoTraceWriter:
    """Writes Chrome's format; returns the writer, for what it counted. OSError.

    ``name`` (else that of ``path``) says with ``.gz`` that it is compressed. ``report`` gets each damage once.
    """
    base_ns: int | None = None
    while True:
        try:
            return _write(_records(files, report), path, name or path.name, wanted, base_ns)
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


def _records(files: Iterable[Path], report: Report) -> Iterator[Record]:
    for path in files:
        for number, line in lines_of_trace(path, report):
            try:
                yield decode_shown(line)
            except DynamoRecordError as problem:
                if line.strip():
                    report(Damage(path, number, str(problem)))


def _silent(damage: Damage) -> None:
    pass
