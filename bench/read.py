"""How fast a store is read, and that memory does not grow with it.

    python bench/read.py [--small MB] [--large MB] [--full]

Spans of 4 kB on average (two in five hold a model call's messages) are written with ids of their own into a store's
folders and into one file of many rollouts; then ``open_store`` reads every span of every rollout, attributes decoded.
``--full`` reads 100 MB and 2 GB. Speed is per second of processor time, so that it holds for one core; memory is the
peak of a process of its own. ``orjson.loads`` of the same lines is what a bare parser takes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from otel_gym.store.layout import SPANS
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.reader import open_store
from table import Figure, print_table

SPANS_PER_ROLLOUT = 50
GOAL_PER_SECOND = 60_000
# What the goal is where orjson takes 120,000 such lines a second; holds on a machine that does other work too.
GREATEST_RATIO = 2.0
# The names of ten thousand rollouts take 4 MB of about 27.
GREATEST_GROWTH = 1.25
MEGABYTE = 10**6
ROUNDS = 7
# (share of spans, attributes, median characters of messages), as in an agent's store
MIX = ((0.4, 25, 2200), (0.4, 12, 2200), (0.2, 6, 300))
TEXT = Path(json.__file__).read_text("utf-8") + Path(argparse.__file__).read_text("utf-8")


def lines(size: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """(rollout id, line) until ``size`` bytes are reached; rollouts are written by turns, eight at a time."""
    randomness = random.Random(seed)
    kinds = randomness.choices(MIX, [share for share, _, _ in MIX], k=200)
    templates = [_template(attributes, characters, randomness) for _, attributes, characters in kinds]
    written, number = 0, 0
    while written < size:
        block, place = divmod(number, 8 * SPANS_PER_ROLLOUT)
        rollout_id = f"{block * 8 + place % 8}-0"
        line = randomness.choice(templates)
        line = line.replace(b"5b8efff798038103", b"%016x" % number).replace(b"@rollout@", rollout_id.encode())
        yield rollout_id, line
        written += len(line)
        number += 1


def _template(attributes: int, characters: int, randomness: random.Random) -> bytes:
    start = randomness.randrange(len(TEXT) // 2)
    kept = {f"gen_ai.request.attribute_{number}": _value(number) for number in range(attributes - 3)}
    messages = json.dumps(
        [{"role": "user", "content": TEXT[start : start + int(characters * randomness.uniform(0.5, 1.9))]}]
    )
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "5b8efff798038103",
        "parentSpanId": "eee19b7ec3c1b174",
        "flags": 256,
        "name": "chat toy-1",
        "kind": 3,
        "startTimeUnixNano": "1777312801000000001",
        "endTimeUnixNano": "1777312801500000001",
        "attributes": key_values(
            {"gym.run.id": "run-1", "gym.rollout.id": "@rollout@", **kept, "gen_ai.input.messages": messages}
        ),
        "status": {"code": 1},
    }
    service = {"service.name": "bench", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": "1.45.2"}
    scope = {"scope": {"name": "otel_gym", "version": "0"}, "spans": [span]}
    return encode_json({"resourceSpans": [{"resource": {"attributes": key_values(service)}, "scopeSpans": [scope]}]})


def _value(number: int) -> str | int | float:
    """Of ten attributes six are texts, three counts, one a fraction, as on a model call."""
    kind = number % 10
    return f"value-{number}" if kind < 6 else number if kind < 9 else number / 7


def write_store(directory: Path, size: int) -> int:
    """Returns how many spans were written."""
    spans = 0
    for rollout_id, line in lines(size):
        folder = directory / SPANS / f"rollout_id={rollout_id}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "bench.jsonl").open("ab") as file:
            file.write(line + b"\n")
        spans += 1
    return spans


def write_file(path: Path, size: int) -> int:
    with path.open("wb") as file:
        return sum(bool(file.write(line + b"\n")) for _, line in lines(size))


def read(path: Path) -> dict[str, float]:
    """Reads everything in this process: spans, seconds of processor time, peak memory in MB."""
    began = time.process_time()
    store = open_store(path)
    spans = sum(len(rollout.spans) for rollout in store.rollouts())
    seconds = time.process_time() - began
    assert not store.damage, store.damage[0]
    return {"spans": spans, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def read_apart(path: Path) -> dict[str, float]:
    """``read`` in a process of its own."""
    finished = subprocess.run([sys.executable, __file__, "--read", path], stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(finished.stdout)
    return measured


def bare_parser(path: Path) -> float:
    """Lines that orjson takes per second of processor time."""
    import orjson

    began = time.process_time()
    with path.open("rb") as content:
        number = sum(orjson.loads(line) is not None for line in content)
    return number / (time.process_time() - began)


def measure(small: int, large: int, folder: Path) -> Iterator[Figure]:
    file, store = folder / "many.jsonl", folder / "store"
    peaks: dict[str, list[float]] = {"store": [], "file": []}
    for size in (small, large):
        written = write_file(file, size * MEGABYTE)
        write_store(store, size * MEGABYTE)
        if size == small:
            yield from _speed(file, store, written)
        for path, form in ((file, "file"), (store, "store")):
            measured = read_apart(path)
            assert measured["spans"] == written, (form, measured, written)
            peaks[form].append(measured["peak"])
        file.unlink()
        shutil.rmtree(store)
    for form, (before, after) in peaks.items():
        name = f"read: peak memory, a {form} of {large} MB to one of {small} MB"
        value = f"{after / before:.2f} x ({after:.0f} MB)"
        yield Figure(name, value, f"<= {GREATEST_GROWTH} x", after <= GREATEST_GROWTH * before)


def _speed(file: Path, store: Path, written: int) -> Iterator[Figure]:
    """The best of several rounds: other programs on the machine can only make them slower."""
    parsed, by_rollout, indexed = (
        max(rates)
        for rates in zip(*((bare_parser(file), _rate(store), _rate(file)) for _ in range(ROUNDS)), strict=True)
    )
    size = file.stat().st_size / written
    name = f"read: spans/s per core, a store, {size:,.0f} bytes a span"
    yield Figure(name, f"{by_rollout:,.0f}", f">= {GOAL_PER_SECOND:,}", by_rollout >= GOAL_PER_SECOND)
    yield Figure("read: spans/s per core, one file of many rollouts (places first, then spans)", f"{indexed:,.0f}")
    yield Figure("read: lines/s that orjson.loads takes, without spans", f"{parsed:,.0f}")
    ratio = parsed / by_rollout
    name = "read: a store's spans, time of orjson.loads of the same lines"
    yield Figure(name, f"{ratio:.2f} x", f"<= {GREATEST_RATIO} x", ratio <= GREATEST_RATIO)


def _rate(path: Path) -> float:
    measured = read_apart(path)
    return measured["spans"] / measured["seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=20, metavar="MB")
    parser.add_argument("--large", type=int, default=200, metavar="MB")
    parser.add_argument("--full", action="store_true", help="100 MB and 2 GB")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        print(json.dumps(read(options.read)))
        return 0
    small, large = (100, 2000) if options.full else (options.small, options.large)
    with tempfile.TemporaryDirectory(prefix="otel_gym_read_") as folder:
        return print_table(list(measure(small, large, Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
