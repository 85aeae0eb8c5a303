"""How fast a store becomes a trace for Perfetto, and that memory does not grow with it.

    python bench/perfetto.py [--rollouts N] [--full]

Rollouts of ten spans (a root, turns, steps, model calls with 4 kB of messages, tools) are written into a store; then it
is read by one process, and exported in both formats as the command does it, on several cores, by turns: seconds are
those that a user waits, memory is that of all processes together. ``--full`` adds a million spans. The engine's time to
load the trace stands beside it where the engine runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_gym.store.layout import SPANS
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.reader import open_store
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.parallel import workers_for, write_trace_of_store
from otel_gym.views.perfetto.timeline import Shown
from table import Figure, print_table
from trace_engine import Engine, missing

SPANS_PER_ROLLOUT = 10
FORMATS = ("pftrace", "json")
GREATEST_RATIO = 1.6
GREATEST_MEMORY_MB = 300
# Four times as many rollouts may take this much more than four times as long.
GREATEST_GROWTH = 1.3
ROUNDS = 5
TEXT = Path(argparse.__file__).read_text("utf-8")
START_NS = 1_796_000_000_000_000_000
MESSAGES = json.dumps([{"role": "user", "content": TEXT[:4000]}])


def rollout_lines(number: int) -> Iterator[bytes]:
    """A turn of three steps, each a model call, two of them with a tool."""
    trace_id, ids = f"{number + 1:032x}", iter(range(number * 16 + 1, number * 16 + 17))
    start = START_NS + number % 1000 * 10**7
    shared = {"gym.run.id": "run-1", "gym.rollout.id": f"{number}-0"}

    def line(name: str, parent: int | None, begin: int, end: int, attributes: dict[str, Any]) -> tuple[int, bytes]:
        span_id = next(ids)
        span = {
            "traceId": trace_id,
            "spanId": f"{span_id:016x}",
            "parentSpanId": "" if parent is None else f"{parent:016x}",
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(start + begin),
            "endTimeUnixNano": str(start + end),
            "attributes": key_values({**shared, **attributes}),
            "status": {},
        }
        scope = {"scope": {"name": "otel_gym"}, "spans": [span]}
        resource_ = {"attributes": key_values({"service.name": "bench"})}
        return span_id, encode_json({"resourceSpans": [{"resource": resource_, "scopeSpans": [scope]}]})

    root, made = line("rollout", None, 0, 10**9, {"gym.reward": 0.5})
    yield made
    agent, made = line(
        "invoke_agent bench",
        root,
        10**6,
        9 * 10**8,
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "b"},
    )
    yield made
    for step in range(3):
        begin = 2 * 10**6 + step * 2 * 10**8
        parent, made = line("agent_step", agent, begin, begin + 19 * 10**7, {"gym.step.index": step + 1})
        yield made
        yield line("chat toy-1", parent, begin, begin + 10**8, _chat(number, step))[1]
        if step < 2:
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash"}
            tool["gen_ai.tool.call.id"] = f"call_{number}_{step}"
            yield line("execute_tool bash", parent, begin + 10**8, begin + 18 * 10**7, tool)[1]


def _chat(number: int, step: int) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "toy-1",
        "gen_ai.request.stream": True,
        "gen_ai.response.id": f"resp_{number}_{step}",
        "gen_ai.response.finish_reasons": ["tool_calls" if step < 2 else "stop"],
        "gen_ai.usage.input_tokens": 1000 * (step + 1),
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 1000 * step,
        "gen_ai.input.messages": MESSAGES,
        "gym.model_call.id": f"{number:030x}{step:02x}",
        "gym.response.time_to_first_content_ns": 20_000_000,
    }


def write_store(directory: Path, rollouts: int) -> Path:
    for number in range(rollouts):
        folder = directory / SPANS / f"rollout_id={number}-0"
        folder.mkdir(parents=True)
        (folder / "bench.jsonl").write_bytes(b"\n".join(rollout_lines(number)) + b"\n")
    return directory


def run(path: Path, form: str) -> dict[str, float]:
    """Reads everything, or exports it in that form, in this process."""
    gc.disable()  # as the command has it; spans and slices are no cycles
    began, worked = time.perf_counter(), time.process_time()
    store = open_store(path)
    if form == "read":
        spans = sum(len(rollout.spans) for rollout in store.rollouts())
        assert spans % SPANS_PER_ROLLOUT == 0
    elif (workers := workers_for(store)) == 1:
        write_trace(lambda: processes(store.rollouts(), Shown()), path.with_suffix(f".{form}"))
    else:
        write_trace_of_store(store, path.with_suffix(f".{form}"), f"trace.{form}", Shown(), workers)
    seconds = time.perf_counter() - began
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    worked = time.process_time() - worked + children.ru_utime + children.ru_stime
    # Each of the others may be as large as the largest of them.
    workers = 1 if form == "read" else workers
    peak = (own.ru_maxrss + (workers - 1) * children.ru_maxrss) / 1024
    return {"seconds": seconds, "worked": worked, "peak": peak, "workers": workers}


def run_apart(path: Path, form: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--run", form, str(path)]
    measured: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return measured


def figures(folder: Path, rollouts: int, full: bool) -> Iterator[Figure]:
    store = write_store(folder / "store", rollouts)
    spans = rollouts * SPANS_PER_ROLLOUT
    seconds: dict[str, list[float]] = {form: [] for form in ("read", *FORMATS)}
    worked: dict[str, list[float]] = {form: [] for form in ("read", *FORMATS)}
    for _ in range(ROUNDS):
        for form in seconds:
            done = run_apart(store, form)
            seconds[form].append(done["seconds"])
            worked[form].append(done["worked"])
            workers = done["workers"]
    yield Figure(f"a store of {spans:,} spans: reading", f"{spans / statistics.median(seconds['read']):,.0f} spans/s")
    for form in FORMATS:
        pairs = zip(seconds[form], seconds["read"], strict=True)
        ratio = statistics.median(own / read for own, read in pairs)
        size = store.with_suffix(f".{form}").stat().st_size / 10**6
        yield Figure(
            f"to .{form}, {size:.0f} MB, on {workers:.0f} cores: by the time of reading on one",
            f"{ratio:.2f} x",
            f"<= {GREATEST_RATIO} x",
            ratio <= GREATEST_RATIO,
        )
        work = statistics.median(own / read for own, read in zip(worked[form], worked["read"], strict=True))
        yield Figure("the same: work of all processors by that of reading", f"{work:.2f} x")
    yield from _loading(store)
    large = 100_000 if full else 20_000
    many = write_store(folder / "many", large)
    for form in FORMATS:
        few, all_of_them = run_apart(store, form), run_apart(many, form)
        growth = all_of_them["seconds"] / few["seconds"] / (large / rollouts)
        yield Figure(
            f"{large:,} rollouts of {SPANS_PER_ROLLOUT} spans to .{form}: time a rollout, by that of {rollouts:,}",
            f"{growth:.2f} x",
            f"<= {GREATEST_GROWTH} x",
            growth <= GREATEST_GROWTH,
        )
        peak = all_of_them["peak"]
        yield Figure(
            f"{large * SPANS_PER_ROLLOUT:,} spans to .{form}: peak memory",
            f"{peak:.0f} MB",
            f"<= {GREATEST_MEMORY_MB} MB",
            peak <= GREATEST_MEMORY_MB,
        )


def _loading(store: Path) -> Iterator[Figure]:
    lacking = missing()
    if lacking is not None:
        yield Figure(f"the engine loads it: {lacking}", "-")
        return
    with Engine() as engine:
        for form in FORMATS:
            trace = store.with_suffix(f".{form}").read_bytes()
            began = time.perf_counter()
            engine.load(trace)
            yield Figure(f"the engine loads the .{form}", f"{time.perf_counter() - began:.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=5000)
    parser.add_argument("--full", action="store_true", help="a million spans")
    parser.add_argument("--run", nargs=2, metavar=("FORM", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(Path(options.run[1]), options.run[0])))
        return 0
    with tempfile.TemporaryDirectory(prefix="otel_gym_perfetto_") as folder:
        return print_table(list(figures(Path(folder), options.rollouts, options.full)))


if __name__ == "__main__":
    sys.exit(main())
