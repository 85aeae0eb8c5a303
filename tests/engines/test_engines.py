"""The real engines read ``<dir>/parquet`` by folder, without options, by the queries of docs/store.md."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.compact import compact
from otel_gym.store.parquet import read_footer
from otel_gym.store.rows import COLUMNS
from otel_gym.store.span import StoredSpan
from tests.store.stores import span, write

ROOT = Path(__file__).parent.parent.parent
ENGINES = ROOT / ".venv-engines" / "bin" / "python"
PAGE = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
LOG_PROBS = (
    '{"choices":[{"message":{},"logprobs":{"content":[{"logprob":-Infinity},{"logprob":null},{"logprob":NaN}]}}]}'
)

# What each adds to the query of the page: the rows of the query, the rows of the folder, and one span with odd values.
ADDITIONS = {
    "DuckDB": """
found = duckdb.sql("SELECT * FROM read_parquet('otel_gym_store/parquet')")
names, count = found.columns, len(found.fetchall())
odd = duckdb.sql("SELECT generation_log_probs, prompt_token_ids, start_time, start_ns, attributes "
                 "FROM read_parquet('otel_gym_store/parquet') WHERE rollout_id = '12'").fetchall()[0]
""",
    "polars": """
rows = frame.rows()
found = pl.read_parquet("otel_gym_store/parquet")
names, count = found.columns, found.height
odd = found.filter(pl.col("rollout_id") == "12").select(
    "generation_log_probs", "prompt_token_ids", "start_time", "start_ns", "attributes").rows()[0]
""",
    "pyarrow": """
rows = [tuple(row.values()) for row in table.to_pylist()]
found = ds.dataset("otel_gym_store/parquet").to_table()
names, count = found.column_names, found.num_rows
odd = next((r["generation_log_probs"], r["prompt_token_ids"], r["start_time"], r["start_ns"], r["attributes"])
           for r in found.to_pylist() if r["rollout_id"] == "12")
""",
    "Spark": """
rows = [tuple(row) for row in frame.collect()]
found = spark.read.parquet("otel_gym_store/parquet")
spark.conf.set("spark.sql.session.timeZone", "UTC")
names, count = found.columns, len(found.collect())
odd = tuple(found.filter("rollout_id = '12'").selectExpr(
    "generation_log_probs", "prompt_token_ids", "date_format(start_time, \\"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\\")",
    "start_ns", "attributes").collect()[0])
""",
    "Ray Data": """
rows = [tuple(row.values()) for row in dataset.take_all()]
found = ray.data.read_parquet("otel_gym_store/parquet")
names = found.schema().names
spans = found.take_all()
count = len(spans)
odd = next((list(r["generation_log_probs"]), list(r["prompt_token_ids"]), r["start_time"], int(r["start_ns"]),
            r["attributes"]) for r in spans if r["rollout_id"] == "12")
ray.shutdown()
""",
}
# So that a query over seven spans does not take a minute.
FIRST = {
    "Ray Data": """
import ray
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 1
"""
}
SPARK = "--master local[1] --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false pyspark-shell"
LAST = """
import datetime, json
def plain(value):
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).isoformat()
    return value.item() if hasattr(value, "item") else list(value)
print("FOUND " + json.dumps({"rows": rows, "names": list(names), "count": count, "odd": odd}, default=plain))
"""


def query(engine: str) -> str:
    found = re.search(rf"^### {engine}\n\n```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, engine
    return found[1]


def call(n: int) -> StoredSpan:
    """Below the span that a client's own instrumentation made of it."""
    said: dict[str, Any] = {"gen_ai.usage.input_tokens": n, "gym.model_call.id": f"{n:032x}"}
    return span(n, f"{n % 3}-0", parent_span_id=f"{n + 100:016x}", attributes=said)


def client_span(n: int) -> StoredSpan:
    return span(n + 100, f"{n % 3}-0", attributes={"gen_ai.usage.input_tokens": n})


def root(n: int) -> StoredSpan:
    changes: dict[str, Any] = {"trace_id": f"{n:032x}", "name": "rollout", "attributes": {"gym.reward": n / 2}}
    return span(n + 200, f"{n}-0", **changes)


def odd_call() -> StoredSpan:
    tokens = {"gym.response.body": LOG_PROBS.replace("}]}", '}],"prompt_token_ids":[1,2]}'), "odd": ["é", {"a": {}}]}
    return span(6, "12", run_id=None, attributes=tokens, start_ns=1_790_000_000_123_456_789)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several parts: some without rewards, one with odd values, one without any row."""
    folder = tmp_path_factory.mktemp("engines")
    store = folder / "otel_gym_store"
    for n in range(6):
        spans = [call(n), client_span(n)] + ([root(n)] if n < 3 else [])
        write(store, spans, f"{n % 3}-0", writer=f"w{n}.elsewhere.1.0000000a")
        if n % 2:
            compact(store, idle_s=0)
    write(store, [odd_call()], "12")
    compact(store, idle_s=0)
    write(store, [call(1)], "1-0")
    write(store, [odd_call()], "12", "again.elsewhere.1.0000000a")
    (empty,) = compact(store, idle_s=0).parts
    assert read_footer(empty).rows == 0
    return folder


def read(engine: str, python: Path | str, folder: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_SUBMIT_ARGS": SPARK,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "TZ": "UTC",
    }
    code = FIRST.get(engine, "") + query(engine) + ADDITIONS[engine] + LAST
    finished = subprocess.run(
        [python, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    for line in finished.stdout.splitlines():
        if line.startswith("FOUND "):
            return dict(json.loads(line[6:]))
    pytest.fail(f"{engine}: {finished.stderr[-3000:]}")


def python_of(engine: str) -> Path | str:
    if engine in ("DuckDB", "pyarrow"):
        return sys.executable
    if not ENGINES.exists():
        pytest.skip(f"{engine} is not installed: `make engines` puts it into .venv-engines")
    if engine == "Spark" and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and there is none")
    return ENGINES


HEAVY = ("polars", "Spark", "Ray Data")


@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=pytest.mark.engines if name in HEAVY else ()) for name in ADDITIONS]
)
def test_the_folder_is_read_without_options(folder, engine):
    found = read(engine, python_of(engine), folder)
    no_tokens = 0 if engine == "polars" else None  # its sum of nothing is 0
    expected = [("r", "0-0", 2, 3, 0.0), ("r", "1-0", 2, 5, 0.5), ("r", "2-0", 2, 7, 1.0)]
    assert sorted(map(tuple, found["rows"]), key=str) == sorted([*expected, (None, "12", 0, no_tokens, None)], key=str)
    assert found["names"] == [column.name for column in COLUMNS]
    assert found["count"] == 16
    log_probs, prompt, start_time, start_ns, attributes = found["odd"]
    assert log_probs[0] == -math.inf and log_probs[1] is None and math.isnan(log_probs[2])
    assert prompt == [1, 2]
    assert (start_ns, start_time[:26]) == (1_790_000_000_123_456_789, "2026-09-21T14:13:20.123456")
    assert json.loads(attributes)["odd"] == ["é", {"a": {}}]


def recorded(span_id: int, began: int, parent: int | None = None, trace: int = 1, **changes: Any) -> StoredSpan:
    """Attributes alone, no bodies: what the columns say is all there is."""
    above = None if parent is None else f"{parent:016x}"
    times = {"start_ns": began, "end_ns": began + 1000 - (span_id % 10)}
    ids = {"span_id": f"{span_id:016x}", "parent_span_id": above, "trace_id": f"{trace:032x}"}
    found = span(0, **changes, **ids, **times)
    del found.attributes["gym.request.body"]
    return found


def execution(number: int, rollout_id: str, run_id: str = "r") -> list[StoredSpan]:
    """A rollout with a call of a client that traces itself, through a proxy, to a server that captures it too."""
    first, began = number * 10, 1_790_000_000_000_000_000 + number * 1_000_000
    tokens: dict[str, Any] = {"gen_ai.usage.input_tokens": 20 + number, "gen_ai.usage.output_tokens": 3}
    captured = [tokens | {"gym.model_call.id": f"{number}-{layer}", "gym.dialect": "messages"} for layer in (2, 4)]
    layers: list[tuple[str, dict[str, Any]]] = [
        ("rollout", {"gym.reward": float(number), "gen_ai.operation.name": "invoke_agent"}),
        ("anthropic.messages.create", tokens),
        ("chat m", captured[0]),
        ("POST /v1/messages", {"gen_ai.operation.name": "http"}),
        ("chat m", captured[1]),
    ]
    parents = [None, *range(first, first + 4)]
    return [
        recorded(first + at, began + at, parent, rollout_id=rollout_id, run_id=run_id, name=name, attributes=said)
        for at, (parent, (name, said)) in enumerate(zip(parents, layers, strict=True))
    ]


def test_the_query_of_the_page_gave_other_numbers_than_ls_and_stats(tmp_path: Path) -> None:
    """Twice the tokens where the client traced itself, where a rollout ran again, and behind `proxy --propagate`."""
    store = tmp_path / "otel_gym_store"
    by_prefix = {"gen_ai.usage.input_tokens": 7, "gym.model_call.id": "by prefix alone"}
    without_run = recorded(900, 1_790_000_000_004_000_009, trace=9, rollout_id="3-0", run_id=None, attributes=by_prefix)
    rollouts = {
        "1-0": execution(1, "1-0"),
        "2-0": execution(2, "2-0") + execution(3, "2-0"),
        "3-0": [*execution(4, "3-0"), without_run],
        "4-0": [execution(5, "4-0")[0]],
        "5-0": execution(6, "5-0", "r") + execution(7, "5-0", "s"),
    }
    for rollout_id, spans in rollouts.items():
        write(store, spans, rollout_id)
    compact(store, idle_s=0, remove=True)

    def said(command: str) -> list[dict[str, Any]]:
        lines = CliRunner().invoke(app, [command, "--json", "--dir", str(store)]).stdout.splitlines()
        return [json.loads(line) for line in lines]

    found: dict[str, Any] = {}
    code = query("DuckDB").replace("otel_gym_store/parquet", str(store / "parquet"))
    exec(code, found)
    names = ("run_id", "rollout_id", "calls", "tokens_in", "reward")
    listed = [tuple(row[name] for name in names) for row in said("ls")]
    assert sorted(found["rows"]) == sorted(listed)
    assert [(row[1], row[2], row[3]) for row in listed if row[0] == "r"] == [
        ("1-0", 1, 21),
        ("2-0", 1, 23),
        ("3-0", 2, 31),
        ("4-0", 0, None),
        ("5-0", 1, 26),
    ]
    for run in said("stats"):
        rows = [row for row in found["rows"] if row[0] == run["run_id"]]
        assert (sum(row[2] for row in rows), sum(row[3] or 0 for row in rows)) == (run["calls"], run["tokens_in"])
