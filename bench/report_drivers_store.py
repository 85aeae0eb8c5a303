"""Drivers of fault reports on the store: damaged lines, killed processes, runs in one folder, times.

Reports show damage on symbolic records (``{"rollout_id": …, "call_index": …}``). The same damage is carried over to
lines of ours, byte by byte: a record stands as a text in a span, so that a piece of a record becomes the piece of
a line that ends, or begins, at the same byte of it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.store.follow import Follower
from otel_gym.store.layout import SPANS
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.reader import Damage, Store, open_store
from otel_gym.store.span import StoredSpan
from otel_gym.store.times import NANOSECONDS, unix_nanoseconds
from otel_gym.store.writer import StoreWriter
from otel_gym.views.model_calls import fields_of_attributes
from otel_gym.views.span_tree import spans_before_their_parent
from otel_gym.views.summary import summarize_rollout
from report_drivers_foreign import told_of_calls
from report_problems import NotDrivenError, Object, unequal, unequal_of_known

FOLDER = "0-0"
_START = re.compile(rb'(?=\{"(?:run_id|rollout_id|call_index)":)')
_THEN_APPEND = "_then_append_"
KIND_NAMES = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}


# ── symbolic records on lines of ours ──────────────────────────────────────────────────────────────────────────────


def line_around(number: int) -> tuple[bytes, bytes]:
    """What stands before and after the text of a record on a line of ours."""
    span = {
        "traceId": f"{1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "record",
        "startTimeUnixNano": str(1000 + number),
        "endTimeUnixNano": str(2000 + number),
        "attributes": key_values({"gym.rollout.id": FOLDER, "record": "@"}),
    }
    head, _, tail = encode_json({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).partition(b"@")
    return head, tail


def carried_over(content: bytes) -> bytes:
    """A damaged file of symbolic records as the same file of our lines."""
    number = 0
    lines = []
    for line in content.split(b"\n"):
        carried = b""
        for piece, begins, ends in _pieces(line):
            if not (piece.strip(b"\0 \r")):
                carried += piece
                continue
            head, tail = line_around(number)
            number += 1
            text = piece.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            carried += (head if begins else b"") + text + (tail if ends else b"")
        lines.append(carried)
    return b"\n".join(lines)


def _pieces(line: bytes) -> Iterator[tuple[bytes, bool, bool]]:
    """The records and parts of records of a line: with their start, with their end."""
    for piece in filter(None, re.split(rb"(\0+)", line)):
        for part in filter(None, _START.split(piece)):
            if not _START.match(part):
                yield part, False, part.rstrip().endswith(b"}")
                continue
            end = _end_of_record(part)
            yield part[:end], True, end is not None
            if end is not None and part[end:].strip():
                yield part[end:], False, part.rstrip().endswith(b"}")


def _end_of_record(part: bytes) -> int | None:
    text = part.decode("utf-8", "surrogateescape")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return len(text[:end].encode("utf-8", "surrogateescape"))


def record_line(record: Object, number: int = 900) -> bytes:
    head, tail = line_around(number)
    return head + json.dumps(json.dumps(record)).encode()[1:-1] + tail


def record_of(span: StoredSpan) -> Object:
    record: Object = json.loads(span.attributes["record"])
    return record


def drive_damaged_lines(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``*.jsonl`` of symbolic records: torn, glued, spliced, with separators in texts, or still being written."""
    files = {file.stem: file.read_bytes() for file in sorted(folder.glob("*.jsonl"))}
    by_stem = all(isinstance(wanted, dict) for wanted in expected.values())
    cases = expected if by_stem else {next(iter(files)): expected}
    if len(files) != 1 and not by_stem:
        raise NotDrivenError("several files, and one expectation")
    for name, wanted in cases.items():
        stem, _, appended = name.partition(_THEN_APPEND)
        with tempfile.TemporaryDirectory(prefix="otel_gym_report_") as directory:
            found = _read_damaged(Path(directory), files[stem], int(appended) if appended else None, wanted)
        yield from (f"{name}: {problem}" for problem in unequal_of_known(found, wanted))


def _read_damaged(directory: Path, content: bytes, appended: int | None, wanted: Object) -> Object:
    file = directory / SPANS / f"rollout_id={FOLDER}" / "svc.host.1.0123abcd.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(carried_over(content))
    follow_damage: list[Damage] = []
    followed = [record_of(each.span) for each in Follower(directory, follow_damage.append).look()]
    if appended is not None:
        _append(directory, FOLDER, record_line({"rollout_id": FOLDER, "call_index": appended}))
    store = Store(directory)
    records = [record_of(span) for span in store.spans(FOLDER)]
    if "warnings_in_follow_mode" in wanted and followed != records:
        records = [{"call_index": f"{len(followed)} followed, {len(records)} read"}]
    lost = {(damage.path, damage.line) for damage in store.damage if damage.lost}
    indices = [record["call_index"] for record in records]
    return {
        "recovered": [[record.get("rollout_id"), record["call_index"]] for record in records],
        "records": len(records) if isinstance(wanted.get("records"), int) else indices,
        "damaged_lines": len(lost),
        "torn_lines": len(lost),
        "exit_code_nonzero": CliRunner().invoke(app, ["ls", "--dir", str(directory)]).exit_code != 0,
        "warnings_in_follow_mode": len(follow_damage),
        **{f"text{number}": record.get("text") for number, record in enumerate(records)},
    }


def _append(directory: Path, rollout_id: str, line: bytes) -> None:
    """By a writer of its own, as a process that starts anew does."""
    StoreWriter(directory).append(rollout_id, line + b"\n")


def drive_runs(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``*.jsonl`` of whole records that name a run: each run and attempt is a group of its own."""
    (file,) = folder.glob("*.jsonl")
    with tempfile.TemporaryDirectory(prefix="otel_gym_report_") as directory:
        for number, text in enumerate(file.read_bytes().split(b"\n")):
            if text.strip():
                _append(Path(directory), *_call_of_run(json.loads(text), number))
        rows = [summarize_rollout(rollout) for rollout in Store(directory).rollouts()]
    groups = [[row.run_id, row.rollout_id, row.tokens_in] for row in rows]
    wanted = {**expected, "groups": sorted(expected.get("groups", []))}
    yield from unequal_of_known({"groups": sorted(groups)}, wanted)


def _call_of_run(record: Object, number: int) -> tuple[str, bytes]:
    attributes = {
        "gym.rollout.id": record["rollout_id"],
        "gym.run.id": record["run_id"],
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": record["tokens_in"],
    }
    span = {
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "chat toy",
        "startTimeUnixNano": str(1000 + number),
        "endTimeUnixNano": str(2000 + number),
        "attributes": key_values(attributes),
    }
    return record["rollout_id"], encode_json({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


# ── spans and times ────────────────────────────────────────────────────────────────────────────────────────────────


def drive_otlp(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``otlp.json``: one document of OTLP/JSON in a form that others write."""
    document = json.loads((folder / "otlp.json").read_bytes())
    with tempfile.TemporaryDirectory(prefix="otel_gym_report_") as directory:
        file = Path(directory) / "otlp.json"
        file.write_text(json.dumps(document))
        store = open_store(file)
        spans = [span for rollout in store.rollouts() for span in rollout.spans]
    yield from (str(damage) for damage in store.damage)
    first = spans[0]
    fields = fields_of_attributes(first)
    found = {
        "spans": len(spans),
        "start_ns": first.start_ns,
        "end_ns": first.end_ns,
        "kind": KIND_NAMES.get(first.kind),
    }
    yield from unequal_of_known({**fields, **found}, expected)


def drive_times(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``times.json``: times in ``unix_s``, ``unix_ms`` … as text or number."""
    entries = json.loads((folder / "times.json").read_bytes(), parse_float=Decimal)
    times = []
    for entry in entries:
        ((name, value),) = entry.items()
        unit = name.removeprefix("unix_")
        if unit not in NANOSECONDS:
            raise NotDrivenError(f"times in {name}")
        times.append(unix_nanoseconds(value, unit))
    yield from unequal_of_known({"ns": times}, expected)


def drive_spans(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``spans.jsonl``: flat spans; their times, skew between clocks, and what they tell of model calls."""
    lines = (folder / "spans.jsonl").read_bytes().split(b"\n")
    spans = [_flat_span(json.loads(line), number) for number, line in enumerate(lines) if line.strip()]
    found: Object = {"skew_flagged": [span.span_id for span in spans_before_their_parent(spans)]}
    for span in spans:
        found[f"{span.span_id}.start_ns"] = span.start_ns
        found[f"{span.span_id}.duration_ms"] = ((span.end_ns or 0) - span.start_ns) / 10**6 if span.end_ns else None
    yield from unequal_of_known({**told_of_calls(spans, expected), **found}, expected)


def _flat_span(flat: Object, number: int) -> StoredSpan:
    return StoredSpan(
        trace_id=flat.get("trace_id", "t"),
        span_id=flat["span_id"],
        parent_span_id=flat.get("parent_span_id"),
        name=flat.get("name", ""),
        kind=next((kind for kind, name in KIND_NAMES.items() if name == flat.get("kind")), 1),
        start_ns=flat.get("start_ns", number),
        end_ns=flat.get("end_ns"),
        attributes=flat.get("attributes", {}),
        resource=flat.get("resource", {}),
    )


# ── ways to die ────────────────────────────────────────────────────────────────────────────────────────────────────

_DYING_PROGRAM = """
import os, signal, sys, time
from opentelemetry import trace
import otel_gym
way, directory = sys.argv[1:]
handles = {"handle_sigterm": True} if "handle_sigterm" in way else {}
otel_gym.configure(directory=directory, run_id="run", **handles)
rollout = otel_gym.rollout(0, 0)
rollout.__enter__()
tracer = trace.get_tracer("program")
tool = {"gen_ai.operation.name": "execute_tool"}
tracer.start_span("done", attributes=tool).end()
left_open = tracer.start_span("open", attributes=tool)
time.sleep(0.4)
if way == "os._exit":
    os._exit(0)
if way.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, way.split("_")[0]))
    time.sleep(5)
"""


def drive_kill_matrix(folder: Path, expected: Object, bench: Any) -> Iterator[str]:
    """``kill_matrix.json``: a process dies in each of the ways; what is known of an ended span and an open one."""
    ways = [way for way in expected if way != "note"]
    if any("handle_sigterm" in way for way in ways) and "handle_sigterm" not in _parameters(otel_gym.configure):
        raise NotDrivenError("configure does not know handle_sigterm")
    found = {}
    for way in ways:
        with tempfile.TemporaryDirectory(prefix="otel_gym_report_") as directory:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
            command = [sys.executable, "-c", _DYING_PROGRAM, way, directory]
            subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
            spans = [span for rollout in Store(directory).rollouts() for span in rollout.spans]
        found[way] = [_state(span) for span in spans if span.name in ("done", "open")]
    yield from unequal(found, {way: expected[way] for way in ways})


def _parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def _state(span: StoredSpan) -> str:
    if span.end_ns is None:
        return f"{span.name}(unfinished)"
    said = (span.attributes.get("error.type"), span.status_message)
    return f"{span.name}(aborted)" if "aborted" in said else span.name


# ── which driver ───────────────────────────────────────────────────────────────────────────────────────────────────

Driver = Callable[[Path, Object, Any], Iterator[str]]


def _first_lines(folder: Path) -> list[Any]:
    lines = []
    for file in folder.glob("*.jsonl"):
        try:
            lines.append(json.loads(file.read_bytes().split(b"\n")[0]))
        except ValueError:
            lines += [{"call_index": None}] if _START.match(file.read_bytes()) else [None]
    return lines


def _holds_runs(folder: Path) -> bool:
    return bool(lines := _first_lines(folder)) and all(isinstance(line, dict) and "run_id" in line for line in lines)


def _holds_records(folder: Path) -> bool:
    lines = _first_lines(folder)
    return bool(lines) and all(isinstance(line, dict) and "call_index" in line for line in lines)


def _has(name: str) -> Callable[[Path], bool]:
    return lambda folder: (folder / name).is_file()


STORE_DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = (
    (_has("kill_matrix.json"), drive_kill_matrix),
    (_has("otlp.json"), drive_otlp),
    (_has("times.json"), drive_times),
    (_has("spans.jsonl"), drive_spans),
    (_holds_runs, drive_runs),
    (_holds_records, drive_damaged_lines),
)
