"""`otel-gym query` over a sealed store: how long, against plain DuckDB on the same Parquet and against our reader.

    python bench/query.py [--spans N] [--rollouts N] [--rounds N] [--odd PERCENT]

Rollouts hold a root, steps, and in each step a model call and a tool call, with 600 B of content that no query reads.
``--odd`` of them ran twice under one id, so that each of their spans has to be placed by itself. Plain DuckDB gives the
sums over all spans, without asking which of them count: what it takes is the least that any view could. The query of
docs/store.md asks plain DuckDB which of them count, as far as SQL alone can say it. The whole answer is timed: opening
the store, making the views, the query; wall time, all cores, medians of rounds in turns. Our reader reads the same
figures of a hundredth of the rollouts, and is reckoned up.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from otel_gym.store.parquet import PartWriter, part_name
from otel_gym.store.reader import open_store
from otel_gym.store.rows import AT, COLUMNS, Row
from otel_gym.views.query import Query
from otel_gym.views.summary import summarize_rollout
from parquet import CONTENT_CHARACTERS, Source
from table import Figure, print_table

SECONDS_GOAL, READER_GOAL, PAGE_GOAL = 10.0, 10.0, 1.0
PAGE = Path(__file__).parent.parent / "docs" / "store.md"
FIRST_NS = 1_790_000_000 * 10**9
ROLLOUTS_OF_A_PART = 1000

OTHERS = {f"gym.some.other.attribute_{number}": f"value {number}" for number in range(8)}

# Name → (as a user asks it, the same sums without asking what counts).
QUERIES = {
    "spans by operation": (
        "SELECT operation, count(*), avg(end_ns - start_ns) FROM spans GROUP BY ALL ORDER BY ALL",
        "SELECT operation, count(*), avg(end_ns - start_ns) FROM {parquet} GROUP BY ALL ORDER BY ALL",
    ),
    "tokens by model": (
        "SELECT request_model, count(*), sum(input_tokens) FROM model_calls GROUP BY ALL ORDER BY ALL",
        """SELECT request_model, count(*), sum(input_tokens) FROM {parquet} WHERE operation = 'chat'
        GROUP BY ALL ORDER BY ALL""",
    ),
    "tool errors": (
        "SELECT tool, count(*), count(*) FILTER (status = 'ERROR') FROM tools GROUP BY ALL ORDER BY ALL",
        """SELECT tool, count(*), count(*) FILTER (status = 'ERROR') FROM {parquet} WHERE operation = 'execute_tool'
        GROUP BY ALL ORDER BY ALL""",
    ),
    "reward by task": (
        "SELECT task_index, count(*), avg(reward), sum(input_tokens) FROM rollouts GROUP BY ALL ORDER BY ALL",
        """SELECT task, count(*), avg(reward), sum(tokens) FROM (
            SELECT split_part(rollout_id, '-', 1) AS task, max(reward) AS reward, sum(input_tokens) AS tokens
            FROM {parquet} GROUP BY run_id, rollout_id) GROUP BY ALL ORDER BY ALL""",
    ),
}


class Rollouts:
    """Makes the rows of rollouts."""

    def __init__(self) -> None:
        self._chance, self._source = random.Random(20261130), Source()

    def rows(self, rollout_id: str, spans: int, executions: int) -> list[Row]:
        rows: list[Row] = []
        for number in range(executions):
            trace_id, start = self._hex(32), FIRST_NS + number * 10**13
            root = self._row(rollout_id, trace_id, None, "rollout", start, spans * 10**9)
            root[AT["reward"]] = self._chance.randrange(2) * 1.0
            rows.append(root)
            for step in range((spans // executions - 1) // 3):
                begin = start + step * 3 * 10**9
                parent = root[AT["span_id"]]
                above = self._row(rollout_id, trace_id, parent, "agent_step", begin, 3 * 10**9)
                rows += [above, *self._work(rollout_id, trace_id, above[AT["span_id"]], begin)]
        return rows

    def _work(self, rollout_id: str, trace_id: str, parent: str, begin: int) -> list[Row]:
        call = self._row(rollout_id, trace_id, parent, "chat gpt-x", begin, 10**9)
        tool = self._row(rollout_id, trace_id, parent, "execute_tool read_file", begin + 10**9, 10**9)
        said = {
            "operation": "chat",
            "model_call_id": self._hex(32),
            "request_model": f"gpt-{self._chance.randrange(4)}",
            "input_tokens": self._chance.randrange(50_000),
            "output_tokens": self._chance.randrange(2_000),
            "response_id": self._hex(24),
            "response_body": self._source.piece(CONTENT_CHARACTERS),
        }
        for name, value in said.items():
            call[AT[name]] = value
        ran = {"operation": "execute_tool", "tool": "read_file", "tool_result": self._source.piece(CONTENT_CHARACTERS)}
        for name, value in ran.items():
            tool[AT[name]] = value
        if not self._chance.randrange(50):
            tool[AT["status"]] = "ERROR"
        return [call, tool]

    def _row(self, rollout_id: str, trace_id: str, parent: str | None, name: str, start: int, length: int) -> Row:
        row: Row = [None] * len(COLUMNS)
        said = {
            "run_id": "run-1",
            "rollout_id": rollout_id,
            "trace_id": trace_id,
            "span_id": self._hex(16),
            "parent_span_id": parent,
            "name": name,
            "kind": "INTERNAL",
            "scope": "otel_gym",
            "start_ns": start,
            "end_ns": start + length,
            "status": "UNSET",
            "attributes": json.dumps({"gym.rollout.id": rollout_id, "nemo.gym.rollout.id": rollout_id} | OTHERS),
        }
        for column, value in said.items():
            row[AT[column]] = value
        return row

    def _hex(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"


def write_store(store: Path, spans: int, rollouts: int, odd: int) -> None:
    made = Rollouts()
    (store / "parquet").mkdir(parents=True)
    ids = sorted(f"{number // 8}-{number % 8}" for number in range(rollouts))
    for start in range(0, rollouts, ROLLOUTS_OF_A_PART):
        part = store / "parquet" / part_name([]).replace("part-", f"part-{start:06d}")
        writer = PartWriter(part, "run-1")
        for number, rollout_id in enumerate(ids[start : start + ROLLOUTS_OF_A_PART]):
            rows = made.rows(rollout_id, spans // rollouts, 2 if number % 100 < odd else 1)
            writer.add(rows, (CONTENT_CHARACTERS + 200) * len(rows))
        writer.close([])


def ask(store: Path, text: str) -> list[tuple[Any, ...]]:
    with Query(store, text) as query:
        return list(query.rows())


def plain(store: Path, text: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(text.format(parquet=f"read_parquet('{store}/parquet/*.parquet')")).fetchall()


def sums(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without the first column, which one says as a number and the other as text."""
    return sorted((row[1:] for row in rows), key=repr)


def seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def figures(store: Path, rounds: int, odd: int) -> list[Figure]:
    found = []
    for name, (ours, theirs) in QUERIES.items():
        times = [(seconds(ask, store, ours), seconds(plain, store, theirs)) for _ in range(rounds)]
        took = statistics.median(our for our, _ in times)
        factor = statistics.median(our / their for our, their in times)
        value = f"{took:.2f} s, {factor:.1f} × plain DuckDB"
        found.append(Figure(name, value, f"≤ {SECONDS_GOAL:.0f} s", took <= SECONDS_GOAL))
        if not odd:
            same = sums(ask(store, ours)) == sums(plain(store, theirs))
            found.append(Figure(f"{name}: the same sums", "yes" if same else "no", "yes", same))
    return found


def page_figure(store: Path, rounds: int) -> Figure:
    """Calls, tokens and reward of each rollout that counts."""
    [text] = re.findall(r'duckdb\.sql\("""(.*?)"""\)', PAGE.read_text(), re.DOTALL)
    theirs = text.replace("read_parquet('otel_gym_store/parquet')", "{parquet}")
    ours = "SELECT run_id, rollout_id, calls, input_tokens, reward FROM rollouts ORDER BY ALL"
    factors = [seconds(plain, store, theirs) / seconds(ask, store, ours) for _ in range(rounds)]
    factor = statistics.median(factors)
    name = "calls, tokens, reward by rollout: the query of docs/store.md / query"
    return Figure(name, f"{factor:.1f} ×", f"≥ {PAGE_GOAL:.0f} ×", factor >= PAGE_GOAL)


def reader_figure(store: Path, rollouts: int) -> Figure:
    opened = open_store(store)
    some = sorted(opened.rollout_ids())[: max(1, rollouts // 100)]
    took = seconds(lambda: [summarize_rollout(each) for name in some for each in opened.rollouts(name)])
    ours = seconds(ask, store, QUERIES["reward by task"][0])
    factor = took * rollouts / len(some) / ours
    return Figure(
        "reward by task, our reader / query", f"{factor:.0f} ×", f"≥ {READER_GOAL:.0f} ×", factor >= READER_GOAL
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--odd", type=int, default=0, help="percent of rollouts that ran twice")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        write_store(store, options.spans, options.rollouts, options.odd)
        found = [Figure("store", f"{options.spans:,} spans, {options.rollouts:,} rollouts, {options.odd} % ran twice")]
        found += figures(store, options.rounds, options.odd)
        found.append(page_figure(store, options.rounds))
        found.append(reader_figure(store, options.rollouts))
    return print_table(found)


if __name__ == "__main__":
    sys.exit(main())
