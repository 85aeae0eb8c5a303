"""The store: what it costs to make spans and have them on disk, beside the SDK alone and its peers.

All arms run in this process and take turns in random order; a ratio is the median of the rounds' ratios.
The figures of size.py, parquet.py and read.py stand in the same table.

    python bench/store.py [--rounds N] [--spans N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opentelemetry.exporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

import capture
import otel_gym
from fsync_capture import PerRecordFsyncCapture
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.content_policy import ContentPolicy
from otel_gym.redaction import RedactionRules, Redactor
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.ids import GymIdGenerator
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.tracing.processor import RolloutSpanProcessor
from otel_gym.tracing.recorder import Recorder
from run_all import run_benchmark
from spans import attribute_sets, source_text
from table import Figure, print_table

QUEUE_BYTES = 64 * 1024 * 1024
PEERS = Path(sys.prefix) / "peers"

NAMES = {
    "sdk": "nowhere: the SDK alone",
    "store": "JSONL, start records and content once on",
    "redacted": "JSONL, redaction on too",
    "peer": "the official JSON file exporter",
}

Finish = Callable[[], Any]


def new_provider() -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False, id_generator=GymIdGenerator())


def sdk_alone(directory: Path) -> tuple[TracerProvider, Finish]:
    return TracerProvider(shutdown_on_exit=False), lambda: None


NO_REDACTION = ContentPolicy(redactor=Redactor(RedactionRules(defaults=False)))


def our_store(directory: Path, policy: ContentPolicy = NO_REDACTION) -> tuple[TracerProvider, Finish]:
    provider = new_provider()
    recorder = Recorder(lambda: StoreWriter(directory, content=ContentOnce(BlobStore(directory))), QUEUE_BYTES)
    provider.add_span_processor(RolloutSpanProcessor(recorder, content=policy))

    def finish() -> None:
        recorder.flush(60)
        if recorder.spans_lost:
            raise SystemExit(f"{recorder.spans_lost} spans were lost")

    return provider, finish


def our_store_redacted(directory: Path) -> tuple[TracerProvider, Finish]:
    return our_store(directory, ContentPolicy())


def official_file_exporter(directory: Path) -> tuple[TracerProvider, Finish]:
    """BatchSpanProcessor and opentelemetry-exporter-otlp-json-file, with a queue that loses nothing."""
    opentelemetry.exporter.__path__.append(str(PEERS / "opentelemetry" / "exporter"))
    sys.path.append(str(PEERS))
    module = importlib.import_module("opentelemetry.exporter.otlp.json.file.trace_exporter")
    exporter: SpanExporter = module.FileSpanExporter(str(directory / "peer.jsonl"))
    processor = BatchSpanProcessor(exporter, max_queue_size=1_000_000)
    provider = new_provider()
    provider.add_span_processor(processor)
    return provider, lambda: (processor.force_flush(), processor.shutdown())


ARMS = {"sdk": sdk_alone, "store": our_store, "redacted": our_store_redacted, "peer": official_file_exporter}


def microseconds_a_span(arm: str, attributes: list[dict[str, Any]]) -> float:
    """Create, end and have on disk (written)."""
    with tempfile.TemporaryDirectory() as directory:
        provider, finish = ARMS[arm](Path(directory))
        tracer = provider.get_tracer("bench")
        gc.collect()
        start = time.perf_counter()
        for values in attributes:
            tracer.start_span("chat policy-model", attributes=values).end()
        finish()
        return (time.perf_counter() - start) / len(attributes) * 1e6


def create_to_disk(attributes: list[dict[str, Any]], rounds: int) -> list[Figure]:
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    order = random.Random(0)
    for turn in range(rounds + 1):
        arms = list(ARMS)
        order.shuffle(arms)
        taken = {arm: microseconds_a_span(arm, attributes) for arm in arms}
        if turn:
            for arm, value in taken.items():
                times[arm].append(value)
    plain = _median_ratio(times["store"], times["sdk"])
    redacted = _median_ratio(times["redacted"], times["sdk"])
    faster = _median_ratio(times["peer"], times["store"])
    return [
        *(Figure(f"create -> {what}", f"{statistics.median(times[arm]):.1f} us/span") for arm, what in NAMES.items()),
        Figure("create -> JSONL, of the SDK alone", f"{plain:.2f} x", "<= 1.8 x", plain <= 1.8),
        Figure("the same with redaction, of the SDK alone", f"{redacted:.2f} x", "<= 2.4 x", redacted <= 2.4),
        Figure("faster than BatchSpanProcessor + otlp-json-file", f"{faster:.1f} x", ">= 4 x", faster >= 4),
    ]


def added_wall(rounds: int) -> list[Figure]:
    """Of capture beside capture with an fsync a record, over the same app under the ASGI instrumentation."""
    goals = {"JSON": (capture.json_app(), 0.10), "SSE of 500 chunks": (capture.sse_app(), 0.05)}
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        pipeline = otel_gym.configure(directory=directory, run_id="bench")
        for name, (app, goal) in goals.items():
            ours, peer = asyncio.run(_added(app, pipeline, Path(directory) / "peer.jsonl", rounds))
            ratio = ours / peer
            figures += [
                Figure(f"{name}: wall added by capture with an fsync a record", f"{peer:.0f} us"),
                Figure(f"{name}: wall added by ours, of that", f"{ratio:.3f} x", f"<= {goal:.2f} x", ratio <= goal),
            ]
        otel_gym.flush(30)
    return figures


async def _added(app: capture.App, pipeline: Pipeline, path: Path, rounds: int) -> tuple[float, float]:
    """Median microseconds that each adds to the bare app, a call."""
    arms = {
        "bare": capture.server_span(app, pipeline),
        "ours": ModelCallCapture(app),
        "peer": capture.server_span(PerRecordFsyncCapture(app, path), pipeline),
    }
    order = random.Random(0)
    added: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(rounds):
        names = list(arms)
        order.shuffle(names)
        times = {}
        for name in names:
            await capture.timed_calls(arms[name], 1)
            times[name] = await capture.timed_calls(arms[name], 3)  # over before the recorder begins to parse
            otel_gym.flush(30)
        for name, values in added.items():
            values.append(times[name] - times["bare"])
    return statistics.median(added["ours"]), statistics.median(added["peer"])


def many_rollouts(rounds: int) -> list[Figure]:
    """10,000 live rollouts in turn, 20 spans each, against one rollout of as many spans."""
    small = {"gym.run.id": "bench", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}
    spread = [small | {"gym.rollout.id": f"{number % 10_000}-0"} for number in range(200_000)]
    single = [small | {"gym.rollout.id": "0-0"} for _ in range(200_000)]
    ratios = [
        microseconds_a_span("store", spread) / microseconds_a_span("store", single) for _ in range(max(1, rounds // 3))
    ]
    ratio = statistics.median(ratios)
    return [Figure("10,000 rollouts in turn, of one rollout", f"{ratio:.2f} x", "<= 2.5 x", ratio <= 2.5)]


def event_loop_lateness() -> list[Figure]:
    """How late a 1 ms ticker is (99 of 100 times less) beside a task that makes 3,000 spans a second."""
    attributes = attribute_sets(3000, 8)
    alone, late = _lateness("sdk", attributes), _lateness("redacted", attributes)
    return [
        Figure("event loop late at 3,000 spans/s, p99: the SDK alone", f"{alone:.2f} ms"),
        Figure("event loop late at 3,000 spans/s, p99", f"{late:.2f} ms", "< 1 ms", late < 1),
    ]


def _lateness(arm: str, attributes: list[dict[str, Any]]) -> float:
    late: list[float] = []

    async def tick(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - due) * 1000)

    async def make_spans(tracer: Any) -> None:
        for start in range(0, len(attributes), 3):
            for values in attributes[start : start + 3]:
                tracer.start_span("chat m", attributes=values).end()
            await asyncio.sleep(0.001)

    async def both(tracer: Any) -> None:
        maker = asyncio.create_task(make_spans(tracer))
        await tick(3)
        await maker

    with tempfile.TemporaryDirectory() as directory:
        provider, finish = ARMS[arm](Path(directory))
        asyncio.run(both(provider.get_tracer("bench")))
        finish()
    late.sort()
    return late[int(len(late) * 0.99)]


BURST_SPANS = 200_000
LARGE_SPANS = 2_000
LARGE_TEXT = 200_000


def burst() -> list[Figure]:
    """Spans at full speed: what is lost, and how far memory grows over the queue's bound."""
    small = _in_a_process("burst", BURST_SPANS, 1000)
    large = _in_a_process("burst", LARGE_SPANS, LARGE_TEXT)
    growth = large["rss_growth"] / QUEUE_BYTES
    unexplained = small["made"] - small["stored"] - small["counted_lost"]
    return [
        Figure(f"burst of {BURST_SPANS} spans: stored", f"{small['stored']}"),
        Figure("burst: lost and not counted", f"{unexplained}", "0", unexplained == 0),
        Figure("burst of 200 kB spans: memory over the bound of 64 MiB", f"{growth:.2f} x", "<= 1.5 x", growth <= 1.5),
    ]


def _in_a_process(task: str, *arguments: int) -> dict[str, int]:
    command = [sys.executable, __file__, f"--{task}", *map(str, arguments)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, int] = json.loads(finished.stdout)
    return found


def run_burst(count: int, length: int) -> None:
    source = source_text(1)
    with tempfile.TemporaryDirectory() as directory:
        provider = new_provider()
        recorder = Recorder(lambda: StoreWriter(Path(directory)), QUEUE_BYTES)
        provider.add_span_processor(RolloutSpanProcessor(recorder))
        tracer = provider.get_tracer("bench")
        before = _peak_memory()
        for number in range(count):
            start = number % (len(source) - length)
            attributes = {
                "gym.rollout.id": f"{number % 8}-0",
                "gym.run.id": "b",
                "text": source[start : start + length],
            }
            tracer.start_span("x", attributes=attributes).end()
        recorder.flush(120)
        growth = _peak_memory() - before
        stored = sum(_lines(path) for path in Path(directory).rglob("spans/*/*.jsonl"))
    print(json.dumps({"made": count, "stored": stored, "counted_lost": recorder.spans_lost, "rss_growth": growth}))


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def _median_ratio(values: list[float], base: list[float]) -> float:
    return statistics.median(value / other for value, other in zip(values, base, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--spans", type=int, default=5000)
    parser.add_argument("--alone", action="store_true", help="without the figures of the other scripts")
    parser.add_argument("--burst", type=int, nargs=2, metavar=("SPANS", "LENGTH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.burst:
        run_burst(*options.burst)
        return 0
    figures = create_to_disk(attribute_sets(options.spans, 8), options.rounds)
    figures += added_wall(options.rounds * 8)
    figures += many_rollouts(options.rounds)
    figures += event_loop_lateness()
    figures += burst()
    for script in () if options.alone else ("size.py", "parquet.py", "read.py"):
        figures += run_benchmark(script)[0]
    return print_table(figures)


if __name__ == "__main__":
    sys.exit(main())
