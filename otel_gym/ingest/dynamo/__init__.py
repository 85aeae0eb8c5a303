"""Traces of NVIDIA Dynamo → spans: requests, tools, agents; plain or packed, whole or damaged, in any order.

Two schemas, and the audit files of the bodies; see ``records.dynamo`` for what a record says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from otel_gym.ingest.dynamo.reading import begins_as_dynamo, read_trace
from otel_gym.ingest.dynamo.spans import rollouts_of
from otel_gym.ingest.imported import ImportedRollout, SourceError
from otel_gym.store.dynamo_files import NoTraceFileError, trace_files

__all__ = ["is_dynamo", "read_dynamo", "read_dynamo_together"]


def is_dynamo(path: Path) -> bool:
    """Whether a file is a trace of Dynamo's, by its first records. OSError."""
    return begins_as_dynamo(path) is True


def read_dynamo(path: Path) -> list[ImportedRollout]:
    return read_dynamo_together([path])


def read_dynamo_together(paths: Sequence[Path]) -> list[ImportedRollout]:
    """One trace, in all files that ``paths`` stand for (see ``trace_files``). SourceError."""
    try:
        files = trace_files(paths)
    except NoTraceFileError as problem:
        raise SourceError(str(problem)) from None
    trace = read_trace(files, {path for path in paths if path.is_file()})
    if not trace.records:
        raise SourceError("; ".join(trace.damage) or f"{paths[0]}: no record of Dynamo's in any file of it")
    rollouts = list(rollouts_of(trace))
    if not rollouts:
        raise SourceError("; ".join(trace.damage) or f"{paths[0]}: no record of it tells of a request or a tool")
    return rollouts
