"""A long session of Claude Code → ATIF, beside atif-make.

    python bench/atif_speed.py [--lines N] [--rounds N]

Both run as processes of their own and take turns (ours is convert_session.py), on the same Python: atif-make needs 3.12
or newer, so that both are put into a scratch environment of the newest that takes them; without one its figures are
missing. Time is that of the whole process, memory its peak above that of a bare interpreter. The session is made here
(large_session.py), so the right totals are known.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from large_session import LINES, Totals, make_session
from newer_python import pythons_from
from table import Figure, print_table

HERE = Path(__file__).resolve().parent
PEER = "atif-make==0.10.0"
GREATEST_MEMORY_MB = 150
LEAST_SPEED = 2.0

# Prints seconds and peak memory in MB of a command's process.
MEASURE = """
import resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


@dataclass
class Run:
    seconds: float
    peak_mb: float


def measured(command: list[str]) -> Run:
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], check=True, capture_output=True, text=True)
    seconds, peak = map(float, done.stdout.split())
    return Run(seconds, peak)


def scratch_python(folder: Path) -> Path | None:
    """Of an environment with atif-make and this checkout; None where no Python is new enough, or no registry."""
    for base in pythons_from(3, 12):
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
        python = folder / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER, str(HERE.parent)]
        if subprocess.run(pip, capture_output=True, check=False).returncode == 0:
            return python
    return None


def version_of(python: Path) -> str:
    program = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def totals_are_right(document: Path, totals: Totals) -> bool:
    metrics = json.loads(document.read_bytes())["final_metrics"]
    return (metrics["total_prompt_tokens"], metrics["total_completion_tokens"], metrics["total_cached_tokens"]) == (
        totals.prompt_tokens,
        totals.completion_tokens,
        totals.cached_tokens,
    )


def figures(folder: Path, lines: int, rounds: int) -> list[Figure]:
    session = folder / "session.jsonl"
    totals = make_session(session, lines)
    scratch = scratch_python(folder / "python")
    python = scratch or Path(sys.executable)
    out, peer_out = folder / "ours", folder / "theirs.json"
    ours = [str(python), str(HERE / "convert_session.py"), str(session), str(out)]
    theirs = [str(python.with_name("atif-make")), "convert", "--quiet", str(session), "-o", str(peer_out)]
    bare = min(measured([str(python), "-c", ""]).peak_mb for _ in range(3))
    own_runs, peer_runs = [], []
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        own_runs.append(measured(ours))
        if scratch is not None:
            peer_runs.append(measured(theirs))
    memory = max(run.peak_mb for run in own_runs) - bare
    are_right = totals_are_right(next(out.rglob("trajectory.json")), totals)
    size = session.stat().st_size / 10**6
    found = [
        Figure(
            f"a session of {lines:,} lines, {size:.0f} MB -> ATIF, on Python {version_of(python)}",
            f"{statistics.median(run.seconds for run in own_runs):.2f} s",
        ),
        Figure(
            "the same: peak memory above the interpreter",
            f"{memory:.0f} MB",
            f"< {GREATEST_MEMORY_MB} MB",
            memory < GREATEST_MEMORY_MB,
        ),
        Figure("the same: token totals exact", str(are_right), "True", are_right),
    ]
    if scratch is None:
        return [
            *found,
            Figure("atif-make: needs Python 3.12 or newer, which is not here", "-", f">= {LEAST_SPEED} x", False),
        ]
    faster = statistics.median(peer.seconds / own.seconds for peer, own in zip(peer_runs, own_runs, strict=True))
    peer_memory = max(run.peak_mb for run in peer_runs) - bare
    return [
        *found,
        Figure(
            f"atif-make, on Python {version_of(python)}",
            f"{statistics.median(run.seconds for run in peer_runs):.2f} s, {peer_memory:.0f} MB",
        ),
        Figure("faster than atif-make", f"{faster:.2f} x", f">= {LEAST_SPEED} x", faster >= LEAST_SPEED),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="otel_gym_atif_") as folder:
        return print_table(figures(Path(folder), options.lines, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
