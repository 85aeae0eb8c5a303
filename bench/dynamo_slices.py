"""Do our traces for Perfetto show what Dynamo's own converter shows?

    python bench/dynamo_slices.py DIR

DIR is shaped like corpus/dynamo: for each ``perfetto_expected/{seed,head}/INPUT.FLAGS.perfetto.json`` of which the
input is there, that becomes Chrome JSON with the same flags, through a store and without one, and its requests, stages,
tools and markers are compared: times, ``finish.*`` arguments, ids, classes of tools; and the engine loads it, where it
runs. Models are not compared: the expectations were made of files in which they were called otherwise. Nor is what ours
does better, see docs/dynamo.md: requests without a session, and those of which there is a payload alone, are shown too;
a tool without known times has no length. Last line: ``N files, N right, N wrong``; exit code 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from otel_gym.cli.main import app
from trace_engine import Engine, missing

FLAGS = {
    "default": ["--no-markers"],
    "markers": ["--include-markers"],
    "nostages": ["--no-stages", "--no-markers"],
    "septracks": ["--separate-stage-tracks", "--include-markers"],
}
TOLERANCE_US = 1.0
_ENDING = ".perfetto.json"
_PREFIXES = {
    "X": {"LLM request: ": "request", "Tool: ": "tool", "Tool error: ": "tool"},
    "i": {"Tool start: ": "open tool"},
}
_NO_SESSION = "rollout dynamo-requests"


class Shown(NamedTuple):
    """A slice or a marker, in µs. ``told`` is what must be the same; ``of`` the request or tool call."""

    kind: str
    told: str
    start: float
    end: float
    of: str | None


def inputs_of(folder: Path, name: str) -> list[Path]:
    """What an expectation's input stands for; nothing if it is not there."""
    if name.startswith("real_"):
        found = sorted((folder / "real" / name.removeprefix("real_")).glob("trace*.jsonl*"))
        return found
    synthetic = folder / "synthetic"
    if name.endswith("_glob"):
        return sorted(synthetic.glob(name.removesuffix("_glob") + ".*.jsonl*"))
    names = (f"{name}.jsonl", f"{name}.jsonl.gz", f"{name.removesuffix('_gz')}.jsonl.gz")
    paths = [synthetic / each for each in (names[2:] if name.endswith("_gz") else names)]
    return [path for path in paths if path.exists()][:1]


def expected_of(events: list[dict[str, Any]]) -> tuple[list[Shown], set[str | None]]:
    """What must be shown, and the tools of which the times are unknown."""
    found, unknown = [], set()
    for event in events:
        args = event.get("args", {})
        if event["ph"] not in ("X", "i") or args.get("inferred"):
            continue
        if args.get("synthetic_duration"):
            unknown.add(args.get("tool_call_id"))
            continue
        kind, told = event["name"], ""
        for prefix, named in _PREFIXES[event["ph"]].items():
            if kind.startswith(prefix):
                kind, told = named, "" if named == "request" else kind.removeprefix(prefix)
        of = args.get("request_id") if kind == "request" else args.get("tool_call_id")
        end = event["ts"] + event.get("dur", 0)
        found.append(Shown(kind, told + _finish(args), event["ts"], end, of))
    return found, unknown


def ours_of(events: list[dict[str, Any]], unknown: set[str | None], has_unnamed: bool) -> list[Shown]:
    """Ours alike, without what the other converter cannot show."""
    unnamed = {
        event["pid"]
        for event in events
        if event["name"] == "process_name" and event["args"]["name"].startswith(_NO_SESSION)
    }
    found = []
    for event in events:
        args = event.get("args", {})
        if event["ph"] not in ("X", "i") or event["cat"] not in ("model calls", "tools", "model call stage"):
            continue
        if "gym.dynamo.endpoint" in args and "gym.dynamo.request_received_ms" not in args:
            continue  # of which the other has no record: its payload alone
        is_untimed = event["ph"] == "i" and args.get("time_known") is False
        if is_untimed and args.get("gen_ai.tool.call.id") in unknown:
            continue
        kind, told, of = event["name"], "", None
        if event["cat"] == "model calls":
            kind, of = "request", args.get("gym.dynamo.request_id")
        elif event["cat"] == "tools":
            kind = "open tool" if event["ph"] == "i" else "tool"
            told, of = event["name"].split(maxsplit=2 if event["ph"] == "i" else 1)[-1], args.get("gen_ai.tool.call.id")
        shown = Shown(kind, told + _finish(args), event["ts"], event["ts"] + event.get("dur", 0), of)
        if event["pid"] not in unnamed or has_unnamed:
            found.append(shown)
    return found


def _finish(args: dict[str, Any]) -> str:
    said = {name: value for name, value in args.items() if name.startswith("finish.")}
    return " " + json.dumps(said, sort_keys=True) if said else ""


def differences(expected: list[dict[str, Any]], ours: list[dict[str, Any]], has_unnamed: bool) -> list[str]:
    theirs, unknown = expected_of(expected)
    own = ours_of(ours, unknown, has_unnamed)
    left = _rebased(own)
    problems = []
    for shown in sorted(set(_rebased(theirs)), key=lambda one: (one.start, one.kind)):
        same = next((one for one in left if _is_same(one, shown)), None)
        if same is not None:
            left = [one for one in left if one != same]
        elif not _is_nothing(shown):
            problems.append(f"lacks {shown}")
    problems += [f"has {one} more" for one in left if not _is_nothing(one) and one.of not in (unknown - {None})]
    told = {event.get("args", {}).get("gen_ai.tool.call.id") for event in ours if event.get("cat") == "tools"}
    return problems + [f"lacks the tool call {call}" for call in unknown - told]


def _rebased(shown: list[Shown]) -> list[Shown]:
    base = min((one.start for one in shown if one.kind in ("request", "tool")), default=0)
    return [one._replace(start=one.start - base, end=one.end - base) for one in shown]


def _is_same(one: Shown, other: Shown) -> bool:
    if (one.kind, one.told, one.of if one.kind in ("request", "tool", "open tool") else None) != (
        other.kind,
        other.told,
        other.of if other.kind in ("request", "tool", "open tool") else None,
    ):
        return False
    # The other has a length of 1 µs at the least, and rounds each time.
    return abs(one.start - other.start) <= TOLERANCE_US and abs(one.end - other.end) <= TOLERANCE_US + 0.5


def _is_nothing(shown: Shown) -> bool:
    """A stage that has a length only because it must have one."""
    return shown.kind in ("prefill wait", "prefill", "decode") and shown.end - shown.start <= TOLERANCE_US


class Comparison:
    """Makes our traces of a folder's inputs. Each input is imported once."""

    def __init__(self, folder: Path, scratch: Path, engine: Engine | None) -> None:
        self._folder, self._scratch, self._engine = folder, scratch, engine
        self._imported: set[str] = set()

    def problems_of(self, expected: Path) -> list[str] | None:
        """None where the input is not there."""
        name, _, flags = expected.name.removesuffix(_ENDING).rpartition(".")
        paths = inputs_of(self._folder, name)
        if not paths or flags not in FLAGS:
            return None
        theirs = json.loads(expected.read_bytes())["traceEvents"]
        problems = []
        for way, output in (("stored", self._stored(name, paths, flags)), ("streamed", self._streamed(paths, flags))):
            if output is None:  # of an empty file there is nothing to import
                continue
            content = output.read_bytes()
            found = differences(theirs, json.loads(content), has_unnamed=expected.parent.name == "head")
            if self._engine is not None:
                self._engine.load(content)
                found += self._engine.problems()
            problems += [f"{expected.parent.name}/{expected.name}, {way}: {problem}" for problem in found]
        return problems

    def _streamed(self, paths: list[Path], flags: str) -> Path:
        output = self._scratch / "streamed.json"
        named = [part for path in paths for part in ("--dynamo", str(path))]
        _run(["export", "perfetto", *named, "-o", str(output), *FLAGS[flags]])
        return output

    def _stored(self, name: str, paths: list[Path], flags: str) -> Path | None:
        store, output = self._scratch / name, self._scratch / "stored.json"
        if name not in self._imported:
            _run(["import", "dynamo", *map(str, paths), "--dir", str(store)])
            self._imported.add(name)
        if not any(store.rglob("*.jsonl")):
            return None
        _run(["export", "perfetto", "--dir", str(store), "-o", str(output), *FLAGS[flags]])
        return output


def _run(command: list[str]) -> None:
    result = CliRunner().invoke(app, command)
    if result.exit_code not in (0, 1) and "is empty" not in result.output:
        raise RuntimeError(f"otel-gym {' '.join(command)}: {result.output} {result.exception!r}")


def expectations(folder: Path) -> Iterator[Path]:
    for converter in ("seed", "head"):
        yield from sorted((folder / "perfetto_expected" / converter).glob(f"*{_ENDING}"))


def verdicts(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Of each expectation of which the input is there: its name, what was looked at, and what is wrong."""
    engine = None if missing() else Engine()
    loaded = f"not loaded: {missing()}" if engine is None else "loaded by the engine"
    with tempfile.TemporaryDirectory(prefix="otel_gym_slices_") as scratch:
        comparison = Comparison(folder, Path(scratch), engine)
        for path in expectations(folder):
            problems = comparison.problems_of(path)
            if problems is not None:
                yield str(path.relative_to(folder)), f"the same slices, stored and streamed, {loaded}", problems
    if engine is not None:
        engine.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    found = list(verdicts(parser.parse_args().folder))
    for name, said, problems in found:
        print(f"{'wrong' if problems else 'right'}  {name}: {'; '.join(problems) or said}")
    wrong = sum(bool(problems) for *_, problems in found)
    print(f"{len(found)} files, {len(found) - wrong} right, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
