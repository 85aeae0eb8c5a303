"""How fast a trace of Dynamo's becomes one for Perfetto, without a store, and that memory does not grow with it.

    python bench/dynamo.py [--records N]

A trace as Dynamo writes it (some 210 MB of 200,000 records: 500 sessions of 4 trajectories, requests, tools) is written
to Chrome JSON by ``otel-gym export perfetto --dynamo``, one process: records a second are those of its processor time,
user and system, from start to end, memory is its peak. The same of 20,000 sessions of 2 trajectories. Beside it, in the
same minute, a bare loop: each line through Python's ``json`` to a dict and back to a file; and the same with orjson.

Dynamo's own converter was measured once, on another machine: 8,400 records/s, 1,260 MB; of 20,000 sessions 330
records/s; where a bare loop made 62,500 records/s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from table import Figure, print_table

LEAST_SPEED = 42_000
GREATEST_MEMORY_MB = 130
# A record of ten times as many trajectories may take this much longer: each has its threads and its slice.
GREATEST_GROWTH = 1.6
ROUNDS = 3
SHAPES = {"500 sessions × 4": (500, 4), "20,000 sessions × 2": (20_000, 2)}
T0_MS = 1_777_312_800_000
BARE = """
import sys{imports}
with open(sys.argv[1], "rb") as lines, open(sys.argv[2], "wb") as out:
    for line in lines:
        out.write({loop})
"""
BARE_LOOPS = {
    "json": ("", 'json.dumps(json.loads(line)).encode() + b"\\n"'),
    "orjson": ("", 'orjson.dumps(orjson.loads(line)) + b"\\n"'),
}


class Cost(NamedTuple):
    """Seconds of the processor, MB at the peak."""

    seconds: float
    peak_mb: float


def write_trace(path: Path, records: int, sessions: int, trajectories: int) -> None:
    """Three requests, then a tool, in each trajectory; all trajectories at once."""
    some = random.Random(8)
    with path.open("w", encoding="utf-8") as file:
        for number in range(records):
            turn, agent = divmod(number, sessions * trajectories)
            session, trajectory = divmod(agent, trajectories)
            at_ms = T0_MS + turn * 1000 + agent % 800
            context = {
                "session_type_id": "deep_research",
                "session_id": f"session-{session:05d}",
                "trajectory_id": f"session-{session:05d}:agent-{trajectory}",
            }
            if trajectory:
                context["parent_trajectory_id"] = f"session-{session:05d}:agent-0"
            event = _tool(number, at_ms) if turn % 4 == 3 else _request(number, at_ms, some)
            event = {"schema": "dynamo.agent.trace.v1", "agent_context": context, **event}
            file.write(json.dumps({"timestamp": turn, "event": event}, separators=(",", ":")) + "\n")


def _tool(number: int, at_ms: int) -> dict[str, Any]:
    tool = {
        "tool_call_id": f"call-{number}",
        "tool_class": "web_search",
        "status": "succeeded",
        "started_at_unix_ms": at_ms,
        "ended_at_unix_ms": at_ms + 100,
        "duration_ms": 100.0,
        "output_bytes": 2048,
    }
    told = {"event_type": "tool_end", "event_time_unix_ms": at_ms + 100, "event_source": "harness"}
    return {**told, "tool": tool}


def _request(number: int, at_ms: int, some: random.Random) -> dict[str, Any]:
    wait, prefill, total = some.uniform(0, 10), some.uniform(5, 60), some.uniform(200, 900)
    tokens = some.randrange(40, 480)
    asked = {"choice_index": 0, "tool_call_index": 0, "id": f"call-{number}", "name": "web_search"}
    reasons = {"finish_reason": "tool_calls", "backend_finish_reason": "stop"}
    request = {
        "request_id": f"{some.getrandbits(128):032x}",
        "x_request_id": f"llm-{number}",
        "model": "my-org/my-model-70b",
        "input_tokens": tokens,
        "output_tokens": some.randrange(5, 300),
        "cached_tokens": tokens // 2,
        "request_received_ms": at_ms,
        "prefill_wait_time_ms": wait,
        "prefill_time_ms": prefill,
        "ttft_ms": wait + prefill,
        "total_time_ms": total,
        "avg_itl_ms": some.uniform(2, 8),
        "kv_hit_rate": some.random(),
        "queue_depth": some.randrange(4),
        "worker": {"prefill_worker_id": 7587894923333011484, "decode_worker_id": 7587894923333011487},
        "replay": {
            "trace_block_size": 64,
            "input_length": tokens,
            "input_sequence_hashes": [some.getrandbits(64) for _ in range((tokens + 63) // 64)],
        },
        "finish_reason_metadata": {**reasons, "tool_calls": [asked], "choices": [{"choice_index": 0, **reasons}]},
    }
    told = {"event_type": "request_end", "event_time_unix_ms": at_ms + round(total), "event_source": "dynamo"}
    return {**told, "request": request}


def cost(command: list[str]) -> Cost:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def converted(trace: Path, output: Path) -> Cost:
    python = "from otel_gym.cli.main import app; app()"
    return cost([sys.executable, "-c", python, "export", "perfetto", "--dynamo", str(trace), "-o", str(output)])


def bare(trace: Path, output: Path, package: str) -> Cost:
    imports, loop = BARE_LOOPS[package]
    return cost(
        [sys.executable, "-c", BARE.format(imports=f", {package}{imports}", loop=loop), str(trace), str(output)]
    )


def figures(folder: Path, records: int) -> Iterator[Figure]:
    output, best = folder / "out.json", {}
    for shape, (sessions, trajectories) in SHAPES.items():
        trace = folder / "trace.jsonl"
        write_trace(trace, records, sessions, trajectories)
        began = time.perf_counter()
        rounds = [converted(trace, output) for _ in range(ROUNDS)]
        best[shape] = min(rounds)
        what = f"{records:,} records, {trace.stat().st_size / 10**6:.0f} MB, {shape}"
        yield from _speed(what, records, rounds, has_goal=len(best) == 1)
        if sessions > records // trajectories // 10:
            continue
        yield Figure("the trace that it becomes", f"{output.stat().st_size / 10**6:.0f} MB")
        for package in BARE_LOOPS:
            loop = min(bare(trace, output, package) for _ in range(ROUNDS))
            yield Figure(
                f"the same by a bare loop of {package}: records a second; ours by it",
                f"{records / loop.seconds:,.0f}; {loop.seconds / best[shape].seconds:.2f} x",
            )
        yield Figure("all this took", f"{time.perf_counter() - began:.0f} s")
    few, many = best.values()
    growth = many.seconds / few.seconds
    yield Figure(
        "a record of 20,000 sessions × 2, by one of 500 × 4: time",
        f"{growth:.2f} x",
        f"<= {GREATEST_GROWTH} x",
        growth <= GREATEST_GROWTH,
    )


def _speed(what: str, records: int, rounds: list[Cost], *, has_goal: bool) -> Iterator[Figure]:
    """Of many sessions the goal is that of growth."""
    speed, peak = records / min(rounds).seconds, max(each.peak_mb for each in rounds)
    yield Figure(
        f"{what}: to Chrome JSON, of processor time",
        f"{speed:,.0f} records/s",
        f">= {LEAST_SPEED:,} records/s" if has_goal else "-",
        speed >= LEAST_SPEED or not has_goal,
    )
    yield Figure("the same: peak memory", f"{peak:.0f} MB", f"<= {GREATEST_MEMORY_MB} MB", peak <= GREATEST_MEMORY_MB)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="otel_gym_dynamo_") as folder:
        return print_table(list(figures(Path(folder), options.records)))


if __name__ == "__main__":
    sys.exit(main())
