"""Runs every benchmark, one after the other, and prints their figures as one table.

    python bench/run_all.py [--write docs/benchmarks.md]

The page also describes the machine. A benchmark that fails without a figure is a figure that falls short.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from table import Figure, markdown_table, print_table, read_table

HERE = Path(__file__).resolve().parent

# The scripts of this folder that measure, with what they measure. The others compare with reference folders.
BENCHMARKS = {
    "capture.py": "What capture adds to one model call",
    "store.py": "The store: speed, size, Parquet, reading",
    "atif_speed.py": "A long session of Claude Code → ATIF",
    "perfetto.py": "Traces for Perfetto",
    "dynamo.py": "Traces of Dynamo → Perfetto",
    "receive.py": "Receiving OTLP",
    "query.py": "SQL over a store",
    "run_startup.py": "What `otel-gym run` adds to the start of a Python",
}

PACKAGES = (
    "opentelemetry-sdk",
    "opentelemetry-instrumentation-asgi",
    "starlette",
    "fastapi",
    "uvicorn",
    "httpx",
    "pydantic",
    "msgspec",
    "pyarrow",
    "duckdb",
)


def run_benchmark(script: str) -> tuple[list[Figure], str]:
    """Its figures, and all that it printed."""
    finished = subprocess.run([sys.executable, HERE / script], stdout=subprocess.PIPE, text=True, check=False)
    figures = read_table(finished.stdout)
    if not figures:
        figures = [Figure(f"{script}: runs to its end", f"exit code {finished.returncode}", "figures", ok=False)]
    return figures, finished.stdout


def machine() -> dict[str, str]:
    """What the figures were measured on. Never a name or a path."""
    return {
        "processor": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **{name: version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


def page(results: dict[str, list[Figure]]) -> str:
    described = "\n".join(f"- {name}: {value}" for name, value in machine().items())
    sections = "\n\n".join(
        f"## {BENCHMARKS[script]}\n\n`python bench/{script}`\n\n{markdown_table(figures)}"
        for script, figures in results.items()
    )
    return f"""# Benchmarks

<!-- Made by `make bench`. -->

One run of `make bench`, on:

{described}

{sections}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write a page with figures and machine")
    options = parser.parse_args()
    results = {}
    for script, title in BENCHMARKS.items():
        print(f"{title} (bench/{script})", flush=True)
        results[script], printed = run_benchmark(script)
        print(printed, flush=True)
    if options.write:
        options.write.write_text(page(results), encoding="utf-8")
    return print_table([figure for figures in results.values() for figure in figures])


if __name__ == "__main__":
    sys.exit(main())
