"""Mooncake exports of ours in the replay of a real Dynamo, in an environment of its own.

    python bench/mooncake_replay.py [CORPUS/dynamo] [--environment DIR]

Each trace of the folder, and a store of rollouts that never touched Dynamo (token ids alone), is exported: as requests
that arrive on their own, and agentic by both rules. The replay has to complete every request of every export. Checks:
our check of rows says of each ``p_*.jsonl`` what the replay says; rows of an import are those of ``*.agentic.jsonl``
and ``agentic_mooncake.from_python.jsonl``; a request trace that Dynamo lowers itself takes as long as our rows of it.
Without the packages from the registry nothing is judged and the exit code is 2.
Last line: ``N exports, N completed, N wrong; N checks, N agree``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooncake_rollouts import BLOCK_SIZE, write_rollouts
from newer_python import runs
from otel_gym.records.mooncake import check_rows
from otel_gym.store.dynamo_files import lines_of_trace

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "dynamo"
# Their own requirements bring what a replay never loads, and refuse Pythons on which it runs.
BARE = ("ai-dynamo==1.4.2", "ai-dynamo-runtime==1.4.2")
PACKAGES = ("aiohttp", "msgspec", "pydantic", "pyzmq", "transformers", "uvloop")
AGENTIC, PLAIN, OWN = "agentic_mooncake", "mooncake", "dynamo"
FORMS = ((PLAIN, ()), (AGENTIC, ("--agentic", "--rules", "2026-06")), (AGENTIC, ("--agentic", "--rules", "2026-08")))
NOTHING = "no request that can be replayed"
DONE, LEFT_OUT = 0, 1

# Runs in that environment: jobs on standard input, a JSON line for each on standard output. What
# `python -m dynamo.replay` does with its arguments, without loading everything for each file.
REPLAY = """
import json, sys
from dynamo.mocker import MockEngineArgs
from dynamo.replay import run_trace_replay
for line in sys.stdin:
    path, form, size = json.loads(line)
    engine = MockEngineArgs.from_json(json.dumps({"block_size": size or 16}))
    said = {"completed": 0, "duration_ms": None, "problem": None}
    try:
        report = run_trace_replay(
            [path], trace_format=form, trace_block_size=size, extra_engine_args=engine, num_workers=1,
            router_mode="round_robin", replay_mode="offline",
        )
        said.update(completed=report["completed_requests"], duration_ms=report["duration_ms"])
    except BaseException as problem:
        said["problem"] = f"{type(problem).__name__}: {problem}"
    print(json.dumps(said), flush=True)
"""


class MissingError(Exception):
    """What the replay needs and is not here; the text says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Export:
    """``requests``: its lines. ``problem``: our own command failed."""

    name: str
    path: Path
    form: str
    block_size: int
    requests: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    completed: int
    duration_ms: float | None
    problem: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="folder shaped like corpus/dynamo")
    parser.add_argument(
        "--environment", type=Path, default=ROOT / "build" / "mooncake-replay", help="made if it is missing"
    )
    given = parser.parse_args(arguments)
    if not given.corpus.is_dir():
        parser.error(f"there is no folder {given.corpus}")
    try:
        python = environment(given.environment)
    except MissingError as missing:
        print(f"not judged: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mooncake-replay-") as folder:
        return judge(python, given.corpus, Path(folder))


def environment(folder: Path) -> Path:
    """The Python of an environment with Dynamo's replay."""
    python = folder / "bin" / "python"
    if python.is_file() and runs(python, "import dynamo.replay, dynamo.mocker"):
        return python
    print(f"making {folder} with {' '.join((*BARE, *PACKAGES))}", file=sys.stderr)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*install, "--no-deps", *BARE],
        [*install, *PACKAGES],
        [str(python), "-c", "import dynamo.replay, dynamo.mocker"],
    ):
        if subprocess.run(command, check=False).returncode:
            raise MissingError(f"{' '.join(command)} failed: see above")
    return python


def judge(python: Path, corpus: Path, folder: Path) -> int:
    exports = list(all_exports(corpus, folder))
    verdicts = replayed(python, [(export.path, export.form, export.block_size) for export in exports])
    marks = [mark_of(export, verdict) for export, verdict in zip(exports, verdicts, strict=True)]
    for export, mark in zip(exports, marks, strict=True):
        print(f"{export.name}: {export.requests} requests, {mark or 'completed'}")
    checks = {
        **checked_rows(python, corpus),
        **compared_rows(corpus, exports),
        **compared_durations(python, corpus, folder),
    }
    for name, problem in checks.items():
        print(f"{name}: {problem or 'agrees'}")
    completed, agree = marks.count(None), list(checks.values()).count(None)
    wrong = len(marks) - completed
    print(f"{len(marks)} exports, {completed} completed, {wrong} wrong; {len(checks)} checks, {agree} agree")
    return 0 if marks and checks and completed == len(marks) and agree == len(checks) else 1


def mark_of(export: Export, verdict: Verdict) -> str | None:
    """What is wrong with it; None: nothing is."""
    if export.problem or verdict.problem:
        return f"wrong: {export.problem or verdict.problem}"
    if verdict.completed != export.requests:
        return f"wrong: {verdict.completed} completed"
    return None


def replayed(python: Path, jobs: Sequence[tuple[Path, str, int | None]]) -> list[Verdict]:
    lines = "".join(json.dumps([str(path), form, size]) + "\n" for path, form, size in jobs)
    done = subprocess.run([python, "-c", REPLAY], input=lines, capture_output=True, text=True, check=False)
    answers = [Verdict(**json.loads(line)) for line in done.stdout.splitlines()]
    if len(answers) != len(jobs):
        raise SystemExit(f"the replay ended at job {len(answers) + 1} of {len(jobs)}\n{done.stderr}")
    return answers


def all_exports(corpus: Path, folder: Path) -> Iterator[Export]:
    for name, paths in traces(corpus).items():
        store = folder / "stores" / name
        imported = otel_gym("import", "dynamo", *map(str, paths), "--dir", str(store))
        if imported.returncode in (DONE, LEFT_OUT):
            yield from exports_of(name, store, folder)
        else:
            print(f"{name}: not imported: {imported.stderr.strip()}", file=sys.stderr)
    store = folder / "stores" / "token-ids"
    write_rollouts(store)
    yield from exports_of("rollouts with token ids", store, folder, "--trace-block-size", str(BLOCK_SIZE))


def traces(corpus: Path) -> dict[str, list[Path]]:
    """The files of each trace: a folder of real ones, the segments of one, else one file."""
    found: dict[str, list[Path]] = {}
    for path in sorted((corpus / "real").glob("*/trace*.jsonl*")):
        found.setdefault(path.parent.name, []).append(path)
    for path in sorted((corpus / "synthetic").glob("*.jsonl*")):
        stem = path.name.partition(".")[0] + ("_gz" if path.suffix == ".gz" else "")
        found.setdefault(stem, []).append(path)
    return found


def exports_of(name: str, store: Path, folder: Path, *options: str) -> Iterator[Export]:
    """By each form; none where the trace has nothing to replay."""
    for number, (form, form_options) in enumerate(FORMS):
        path = folder / f"{store.name}.{number}.jsonl"
        done = otel_gym(
            "export", "mooncake", *form_options, *options, "--lenient", "-o", str(path), "--dir", str(store)
        )
        if NOTHING in done.stderr:
            print(f"{name}: nothing to replay", file=sys.stderr)
            return
        is_done = done.returncode in (DONE, LEFT_OUT) and path.is_file()
        yield Export(
            " ".join((name, form, *form_options[2:])),
            path,
            form,
            int(done.stderr.rsplit("--trace-block-size ", 1)[-1]) if is_done else BLOCK_SIZE,
            len(path.read_bytes().splitlines()) if is_done else 0,
            None if is_done else done.stderr.strip(),
        )


def otel_gym(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_gym.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def checked_rows(python: Path, corpus: Path) -> dict[str, str | None]:
    paths = sorted((corpus / "mooncake_expected").glob("p_*.jsonl"))
    verdicts = replayed(python, [(path, AGENTIC, BLOCK_SIZE) for path in paths])
    return {path.name: disagreement(path, verdict) for path, verdict in zip(paths, verdicts, strict=True)}


def disagreement(path: Path, verdict: Verdict) -> str | None:
    problems = check_rows(path.read_bytes().split(b"\n"), BLOCK_SIZE, agentic=True)
    refused = [str(problem) for problem in problems if problem.is_refused]
    if bool(refused) == (verdict.problem is not None):
        return None
    return f"the replay says {verdict.problem or 'ok'}, our check {refused or 'ok'}"


def compared_rows(corpus: Path, exports: Iterable[Export]) -> dict[str, str | None]:
    """Rows that others lowered, of which only the order of names in a list is free."""
    by_name = {export.name: export for export in exports}
    expected = {path.name.partition(".")[0]: path for path in (corpus / "mooncake_expected").glob("*.agentic.jsonl")}
    expected |= {path.parent.name: path for path in (corpus / "real").glob("*/agentic_mooncake.*.jsonl")}
    found: dict[str, str | None] = {}
    for name, path in sorted(expected.items()):
        export = by_name.get(f"{name} {AGENTIC} 2026-06")
        if export is not None:
            is_same = rows_of(export.path) == rows_of(path)
            found[f"rows of {name}"] = None if is_same else f"other rows than {path}"
    return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    for row in rows:
        row.update({name: sorted(row[name]) for name in ("wait_for", "branches") if name in row})
    return rows


def compared_durations(python: Path, corpus: Path, folder: Path) -> dict[str, str | None]:
    """Of each request trace, by itself and by our rows; where only some requests have a context, of each kind apart."""
    found: dict[str, str | None] = {}
    for name, paths in traces(corpus).items():
        for has_context, lines in request_lines(paths).items():
            part = f"{name} {'with' if has_context else 'without'} context"
            trace, store = folder / f"{part}.trace.jsonl", folder / "stores" / part
            trace.write_bytes(b"".join(line + b"\n" for line in lines))
            otel_gym("import", "dynamo", str(trace), "--dir", str(store))
            form, options = FORMS[2] if has_context else FORMS[0]
            ours = next(
                (one for one in exports_of(part, store, folder) if one.name.endswith(options[2:] or form)), None
            )
            if ours is None:
                continue
            own, rows = replayed(python, [(trace, OWN, None), (ours.path, form, ours.block_size)])
            same = own == rows and own.problem is None
            found[f"duration of {part}"] = None if same else f"Dynamo's own lowering {own}, our rows {rows}"
    return found


def request_lines(paths: Iterable[Path]) -> dict[bool, list[bytes]]:
    """The records of request traces, by whether they have an agent context, which Dynamo's lowering takes apart."""
    found: dict[bool, list[bytes]] = {}
    for path in paths:
        for _, line in lines_of_trace(path, lambda damage: None):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            record = record.get("event", record)
            if record.get("schema") == "dynamo.request.trace.v1" and record.get("event_type") != "request_payload":
                found.setdefault("agent_context" in record, []).append(line)
    return found


if __name__ == "__main__":
    sys.exit(main())
