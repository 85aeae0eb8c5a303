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
    said: dict[str, Any] = {"gen_ai.usage.input_tokens": n, "gym.model_call.id": f"{n:032x}"}
    return span(n, f"{n % 3}-0", attributes=said | ({"gym.reward": n / 2} if n < 3 else {}))


def odd_call() -> StoredSpan:
    tokens = {"gym.response.body": LOG_PROBS.replace("}]}", '}],"prompt_token_ids":[1,2]}'), "odd": ["é", {"a": {}}]}
    return span(6, "12", run_id=None, attributes=tokens, start_ns=1_790_000_000_123_456_789)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several parts: some without rewards, one with odd values, one without any row."""
    folder = tmp_path_factory.mktemp("engines")
    store = folder / "otel_gym_store"
    for n in range(6):
        write(store, [call(n)], f"{n % 3}-0", writer=f"w{n}.elsewhere.1.0000000a")
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
    assert found["count"] == 7
    log_probs, prompt, start_time, start_ns, attributes = found["odd"]
    assert log_probs[0] == -math.inf and log_probs[1] is None and math.isnan(log_probs[2])
    assert prompt == [1, 2]
    assert (start_ns, start_time[:26]) == (1_790_000_000_123_456_789, "2026-09-21T14:13:20.123456")
    assert json.loads(attributes)["odd"] == ["é", {"a": {}}]
