"""The programs of docs/scale.md give what one process gives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.store.reader import open_store
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import json_line
from otel_gym.views.selection import selected_rollouts
from tests.engines.test_engines import SPARK, python_of
from tests.store.sealed import sealed_store

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    sealed_store(folder / "otel_gym_store")
    shutil.copytree(folder / "otel_gym_store", folder / "training" / "step-1")
    shutil.copytree(folder / "otel_gym_store", folder / "training" / "step-2")
    return folder


def program(heading: str) -> str:
    found = re.search(rf"^##+ {heading}\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def printed(python: Path | str, folder: Path, code: str, **more: str) -> list[str]:
    (folder / "program.py").write_text(code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_"))}
    environment = {**clean, "PYTHONPATH": str(ROOT), **more}
    finished = subprocess.run(
        [python, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout.splitlines()


def rows_of_one_process(folder: Path) -> list[str]:
    store = open_store(folder / "otel_gym_store")
    return sorted(map(json_line, model_call_rows(counted_calls(selected_rollouts(store), LaterAttempts(store)))))


def test_duckdb_counts_over_many_stores(folder: Path) -> None:
    code = program("Many stores, one question") + "print(*rows, sep='\\n')\n"
    assert printed(sys.executable, folder, code) == [
        f"('step-{step}', {run!r}, {rollouts}, {calls})"
        for step in (1, 2)
        for run, rollouts, calls in (("r", 10, 22), ("s", 1, 2), (None, 3, 3))
    ]


def test_several_processes_give_the_rows_of_one(folder: Path) -> None:
    code = program("Several processes of one machine").replace("+ 500", "+ 4").replace(", 500)", ", 4)")
    assert sorted(printed(sys.executable, folder, code + "    print(*rows, sep='\\n')\n")) == rows_of_one_process(
        folder
    )


@pytest.mark.engines
def test_spark_gives_the_rows_of_one_process(folder: Path) -> None:
    python = python_of("Spark")
    code = program("Spark") + "print(*(row.call for row in frame.collect()), sep='\\n')\n"
    found = printed(
        python, folder, code, SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=str(python), PYSPARK_SUBMIT_ARGS=SPARK
    )
    assert sorted(found) == rows_of_one_process(folder)
