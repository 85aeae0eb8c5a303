"""The sealed form: how large, how fast to make, and how fast to ask.

    python bench/parquet.py [--spans N] [--rounds N] [--joined N]

The spans are those of a coding agent: 40 % model calls (25 attributes and both bodies), 40 % tool calls with their
results, 20 % steps; about 4 kB each as plain JSON; their content is Python source text, none of it twice while there is
more.

DuckDB copies the same lines to Parquet with zstd. As the goal says it, it copies them nested as they are: no attribute
becomes a column, no time is read, nothing is sorted. A second arm has it make most of the table that compaction makes.
It finds the types itself, which for many files is several times faster than to give them with `columns`. Both run on
one thread in processes of their own and take turns; the ratio is the median of the rounds.

The join is asked of one part, written by the code that compaction writes parts with, of spans with 600 B of content
that no arm reads. DuckDB reads the part and the rollouts; Python reads the same columns of the same files with pyarrow,
makes dicts of the rows, and looks up, groups and sums. DuckDB is asked three times a round, and the median counts,
since a tenth of a second is easily disturbed; what its first answer alone would give stands beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from otel_gym.conventions import SCHEMA_URL
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.parquet import COMPRESSION_LEVEL, PartWriter
from otel_gym.store.rows import AT, COLUMNS, DOUBLE, FLAG, INT, TEXT, TEXTS, Row
from table import Figure, print_table

SPANS_OF_A_ROLLOUT = 40
SIZE_GOAL, SPEED_GOAL, JOIN_GOAL = 0.22, 1.5, 12.0

COMPACT = """
import gc, sys, time
from pathlib import Path
import pyarrow
pyarrow.set_cpu_count(1); pyarrow.set_io_thread_count(1)
from otel_gym.store.compact import compact
gc.disable()
start, cpu = time.perf_counter(), time.process_time()
done = compact(Path(sys.argv[1]), idle_s=0)
print(time.perf_counter() - start, time.process_time() - cpu, done.bytes_written)
"""
COPY = """
import os, sys, time
import duckdb
connection = duckdb.connect()
connection.execute("SET threads = 1")
connection.execute("SET enable_progress_bar = false")
start, cpu = time.perf_counter(), time.process_time()
connection.execute(f"COPY ({sys.argv[2]}) TO '{sys.argv[1]}' (FORMAT parquet, COMPRESSION zstd{sys.argv[3]})")
print(time.perf_counter() - start, time.process_time() - cpu, os.path.getsize(sys.argv[1]))
"""
SOURCE = "read_ndjson('{store}/spans/*/*.jsonl', maximum_object_size = 268435456)"
AS_IT_IS = f"SELECT * FROM {SOURCE}"
# Most of what compaction does: the same attributes as columns, others in one, times, the resource, sorted. Not done:
# the others as a JSON object, one span of several that repeat it, token ids, a bloom filter.
_CELLS = {
    TEXT: "{}.stringValue",
    TEXTS: 'list_transform({}.arrayValue."values", lambda text: text.stringValue)',
    INT: "{}.intValue::BIGINT",
    DOUBLE: "{}.doubleValue",
    FLAG: "{}.boolValue",
}
_MADE_COLUMNS = [(column.name, column.attribute, column.type) for column in COLUMNS if column.attribute]
_COLUMNS = ", ".join(
    _CELLS[kind].format(f"list_filter(s.attributes, lambda a: a.key = '{attribute}')[1].value") + f' AS "{name}"'
    for name, attribute, kind in _MADE_COLUMNS
)
_NAMES = ", ".join(f"'{attribute}'" for _, attribute, _ in _MADE_COLUMNS)
WITH_COLUMNS = f"""
    SELECT list_filter(s.attributes, lambda a: a.key = 'gym.run.id')[1].value.stringValue AS run_id, rollout_id,
        s.traceId AS trace_id, s.spanId AS span_id, s.parentSpanId AS parent_span_id, s.name, s.kind,
        s.startTimeUnixNano::BIGINT AS start_ns, s.endTimeUnixNano::BIGINT AS end_ns,
        make_timestamp(start_ns // 1000) AS start_time, make_timestamp(end_ns // 1000) AS end_time,
        s.status.code AS status, to_json(resource) AS resource, scope, {_COLUMNS},
        list_filter(s.attributes, lambda a: a.key NOT IN ({_NAMES})) AS attributes
    FROM (
        SELECT rollout_id, resourceSpans[1].resource AS resource, resourceSpans[1].scopeSpans[1].scope.name AS scope,
            resourceSpans[1].scopeSpans[1].spans[1] AS s
        FROM {SOURCE})
    ORDER BY run_id, rollout_id, start_ns"""
LEVEL = f", COMPRESSION_LEVEL {COMPRESSION_LEVEL}"


class Source:
    """Pieces of the source text of the standard library and of what is installed, one after the other."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        files = sorted(Path(paths["stdlib"]).rglob("*.py")) + sorted(Path(paths["purelib"]).rglob("*.py"))
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in dict.fromkeys(files))
        self._text = "".join(texts)
        self._at = 0

    def piece(self, length: int) -> str:
        if self._at + length > len(self._text):
            self._at = 0
        self._at += length
        return self._text[self._at - length : self._at]


class Agent:
    """Makes the lines of rollouts."""

    def __init__(self) -> None:
        self._chance = random.Random(20261130)
        self._source = Source()
        resource = {
            "service.name": "policy",
            "service.instance.id": "5f0c9a3e-2f0b-4a7e-9f65-0a6b0f1d2c3e",
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": "1.45.2",
        }
        scope = {"name": "otel_gym", "attributes": key_values({"gym.store.version": "1"}), "version": "0.1.0"}
        head = encode_json({"resource": {"attributes": key_values(resource)}})[:-1]
        self._head = b'{"resourceSpans":[' + head + b',"scopeSpans":[{"scope":' + encode_json(scope) + b',"spans":['
        self._tail = b'],"schemaUrl":' + encode_json(SCHEMA_URL) + b"}]}]}\n"

    def lines(self, rollout_id: str, start_ns: int) -> Iterator[bytes]:
        trace_id = self._hex(32)
        for step in range(SPANS_OF_A_ROLLOUT):
            make = self._chance.choices((self._model_call, self._tool_call, self._step), (40, 40, 20))[0]
            name, attributes = make(step)
            identity = {"gym.run.id": "20261130T022338Z-9f3a", "gym.rollout.id": rollout_id}
            begin = start_ns + step * 10**9 + self._chance.randrange(10**8)
            span = {
                "traceId": trace_id,
                "spanId": self._hex(16),
                "parentSpanId": self._hex(16),
                "flags": 256,
                "name": name,
                "kind": 3 if name.startswith("chat") else 1,
                "startTimeUnixNano": str(begin),
                "endTimeUnixNano": str(begin + self._chance.randrange(10**9)),
                "attributes": key_values({**identity, "nemo.gym.rollout.id": rollout_id, **attributes}),
                "status": {"code": 0},
            }
            yield self._head + encode_json(span) + self._tail

    def _hex(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"

    def _length(self, median: int) -> int:
        return min(200_000, int(median * self._chance.lognormvariate(0.0, 1.0)))

    def _model_call(self, step: int) -> tuple[str, dict[str, Any]]:
        number = self._chance.randrange
        prompt, answer = self._source.piece(self._length(2100)), self._source.piece(self._length(500))
        message = {"role": "assistant", "content": answer}
        request = {"model": "gpt-x", "temperature": 0.7, "messages": [{"role": "user", "content": prompt}]}
        response = {"id": self._hex(24), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return "chat gpt-x", {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-x",
            "gen_ai.request.temperature": 0.7,
            "gen_ai.request.max_tokens": 4096,
            "gen_ai.request.stream": True,
            "gen_ai.response.id": f"chatcmpl-{self._hex(24)}",
            "gen_ai.response.model": "gpt-x-2026-10-01",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.response.time_to_first_chunk": number(10**9) / 10**9,
            "gen_ai.usage.input_tokens": number(50_000),
            "gen_ai.usage.output_tokens": number(2_000),
            "gen_ai.usage.cache_read.input_tokens": number(40_000),
            "openai.api.type": "chat_completions",
            "server.address": "127.0.0.1",
            "server.port": 8000,
            "http.response.status_code": 200,
            "gym.dialect": "chat",
            "gym.model_call.id": self._hex(32),
            "gym.response.content_type": "application/json",
            "gym.response.time_to_first_chunk_ns": number(10**9),
            "gym.response.returned_ns": number(10**9),
            "gym.request.body": json.dumps(request),
            "gym.response.body": json.dumps(response),
        }

    def _tool_call(self, step: int) -> tuple[str, dict[str, Any]]:
        result = {"content": self._source.piece(self._length(1050))}
        return "execute_tool read_file", {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.agent.name": "coder",
            "gen_ai.tool.name": "read_file",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": f"call_{self._hex(24)}",
            "gen_ai.tool.call.arguments": json.dumps({"path": f"/src/{self._chance.randrange(1000)}.py"}),
            "gen_ai.tool.call.result": json.dumps(result),
            "gym.step.index": step,
            "gym.tool.ok": True,
        }

    def _step(self, step: int) -> tuple[str, dict[str, Any]]:
        return "agent_step", {"gen_ai.agent.name": "coder", "gym.step.index": step, "gym.step.tools": 2}


def write_store(directory: Path, spans: int) -> int:
    """Live files of a process that has ended; returns their size."""
    agent, size = Agent(), 0
    for number in range(spans // SPANS_OF_A_ROLLOUT):
        rollout_id = f"{number // 8}-{number % 8}"
        path = directory / "spans" / f"rollout_id={rollout_id}" / f"policy.elsewhere.1.{number:08x}.jsonl"
        path.parent.mkdir(parents=True)
        content = b"".join(agent.lines(rollout_id, 1_790_000_000 * 10**9 + number * 10**8))
        path.write_bytes(content)
        size += len(content)
    return size


def timed(code: str, *arguments: object) -> tuple[float, float, int]:
    """Wall and processor seconds, and the bytes that were written, of one process."""
    finished = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True
    )
    wall, cpu, size = finished.stdout.split()
    return float(wall), float(cpu), int(size)


def compaction_figures(folder: Path, spans: int, rounds: int) -> list[Figure]:
    store, copy = folder / "store", folder / "duckdb.parquet"
    lines = write_store(store, spans)
    arms: dict[str, Callable[[], tuple[float, float, int]]] = {
        "compact": lambda: timed(COMPACT, store),
        "copy": lambda: timed(COPY, copy, AS_IT_IS.format(store=store), ""),
        "copy at our level": lambda: timed(COPY, copy, AS_IT_IS.format(store=store), LEVEL),
        "copy with columns": lambda: timed(COPY, copy, WITH_COLUMNS.format(store=store), LEVEL),
    }
    results: dict[str, list[tuple[float, float, int]]] = {name: [] for name in arms}
    order = list(arms)
    for _ in range(rounds):
        for name in order:
            results[name].append(arms[name]())
            shutil.rmtree(store / "parquet", ignore_errors=True)
        order.append(order.pop(0))

    def ratio(name: str, clock: int) -> float:
        pairs = zip(results[name], results["compact"], strict=True)
        return statistics.median(theirs[clock] / ours[clock] for theirs, ours in pairs)

    def size(name: str) -> float:
        return results[name][0][2] / lines

    cpu = statistics.median(run[1] for run in results["compact"])
    copied = ratio("copy", 1)
    return [
        Figure("spans", f"{spans:,} of {lines / spans:,.0f} bytes a line"),
        Figure("Parquet / JSONL, bytes", f"{size('compact'):.3f}", f"≤ {SIZE_GOAL}", size("compact") <= SIZE_GOAL),
        Figure("DuckDB COPY / JSONL, bytes", f"{size('copy'):.3f}"),
        Figure(
            "DuckDB COPY / compaction, processor time", f"{copied:.2f} ×", f"≥ {SPEED_GOAL} ×", copied >= SPEED_GOAL
        ),
        Figure("the same, wall", f"{ratio('copy', 0):.2f} ×"),
        Figure(f"the same, both zstd level {COMPRESSION_LEVEL}", f"{ratio('copy at our level', 1):.2f} ×"),
        Figure(
            f"the same, and DuckDB makes the same {len(_MADE_COLUMNS)} columns of attributes, times, and sorts",
            f"{ratio('copy with columns', 1):.2f} ×",
        ),
        Figure("compaction", f"{cpu / spans * 1e6:.1f} us a span, {lines / cpu / 1e6:.0f} MB/s"),
    ]


# The more is summed, the more SQL wins: with one sum and one mean by task alone it was 6 to 9 times faster here.
JOIN = """
    SELECT r.task, s.operation, count(*), sum(s.input_tokens)::BIGINT, sum(s.output_tokens)::BIGINT,
        count(*) FILTER (s.status = 'ERROR'), max(s.end_ns - s.start_ns), avg(s.end_ns - s.start_ns), avg(r.reward)
    FROM '{spans}' s JOIN '{rollouts}' r USING (rollout_id)
    GROUP BY ALL ORDER BY ALL"""


JOINED = ["rollout_id", "operation", "status", "input_tokens", "output_tokens", "start_ns", "end_ns"]
CONTENT_CHARACTERS = 600


def write_part(path: Path, spans: int, rollouts: int) -> None:
    """One part with ``spans`` spans, the same number in each rollout."""
    chance, source, first = random.Random(20261130), Source(), 1_790_000_000 * 10**9
    writer = PartWriter(path, "run-1")
    for rollout_id in sorted(f"{number}-0" for number in range(rollouts)):
        rows = []
        for n in range(spans // rollouts):
            start = first + n * 10**10 + chance.randrange(10**10)
            row: Row = [None] * len(COLUMNS)
            said = {
                "run_id": "run-1",
                "rollout_id": rollout_id,
                "trace_id": f"{chance.getrandbits(128):032x}",
                "span_id": f"{chance.getrandbits(64):016x}",
                "name": "chat gpt-x" if n % 2 else "execute_tool read_file",
                "kind": "CLIENT" if n % 2 else "INTERNAL",
                "start_ns": start,
                "end_ns": start + chance.randrange(10**9),
                "status": "UNSET" if n % 50 else "ERROR",
                "operation": "chat" if n % 2 else "execute_tool",
                "input_tokens": chance.randrange(50_000) if n % 2 else None,
                "output_tokens": chance.randrange(2_000) if n % 2 else None,
                "response_body" if n % 2 else "tool_result": source.piece(CONTENT_CHARACTERS),
            }
            for name, value in said.items():
                row[AT[name]] = value
            rows.append(row)
        writer.add(rows, (CONTENT_CHARACTERS + 200) * len(rows))
    writer.close([])


def join_figures(folder: Path, spans: int, rollouts: int = 10_000) -> list[Figure]:
    """Tokens, errors, latency and reward by task and operation, from the same files: by SQL, and by dicts of Python."""
    rollout_rows = [{"rollout_id": f"{n}-0", "task": n % 100, "reward": n % 7 / 6} for n in range(rollouts)]
    paths = {"spans": folder / "spans.parquet", "rollouts": folder / "rollouts.parquet"}
    write_part(paths["spans"], spans, rollouts)
    pq.write_table(pa.Table.from_pylist(rollout_rows), paths["rollouts"], compression="zstd")
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    query = JOIN.format(**paths)
    by_sql = connection.execute(query).fetchall()
    ratios, first_ratios, in_memory, sql_times = [], [], [], []
    by_dicts: list[tuple[Any, ...]] = []
    for _ in range(5):
        asked = [processor_time(lambda: connection.execute(query).fetchall()) for _ in range(3)]
        sql = statistics.median(asked)
        start = time.process_time()
        tables = [
            pq.read_table(path, columns=columns, use_threads=False).to_pylist()
            for path, columns in ((paths["spans"], JOINED), (paths["rollouts"], None))
        ]
        read = time.process_time()
        by_dicts = join_of_dicts(*tables)
        end = time.process_time()
        ratios.append((end - start) / sql)
        first_ratios.append((end - start) / asked[0])
        in_memory.append((end - read) / sql)
        sql_times.append(sql)
    same = [row[:7] for row in by_sql] == [row[:7] for row in by_dicts]
    ratio = statistics.median(ratios)
    return [
        Figure("join: both give the same sums", "yes" if same else "no", "yes", same),
        Figure(
            f"join of {spans:,} spans with {rollouts:,} rollouts, Python dicts / DuckDB",
            f"{ratio:.1f} × ({statistics.median(sql_times):.2f} s)",
            f"≥ {JOIN_GOAL:.0f} ×",
            ratio >= JOIN_GOAL,
        ),
        Figure("the same, DuckDB's first answer of a round", f"{statistics.median(first_ratios):.1f} ×"),
        Figure("the same, where Python has the rows in memory", f"{statistics.median(in_memory):.1f} ×"),
    ]


def processor_time(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def join_of_dicts(spans: list[dict[str, Any]], rollouts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    by_id = {rollout["rollout_id"]: rollout for rollout in rollouts}
    groups: dict[tuple[int, str], list[Any]] = {}
    for span in spans:
        rollout = by_id.get(span["rollout_id"])
        if rollout is None:
            continue
        key = (rollout["task"], span["operation"])
        group = groups.get(key)
        if group is None:
            group = groups[key] = [0, None, None, 0, 0, 0, 0.0]
        latency = span["end_ns"] - span["start_ns"]
        group[0] += 1
        if span["input_tokens"] is not None:
            group[1] = (group[1] or 0) + span["input_tokens"]
        if span["output_tokens"] is not None:
            group[2] = (group[2] or 0) + span["output_tokens"]
        if span["status"] == "ERROR":
            group[3] += 1
        group[4] = max(group[4], latency)
        group[5] += latency
        group[6] += rollout["reward"]
    return [(*key, *g[:5], g[5] / g[0], g[6] / g[0]) for key, g in sorted(groups.items())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--joined", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = compaction_figures(Path(folder), options.spans, options.rounds)
        figures += join_figures(Path(folder), options.joined)
    return print_table(figures)


if __name__ == "__main__":
    sys.exit(main())
