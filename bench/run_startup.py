"""What ``otel-gym run`` adds to the start of a Python that traces nothing: an installer, a worker, a tool's script.

The two take turns, and each is compared with its neighbour. CPU time of the process counts, since other programs on the
machine do not change it as they do the clock's.

    python bench/run_startup.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys

from otel_gym.bootstrap.bundle import site_folder
from table import Figure, print_table

GOAL_MS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, metavar="N")
    rounds = parser.parse_args().rounds
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHONPATH"))}
    # Below another folder on PYTHONPATH, so that what Python itself does for one is not counted as ours.
    without = {**plain, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    hooked = {**plain, "PYTHONPATH": str(site_folder()), "OTEL_GYM": "1"}
    pairs = [(cpu_seconds(without), cpu_seconds(hooked)) for _ in range(rounds)]
    bare = statistics.median(before for before, _ in pairs) * 1000
    added = statistics.median(after - before for before, after in pairs) * 1000
    return print_table(
        [
            Figure("`python -c pass` alone, CPU", f"{bare:.1f} ms"),
            Figure("`otel-gym run` adds to it", f"{added:.1f} ms", f"< {GOAL_MS:.0f} ms", added < GOAL_MS),
            Figure("of its own start", f"× {(bare + added) / bare:.2f}"),
        ]
    )


def cpu_seconds(environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
