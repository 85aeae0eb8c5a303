"""Imports the traces that Dynamo wrote, and those made by hand with every kind of damage.

    python bench/dynamo_parity.py DIR

DIR is shaped like corpus/dynamo: ``real/`` and ``synthetic/`` hold traces (``*.jsonl``, ``*.jsonl.gz``), README.md may
say how many good records each has. What it does not say is counted here: the lines that Python's JSON reader takes, of
what gzip(1) unpacks. Every good record must be read, every other line, torn member and byte be told of, and nothing
else; each request that has ended must be a call of the imported spans, and importing again must add nothing.

``CHECKS`` holds what is looked at of each file. Then each of ``perfetto_expected/`` of which the input is there is
compared with our trace of it, see
bench/dynamo_slices.py. Last line: ``N files, N right, N wrong``; exit code 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import dynamo_slices
from otel_gym.ingest.dynamo import read_dynamo
from otel_gym.ingest.dynamo.reading import read_trace
from otel_gym.ingest.imported import SourceError
from otel_gym.ingest.spans import write_rollout
from otel_gym.records.dynamo import EVENT_TYPES, SCHEMAS

# What the README says of a file beside its number, and what must be told of it then.
DAMAGE = {
    "torn member": "is cut",
    "no gzip": "are no gzip",
    "CRC is wrong": "its checksum is wrong",
    "torn line": "the last line is cut",
    "distinct": "written twice",
}


@dataclass
class File:
    """``said``: what the README says of it, None if nothing."""

    path: Path
    folder: Path
    said: str | None = None

    @property
    def name(self) -> str:
        return str(self.path.relative_to(self.folder))

    @cached_property
    def unpacked(self) -> tuple[bytes, bool]:
        """Of a packed file what gzip(1) gives, and whether it had nothing to say."""
        content = self.path.read_bytes()
        if not content.startswith(b"\x1f\x8b"):
            return content, True
        done = subprocess.run(["gzip", "-dc"], input=content, capture_output=True)
        return done.stdout, done.returncode == 0

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The good records."""
        return [event for event in map(_event, self.unpacked[0].split(b"\n")) if event is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        record = json.loads(line, parse_constant=refuse)
    except ValueError:
        return None
    event = record.get("event", record) if isinstance(record, dict) else None
    if not isinstance(event, dict):
        return None
    is_trace = event.get("schema") in SCHEMAS and event.get("event_type") in EVENT_TYPES
    return event if is_trace or (event.get("schema_version") == 1 and "request_id" in event) else None


# --- checks: each yields what is wrong with a file


def records_problems(file: File) -> Iterator[str]:
    """As many records are read as the README says, or as there are."""
    read = read_trace([file.path], {file.path}).records
    wanted = len(file.events)
    if read != wanted and (file.unpacked[1] or read < wanted):  # gzip(1) ends at the first fault
        yield f"{read} records read, {wanted} are there"
    number = re.match(r"\d+", file.said or "")
    if number is None:
        return
    said = int(number[0])
    if read != said and not ("CRC is wrong" in (file.said or "") and read > said):  # the lines of that member are kept
        yield f"{read} records read, the README says {said}"


def distinct_problems(file: File) -> Iterator[str]:
    distinct = re.search(r"(\d+) distinct", file.said or "")
    trace = read_trace([file.path], {file.path})
    found = len(trace.rows) + len(trace.payloads)
    if distinct is not None and found != int(distinct[1]):
        yield f"{found} records are distinct, the README says {distinct[1]}"


def damage_problems(file: File) -> Iterator[str]:
    """Each bad line is told of, each kind of damage that the README names, and nothing where all is well."""
    damage = read_trace([file.path], {file.path}).damage
    for kind, text in DAMAGE.items():
        if kind in (file.said or "") and sum(text in one for one in damage) != 1:
            yield f"{kind} is not told once: {damage}"
    lines = [line for line in file.unpacked[0].split(b"\n") if line.strip()]
    copies = len(file.events) - len({json.dumps(event, sort_keys=True) for event in file.events})
    is_well = bool(lines) and file.unpacked[1] and len(lines) == len(file.events) and not copies
    if is_well == bool(damage):
        yield f"damage told: {damage}"
    told = sum(re.search(r":\d+: (?!.*written twice)", one) is not None for one in damage)
    if file.events and file.unpacked[1] and told != len(lines) - len(file.events):
        yield f"{told} bad lines are told of, {len(lines) - len(file.events)} are there"


def spans_problems(file: File) -> Iterator[str]:
    """Each request that has ended is a call, with its tokens; importing again adds nothing."""
    try:
        rollouts = read_dynamo(file.path)
    except SourceError as problem:
        if file.events:
            yield f"not imported: {problem}"
        return
    if not file.events:
        yield "imported, though no record is in it"
    calls = [span for rollout in rollouts for span in rollout.spans if span.name.startswith("chat")]
    found = sorted(
        (str(span.attributes.get("gym.dynamo.request_id")), span.attributes.get("gen_ai.usage.output_tokens"))
        for span in calls
        if span.attributes.get("gym.dynamo.schema")
    )
    ended = {
        json.dumps(event, sort_keys=True): (
            str(event["request"].get("request_id")),
            event["request"].get("output_tokens"),
        )
        for event in file.events
        if event.get("event_type") == "request_end" and isinstance(event.get("request"), dict)
    }
    missing = [request for request in ended.values() if request not in found]
    if missing and file.unpacked[1]:
        yield f"requests that are no call: {missing[:3]}"
    with tempfile.TemporaryDirectory() as store:
        for rollout in rollouts:
            write_rollout(Path(store), rollout)
        again = [write_rollout(Path(store), rollout) for rollout in read_dynamo(file.path)]
    if any(written.new or written.changed for written in again):
        yield f"importing again adds {again}"


Check = Callable[[File], Iterator[str]]
CHECKS: tuple[Check, ...] = (records_problems, distinct_problems, damage_problems, spans_problems)


# --- the folder


@dataclass
class Readme:
    """What README.md says: of single files, by the start of their names; of folders."""

    text: str = ""
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)

    def of(self, path: Path) -> str | None:
        names = [name for name in self.files if path.name.startswith((f"{name}_", f"{name}."))]
        return self.files[max(names, key=len)] if names else None


def readme_of(folder: Path) -> Readme:
    path = folder / "README.md"
    readme = Readme(path.read_text() if path.is_file() else "")
    table = re.search(r"good records per file: ([^|]*)", readme.text)
    for part in re.split(r", (?=\d\d)", table[1] if table else ""):
        name, _, said = part.partition(" ")
        readme.files[name] = said.strip()
    for found in re.finditer(r"^\| real/(\S+) \|([^|]*)\|", readme.text, re.MULTILINE):
        number = re.search(r"(\d+) records", found[2])
        if number:
            readme.folders[found[1]] = int(number[1])
    return readme


def folder_problems(folder: Path, number: int) -> Iterator[str]:
    """All segments of a folder are one trace."""
    files = sorted(folder.glob("trace.*.jsonl.gz"))
    read = read_trace(files, set(files)).records
    if read != number:
        yield f"{read} records in {len(files)} segments, the README says {number}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder
    readme = readme_of(folder)
    found = [path for part in ("real", "synthetic") for path in sorted((folder / part).rglob("*.jsonl*"))]
    files = [File(path, folder, readme.of(path) if path.parent.name == "synthetic" else None) for path in found]
    verdicts = [
        (file.name, f"{len(file.events)} records", [p for check in CHECKS for p in check(file)]) for file in files
    ]
    for name, number in readme.folders.items():
        if (folder / "real" / name).is_dir():
            problems = list(folder_problems(folder / "real" / name, number))
            verdicts.append((f"real/{name}", f"{number} records in all segments", problems))
    verdicts += dynamo_slices.verdicts(folder)
    for name, number, problems in verdicts:
        print(f"{'wrong' if problems else 'right'}  {name}: {'; '.join(problems) or number}")
    wrong = sum(bool(problems) for *_, problems in verdicts)
    print(f"{len(verdicts)} files, {len(verdicts) - wrong} right, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
