"""ATIF files of ours against harbor's models and those of the atif package, in an environment of their own.

    python bench/atif_models.py [CORPUS/atif] [--environment DIR]

Each valid document of the corpus is read into spans and written twice: as it was (from the attributes of ATIF), and
as our own document (spans → trajectory → ATIF). A document that is equal to one of the corpus and refused is told, and
not counted: its version allowed what later models refuse. harbor needs Python 3.12 or newer; without one, and without
packages from the registry, nothing is judged and the exit code is 2. Last line: ``N files, N accepted, N refused``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newer_python import pythons_from, runs
from otel_gym.ingest.atif import AtifError, read_atif
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.atif_lint import errors
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import atif_of
from otel_gym.views.atif_spans import atif_files_of_spans
from otel_gym.views.trajectory import trajectories

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "atif"
PACKAGES = ("harbor==0.26.0", "atif==1.8.0")

# Runs in that environment: paths on standard input, a JSON line for each on standard output.
JUDGE = """
import json, sys
import atif
from harbor.utils.trajectory_validator import TrajectoryValidator
for line in sys.stdin:
    path = line.rstrip("\\n")
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    validator = TrajectoryValidator()
    verdict = {"path": path, "harbor": "", "atif": ""}
    if not validator.validate(value, validate_images=False):
        verdict["harbor"] = "; ".join(map(str, validator.errors))
    try:
        atif.Trajectory.model_validate(value)
    except ValueError as problem:
        verdict["atif"] = str(problem)
    print(json.dumps(verdict), flush=True)
"""


class MissingError(Exception):
    """What the judges need and is not here; the text says what, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="folder with ATIF files, searched whole")
    parser.add_argument(
        "--environment", type=Path, default=ROOT / "build" / "atif-models", help="made if it is missing"
    )
    given = parser.parse_args(arguments)
    if not given.corpus.is_dir():
        parser.error(f"there is no folder {given.corpus}")
    try:
        python = environment(given.environment)
    except MissingError as missing:
        print(f"not judged: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="atif-models-") as folder:
        files = write_all(given.corpus, Path(folder))
        verdicts = judged(python, list(files))
        marks = print_table(files, verdicts)
    counted = [mark for mark in marks if mark != "as in the corpus"]
    refused = counted.count("refused")
    print(f"{len(counted)} files, {len(counted) - refused} accepted, {refused} refused")
    return 1 if refused or not counted else 0


def environment(folder: Path) -> Path:
    """The Python of an environment with harbor and atif."""
    python = folder / "bin" / "python"
    if python.is_file() and runs(python, "import atif, harbor"):
        return python
    base = next(pythons_from(3, 12), None)
    if base is None:
        raise MissingError("harbor needs Python 3.12 or newer, and neither PATH nor pyenv has one: install python3.12")
    print(f"making {folder} with {base} and {' '.join(PACKAGES)}", file=sys.stderr)
    for command in ([base, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]):
        if subprocess.run(command, check=False).returncode:
            raise MissingError(f"{' '.join(command)} failed: see above")
    return python


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """``wrong``: what our own lint has against it. ``is_original``: the corpus holds the very same document."""

    wrong: str
    is_original: bool


def write_all(corpus: Path, folder: Path) -> dict[Path, WrittenFile]:
    """Every document that we make of the corpus, by its path."""
    written: dict[Path, WrittenFile] = {}
    for path in sorted(corpus.rglob("*.json")):
        if "invalid" in path.relative_to(corpus).parts:
            continue
        value = json.loads(path.read_bytes())
        originals = [value, *value.values()]
        try:
            rollouts = read_atif(path)
        except AtifError as problem:
            print(f"not read: {problem}", file=sys.stderr)
            continue
        for number, rollout in enumerate(rollouts):
            for name, document in documents_of(rollout):
                target = folder / f"{path.parent.name}.{path.stem}.{number}.{name}"
                target.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
                wrong = "; ".join(map(str, errors(document)))
                written[target] = WrittenFile(wrong, document in originals)
    return written


def documents_of(rollout: ImportedRollout) -> Iterator[tuple[str, Any]]:
    spans = stored_spans(rollout)
    for number, document in enumerate(atif_files_of_spans(spans).values()):
        yield f"as-it-was-{number}.json", document
    for number, trajectory in enumerate(trajectories(RolloutSpans(None, rollout.identity_id, spans))):
        for embeds in (True, False):
            export = atif_of(trajectory, rollout_id=rollout.identity_id, agent_version="1", embed_subagents=embeds)
            for name, document in export.written.items():
                yield f"ours-{number}-{'whole' if embeds else 'apart'}-{name}", document


def judged(python: Path, files: Sequence[Path]) -> dict[Path, dict[str, str]]:
    paths = "".join(f"{path}\n" for path in files)
    done = subprocess.run([python, "-c", JUDGE], input=paths, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    verdicts = map(json.loads, done.stdout.splitlines())
    return {Path(verdict["path"]): verdict for verdict in verdicts}


def print_table(files: dict[Path, WrittenFile], verdicts: dict[Path, dict[str, str]]) -> list[str]:
    """Prints a line a file; returns of each ``accepted``, ``refused`` or ``as in the corpus``."""
    marks = []
    print("| file | | harbor | atif | our lint |\n|---|---|---|---|---|")
    for path, file in files.items():
        answers = [verdicts[path]["harbor"], verdicts[path]["atif"], file.wrong]
        marks.append("accepted" if not any(answers) else "as in the corpus" if file.is_original else "refused")
        cells = (" ".join(answer.split())[:160] or "ok" for answer in answers)
        print(f"| {path.name} | {marks[-1]} | {' | '.join(cells)} |")
    return marks


if __name__ == "__main__":
    sys.exit(main())
