"""Kills writing processes, compactions and servers, and looks for every span that had ended before.

    python bench/crash.py [--kills N] [--seed N]

N processes are killed by SIGKILL at random moments: writers (1 and 4, JSONL and Parquet; media and content once on) and
compactions (of what they left, and beside live writers); N more servers with OTEL_GYM_DURABILITY=sync as their client
reads its terminal event; and a few servers end by SIGTERM. A span that ended more than 100 ms before a SIGKILL, or an
answer that a client had before a SIGTERM, must be there, once, byte for byte as it was, for our reader and, where there
is Parquet, for DuckDB. What the system let a writer wait for a processor just before it was killed is added to the
100 ms, and said. Last line: `N kills, N spans checked, N lost, N duplicated, N wrong`, of everything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crash_judge import PROMISED_S, Note, Outcome, judge, notes_before
from crash_servers import SERVERS, SIGTERM_ROUNDS, killed_as_the_client_reads, stopped_by_sigterm, what_is_missing

HERE = Path(__file__).resolve().parent
START_S = 60.0
# For how long before a kill it is looked at what the system did.
LAST_S = 1.0
COMPACTION_S = 120.0


# ── processes that are killed ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Writer:
    process: subprocess.Popen[bytes]
    file: Path
    killed_at: float = float("inf")
    waited_s: float = 0.0

    def notes(self) -> list[Note]:
        return notes_before(self.file, self.killed_at, PROMISED_S + self.waited_s)


def kill(some: list[Writer], after_s: float, outcome: Outcome) -> None:
    """All at once. What the system let each wait for a processor in its last second is added to the time it has."""
    last_s = min(LAST_S, after_s)
    time.sleep(after_s - last_s)
    waited = [waited_for_a_processor(writer.process.pid) for writer in some]
    time.sleep(last_s)
    for writer, before in zip(some, waited, strict=True):
        writer.waited_s = min(last_s, max(0.0, waited_for_a_processor(writer.process.pid) - before))
        writer.killed_at = time.monotonic()
        writer.process.kill()
    for writer in some:
        writer.process.wait()
        outcome.waited_s = max(outcome.waited_s, writer.waited_s)
    outcome.kills += len(some)


def waited_for_a_processor(pid: int) -> float:
    """Seconds that the threads of a process were ready to run and did not, where the system counts them."""
    waited = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError):  # the thread has ended
            waited += int(file.read_text().split()[1])
    return waited / 1e9


@contextlib.contextmanager
def writers(folder: Path, number: int, seed: int, **settings: str) -> Iterator[list[Writer]]:
    """Processes that write into ``folder``/store and have begun to; none is left behind."""
    started = [start_writer(folder, seed * 100 + each, settings) for each in range(number)]
    try:
        for writer in started:
            wait_until(lambda file=writer.file: file.stat().st_size > 0, writer.process)  # type: ignore[misc]
        yield started
    finally:
        for writer in started:
            if writer.process.poll() is None:
                writer.process.kill()
                writer.process.wait()


def start_writer(folder: Path, seed: int, settings: dict[str, str]) -> Writer:
    file = folder / f"notes-{seed}"
    environ = environment(OTEL_GYM_DIR=str(folder / "store"), **settings)
    with file.open("wb") as notes:
        command = [sys.executable, str(HERE / "crash_writer.py"), str(seed)]
        return Writer(subprocess.Popen(command, stdout=notes, env=environ), file)


def environment(**settings: str) -> dict[str, str]:
    """This process's own, without what it says of tracing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    paths = [str(HERE.parent), kept.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **settings}


def start_compaction(store: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "otel_gym.cli", "compact", "--dir", str(store), "--remove", "--idle", "0"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())


def compact(store: Path) -> float:
    """A whole compaction; returns for how long it was at work, in seconds."""
    process = start_compaction(store)
    wait_until(lambda: is_at_work(process, store) or process.poll() is not None)
    began = time.monotonic()
    _, errors = process.communicate(timeout=COMPACTION_S)
    if process.returncode:
        raise SystemExit(f"the compaction failed: {errors.decode()}")
    return time.monotonic() - began


def kill_compaction(process: subprocess.Popen[bytes], store: Path, after_s: float) -> bool:
    """Kills a compaction when it has been at work for so long; False if it came to its end before."""
    wait_until(lambda: is_at_work(process, store) or process.poll() is not None)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def is_at_work(process: subprocess.Popen[bytes], store: Path) -> bool:
    lock = store / "compact.lock"
    return lock.exists() and f'"pid": {process.pid}}}' in lock.read_text()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            raise SystemExit("a process did not start")
        time.sleep(0.002)


# ── scenarios ──────────────────────────────────────────────────────────────────────────────────────────────────────


def killed_writers(folder: Path, draw: random.Random, outcome: Outcome, *, number: int, format: str) -> None:
    """Writers die at a random moment; those of Parquet may be sealing, or removing what they sealed."""
    store = folder / "store"
    longest_s = 2.5 if format == "parquet" else 1.0
    # Sealed when their root span ends, or in the middle of their calls.
    seal_after = draw.choice(("300", "0.05"))
    settings = {"OTEL_GYM_FORMAT": format, "OTEL_GYM_SEAL_AFTER": seal_after}
    with writers(folder, number, draw.randrange(10**6), **settings) as started:
        kill(started, draw.uniform(0.25, longest_s), outcome)
    notes = [note for writer in started for note in writer.notes()]
    outcome.checked += len(notes)
    judge(store, notes, outcome, "after the kill")
    if format == "parquet" and number > 1:
        compact(store)
        judge(store, notes, outcome, "after a compaction")


class KilledCompactions:
    """Compactions of what writers left die at a random moment; each goes on where the last one was killed."""

    def __init__(self) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="otel_gym_crash_")
        self._left = Path(self._kept.name)
        self._notes: list[Note] = []
        self._work_s = 0.0

    def _leave_a_store(self, draw: random.Random) -> None:
        for format in ("jsonl", "parquet"):
            settings = {"OTEL_GYM_FORMAT": format}
            with writers(self._left, 2, draw.randrange(10**6), **settings) as started:
                kill(started, 0.8, Outcome())
            self._notes += [note for writer in started for note in writer.notes()]
        whole = shutil.copytree(self._left / "store", self._left / "whole")
        self._work_s = compact(whole)

    def __call__(self, folder: Path, draw: random.Random, outcome: Outcome) -> None:
        if not self._notes:
            self._leave_a_store(draw)
        store = shutil.copytree(self._left / "store", folder / "store")
        outcome.checked += len(self._notes)
        for _ in range(3):
            killed = kill_compaction(start_compaction(store), store, draw.uniform(0, self._work_s))
            outcome.kills += killed
            judge(store, self._notes, outcome, "after a killed compaction")
        compact(store)
        judge(store, self._notes, outcome, "after a compaction")


def compaction_beside_writers(folder: Path, draw: random.Random, outcome: Outcome) -> None:
    """Writers die one after the other, while others go on and compactions run, are killed and run again."""
    store = folder / "store"
    settings = {"OTEL_GYM_FORMAT": draw.choice(("jsonl", "parquet")), "OTEL_GYM_SEAL_AFTER": "0.2"}
    with writers(folder, 4, draw.randrange(10**6), **settings) as started:
        for writer in started:
            kill([writer], draw.uniform(0.2, 0.5), outcome)
            outcome.kills += kill_compaction(start_compaction(store), store, draw.uniform(0, 0.6))
    notes = [note for writer in started for note in writer.notes()]
    outcome.checked += len(notes)
    judge(store, notes, outcome, "after the kills")
    compact(store)
    judge(store, notes, outcome, "after a compaction")


Scenario = Callable[[Path, random.Random, Outcome], None]

# Which share of the kills each has.
SCENARIOS: tuple[tuple[str, float, Callable[[], Scenario]], ...] = (
    ("1 writer, JSONL", 0.15, lambda: partial(killed_writers, number=1, format="jsonl")),
    ("4 writers, JSONL", 0.2, lambda: partial(killed_writers, number=4, format="jsonl")),
    ("1 writer, Parquet", 0.15, lambda: partial(killed_writers, number=1, format="parquet")),
    ("4 writers, Parquet", 0.2, lambda: partial(killed_writers, number=4, format="parquet")),
    ("compactions", 0.15, KilledCompactions),
    ("compactions beside 4 writers, and these", 0.15, lambda: compaction_beside_writers),
)


def run_until(kills: float, scenario: Scenario, seed: str) -> Outcome:
    outcome, turn = Outcome(), 0
    while outcome.kills < kills:
        with tempfile.TemporaryDirectory(prefix="otel_gym_crash_") as folder:
            scenario(Path(folder), random.Random(f"{seed} {turn}"), outcome)
        turn += 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of traffic and moments; default 1")
    options = parser.parse_args()
    total = Outcome()

    def say(name: str, outcome: Outcome) -> None:
        waited = f" (allowed for: {1000 * outcome.waited_s:.0f} ms without a processor)" if outcome.waited_s else ""
        print(f"{name}: {outcome}{waited}", flush=True)
        for problem in outcome.problems[:10]:
            print(f"    {problem}")
        total.add(outcome)

    # First, since these fork, and what judges by DuckDB leaves threads behind.
    say(
        "DURABILITY=sync, killed as the client reads its terminal event",
        run_until(options.kills, killed_as_the_client_reads, f"{options.seed} sync"),
    )
    for name, share, make in SCENARIOS:
        say(name, run_until(share * options.kills, make(), f"{options.seed} {name}"))
    for name, command in SERVERS.items():
        if missing := what_is_missing(command):
            print(f"SIGTERM, {name}: left out, there is no {missing} here")
        else:
            say(f"SIGTERM, {name}", run_until(SIGTERM_ROUNDS, partial(stopped_by_sigterm, command), name))
    print(total)
    return 1 if total.is_bad() else 0


if __name__ == "__main__":
    sys.exit(main())
