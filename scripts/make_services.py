"""Builds the real parts that tests and checks start, once, into a cache outside the checkout.

    python scripts/make_services.py

A part whose tools are missing is named and left out. Exit code 1: a part could not be built. The cache is
$SERVICES_CACHE, else otel_gym/services under $XDG_CACHE_HOME or ~/.cache; what is there already is left as it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))

from service_parts import BUILDER, COLLECTOR, COMPOSE, COMPOSE_GO, JAEGER, KAFKA, PARTS, Part, absent, cache  # noqa: E402

SERVICES = ROOT / "tests" / "services"
HEARTBEAT_S = 30.0
TAIL_LINES = 15


@dataclass(frozen=True)
class Step:
    """A command, the folder in which it runs, what it finds in its environment."""

    command: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)


def jaeger_step(folder: Path) -> Step:
    program = "github.com/jaegertracing/jaeger/cmd/jaeger"
    flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w"]
    return Step(["go", "build", *flags, "-o", str(folder / JAEGER.program), program], SERVICES)


def collector_step(folder: Path) -> Step:
    manifest = ROOT / "collector-config" / "builder.yaml"
    return Step(["go", "run", BUILDER, f"--config={manifest}"], folder)


def compose_step(folder: Path) -> Step:
    return Step(["go", "install", "-trimpath", COMPOSE_GO], folder, {"GOBIN": str(folder)})


def kafka_step(folder: Path) -> Step:
    goal = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    return Step([*goal, f"-DoutputDirectory={folder / KAFKA.program}"], SERVICES / "kafka")


STEPS: dict[str, Callable[[Path], Step]] = {
    JAEGER.name: jaeger_step,
    COLLECTOR.name: collector_step,
    COMPOSE.name: compose_step,
    KAFKA.name: kafka_step,
}
USUAL = {
    JAEGER.name: "4 minutes",
    COLLECTOR.name: "4 minutes",
    COMPOSE.name: "half a minute",
    KAFKA.name: "half a minute",
}


def say(part: Part, text: str) -> None:
    print(f"services: {part.name}: {text}", flush=True)


def provide(part: Part) -> bool:
    """Whether it is there, or cannot be for want of a tool; False: its build failed."""
    if part.path.exists():
        say(part, f"is in {part.folder}")
        return True
    missing = absent(part.built_with)
    if missing:
        say(part, f"left out, since it is built with {missing}, not found here; its tests will be skipped")
        return True
    return build(part)


def build(part: Part) -> bool:
    """Into a folder beside its own, which takes its name only when it is whole."""
    say(part, f"building (usually {USUAL[part.name]}, with 2 cores and nothing downloaded yet)")
    unfinished = part.folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    log = cache() / f"{part.name.lower()}.log"
    started = time.monotonic()
    with log.open("w") as output:
        code = run(part, STEPS[part.name](unfinished), output, started)
    if code != 0 or not (unfinished / part.program).exists():
        return failed(part, log)
    unfinished.rename(part.folder)
    say(part, f"built in {time.monotonic() - started:.0f} s: {part.folder}")
    return True


def run(part: Part, step: Step, output: IO[str], started: float) -> int:
    process = subprocess.Popen(
        step.command,
        cwd=step.folder,
        env={**os.environ, **step.environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    try:
        while True:
            try:
                return process.wait(HEARTBEAT_S)
            except subprocess.TimeoutExpired:
                say(part, f"still building, {time.monotonic() - started:.0f} s")
    except BaseException:
        process.kill()
        raise


def failed(part: Part, log: Path) -> bool:
    lines = log.read_text(errors="replace").splitlines()
    print(*(f"    {line}" for line in lines[-TAIL_LINES:]), sep="\n", file=sys.stderr)
    print(f"services: {part.name}: could not be built; everything that was said is in {log}", file=sys.stderr)
    return False


def main() -> int:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may share the cache
        unbuilt = [part for part in PARTS if not provide(part)]
    return 1 if unbuilt else 0


if __name__ == "__main__":
    sys.exit(main())
