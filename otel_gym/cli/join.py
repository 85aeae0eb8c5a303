"""``otel-gym join``: model calls beside the rollouts that made them."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from otel_gym.cli.common import (
    CommandError,
    Directory,
    Run,
    early_leaving,
    open_store,
    progress,
    reader,
    say,
    stdin_chunks,
)
from otel_gym.cli.formats import counted, number
from otel_gym.cli.writing import not_written
from otel_gym.content import printable, safe_json
from otel_gym.ingest.dynamo.reading import begins_as_dynamo
from otel_gym.store.dynamo_files import NoTraceFileError, records_of_trace, trace_files
from otel_gym.store.reader import Store
from otel_gym.views.dynamo_join import DynamoTrace
from otel_gym.views.join import DynamoReport, Join, JoinedRow, JoinReport
from otel_gym.views.json_lines import replacing

STDOUT = STDIN = Path("-")
LISTED = 20
# What a stream of rows begins with that is packed, and how a file of it is called.
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
_CHUNK = 1 << 20


@reader
def join(
    rollouts: Annotated[
        Path,
        typer.Argument(
            metavar="ROLLOUTS.jsonl", help="Rollout rows, one JSON object a line, .gz and .zst too; - is stdin."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write, .jsonl or .parquet; - is stdout.  [default: stdout]",
            show_default=False,
        ),
    ] = None,
    include_payloads: Annotated[
        bool, typer.Option("--include-payloads", help="Calls with their requests and responses.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="JSON: rewards, gaps, unmatched rows, orphans, duplicates.",
            show_default=False,
        ),
    ] = None,
    dynamo: Annotated[
        list[Path] | None,
        typer.Option(
            "--dynamo",
            metavar="TRACE",
            help="Trace of NVIDIA Dynamo: a file, folder or glob; again for several. Adds `gym_dynamo`.",
            show_default=False,
        ),
    ] = None,
    dynamo_imported: Annotated[
        bool, typer.Option("--dynamo-imported", help="The same of the traces that were imported into the store.")
    ] = False,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Attach to each rollout row the model calls of its rollout, as `ng_model_call_capture`.

    A row is found by its `_ng_rollout_id`, else by its `_ng_task_index` and `_ng_rollout_index`, with its
    `_ng_attempt_index`; nothing else of it changes. What does not fit exactly is a named gap in the row, and listed on
    stderr: rows without model calls, rollouts without a row, rows that name the same rollout. Means leave out rewards
    that are null, and say how many.

    \b
    Example:
        otel-gym join rollouts.jsonl -o joined.jsonl --run latest
        otel-gym join rollouts.jsonl --dynamo /tmp/dynamo-agent-trace -o joined.jsonl
        otel-gym join rollouts.jsonl --report report.json | head -1
    """
    _check_files(rollouts, output, report)
    store = open_store(directory)
    trace = _trace(dynamo, store) if dynamo else None
    with _seekable(rollouts) as path:
        joining = Join(store, path, run, include_payloads=include_payloads, dynamo=trace, with_imported=dynamo_imported)
        with progress("joining", printing=output in (None, STDOUT)) as advancing:
            _write(joining.rows(advancing), output)
    if report is not None:
        _replace(report, lambda file: file.write_text(safe_json(asdict(joining.report)) + "\n", encoding="utf-8"))
    for line in said(joining.report):
        say(line)
    # Damage of the rows is said, and ends the command, as that of the store does.
    name = Path("stdin") if rollouts == STDIN else rollouts
    store.met(replace(damage, path=name) for damage in joining.damage)
    return store


def _trace(paths: list[Path], store: Store) -> DynamoTrace:
    """Its damage is said, and ends the command, as that of the store does."""
    trace = DynamoTrace()
    try:
        for file in trace_files(paths):
            if file not in paths and begins_as_dynamo(file) is False:
                continue  # of another kind, beside the traces in a folder
            for _, record in records_of_trace(file, lambda damage: store.met([damage])):
                trace.add(record)
    except NoTraceFileError as problem:
        raise CommandError(str(problem)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if not trace.requests and not trace.tools:
        raise CommandError(f"{', '.join(map(str, paths))}: no request and no tool of Dynamo's in it")
    return trace


def _check_files(rollouts: Path, output: Path | None, report: Path | None) -> None:
    """Rows that cannot be read are not written again, and a report holds none: neither takes the place of the rows."""
    for option, path in (("-o", output), ("--report", report)):
        if path is not None and path != STDOUT and _is_input(path, rollouts):
            raise CommandError(f"{option} {path} is the file that is joined, and would lose what it is; name another")
    if output is not None and report is not None and output != STDOUT and output.resolve() == report.resolve():
        raise CommandError(f"-o and --report both name {output}; give each a file of its own")


def _is_input(path: Path, rollouts: Path) -> bool:
    """Also by a link, and where the shell opened it as stdin."""
    try:
        given = os.fstat(sys.stdin.fileno()) if rollouts == STDIN else rollouts.stat()
        return stat.S_ISREG(given.st_mode) and os.path.samestat(given, path.stat())
    except (OSError, ValueError):  # one of them is not there
        return False


@contextmanager
def _seekable(path: Path) -> Iterator[Path]:
    """The rows are read twice: what can be read once only is copied first."""
    if path != STDIN and path.is_file():
        yield path
        return
    if path != STDIN and (path.is_dir() or not path.exists()):
        raise CommandError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; give a file of rollout rows")
    chunks = stdin_chunks() if path == STDIN else _chunks_of(path)
    first = next(chunks, b"")
    packed = next((suffix for magic, suffix in _PACKED.items() if first.startswith(magic)), "")
    with tempfile.NamedTemporaryFile(suffix=f".jsonl{packed}") as copy:
        copy.writelines(chain([first], chunks))
        copy.flush()
        yield Path(copy.name)


def _chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as rows:
        while chunk := rows.read(_CHUNK):
            yield chunk


def _write(rows: Iterator[JoinedRow], output: Path | None) -> None:
    if output is None or output == STDOUT:
        with early_leaving():
            for joined in rows:
                sys.stdout.buffer.write(joined.joined + b"\n")
        deque(rows, maxlen=0)  # a reader that left early changes nothing of the report
        return
    if output.suffix == ".parquet":
        from otel_gym.views.join_export import write_joined_parquet  # pyarrow is slow to load

        _written(output, lambda: write_joined_parquet(rows, output))
        return
    if output.suffix not in ("", ".jsonl", ".ndjson", ".json"):
        raise CommandError(f"{output}: no format is named {output.suffix}; name it .jsonl or .parquet")
    _replace(output, lambda file: _write_lines(rows, file))


def _write_lines(rows: Iterable[JoinedRow], path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(joined.joined + b"\n" for joined in rows)


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    def replaced() -> None:
        with replacing(path) as temporary:
            write(temporary)

    _written(path, replaced)


def _written(path: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise not_written(path, error) from None


def said(report: JoinReport) -> Iterator[str]:
    """What was done, and what did not fit."""
    yield f"{counted(report.rows, 'row')}, {report.joined:,} with {counted(report.calls, 'model call')}"
    yield f"rewards: mean {number(report.mean_reward)} of {report.scored:,}; {report.missing:,} without one"
    if report.kept:
        yield f"{counted(report.kept, 'row')} kept what was attached before, since the store has nothing"
    yield from _listed(report.unmatched, "row without a rollout in the store", "rows without a rollout in the store")
    yield from _listed(report.ambiguous, "row whose rollout several runs have", "rows whose rollout several runs have")
    yield from _listed(report.duplicates, "rollout that several rows name", "rollouts that several rows name")
    yield from _listed(report.orphans, "rollout without a row", "rollouts without a row")
    yield from _listed(
        report.references, "call of an agent without a sure match", "calls of agents without a sure match"
    )
    if report.dynamo is not None:
        yield from _said_of_dynamo(report.dynamo)


def _said_of_dynamo(report: DynamoReport) -> Iterator[str]:
    yield (
        f"Dynamo: {report.joined_requests:,} of {counted(report.requests, 'request')} and "
        f"{report.joined_tools:,} of {counted(report.tools, 'tool')} joined"
    )
    yield from (f"  {code}: {count:,}" for code, count in sorted(report.gaps.items()))
    yield from _listed(report.unmatched_requests, "request of Dynamo's without a call", "requests without a call")
    yield from _listed(report.unmatched_tools, "tool of Dynamo's without a call", "tools without a call")


def _listed(found: list[dict[str, Any]], one: str, many: str) -> Iterator[str]:
    if not found:
        return
    yield f"{len(found):,} {one if len(found) == 1 else many}:"
    yield from (f"  {_item(each)}" for each in found[:LISTED])
    if len(found) > LISTED:
        yield f"  and {len(found) - LISTED:,} more; --report FILE lists all"


def _item(each: dict[str, Any]) -> str:
    if "rollout_id" not in each:
        return ", ".join(f"{name} {printable(str(value))}" for name, value in each.items())
    rollout_id = each["rollout_id"]
    if "calls" in each:
        superseded = ", superseded" if each.get("superseded") else ""
        return f"{each['run_id'] or '-'}/{rollout_id}: {counted(each['calls'], 'model call')}{superseded}"
    if "code" in each:
        return f"{rollout_id} (line {each['line']}): {each['code']}: {each['detail'] or '-'}"
    lines = each.get("lines") or [each["line"]]
    runs = f": of {', '.join(run or '-' for run in each['runs'])}; say which with --run" if "runs" in each else ""
    return f"{rollout_id} (line {', '.join(map(str, lines))}){runs}"
