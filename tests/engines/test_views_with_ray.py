"""examples/views_with_ray.py writes what `otel-gym` writes in one process, row by row."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.compact import compact
from otel_gym.views.model_calls_export import SCHEMA
from tests.store.sealed import execution, sealed_store
from tests.store.stores import span, write

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples" / "views_with_ray.py"
ENGINES = ROOT / ".venv-engines" / "bin" / "python"

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not ENGINES.exists(), reason="Ray is not installed: `make engines` puts it into .venv-engines"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed_store(tmp_path_factory.mktemp("ray") / "store")


def with_ray(*arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_"))}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    }
    command = [ENGINES, SCRIPT, *map(str, arguments), "--cpus", "2"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def alone(*arguments: Any) -> str:
    finished = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert finished.exit_code == 0, finished.stderr
    return finished.stdout


def lines_of(folder: Path) -> list[str]:
    return sorted(line for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines())


@pytest.mark.parametrize("view", ["model-calls", "trajectory", "generations", "ls"])
def test_ray_writes_the_rows_of_one_process(store: Path, tmp_path: Path, view: str) -> None:
    finished = with_ray(view, store, tmp_path / "out")
    assert finished.returncode == 0, finished.stderr
    command = ["ls", "--json"] if view == "ls" else ["export", view]
    expected = alone(*command, "--dir", store).splitlines()
    assert lines_of(tmp_path / "out") == sorted(expected)
    assert len(expected) >= 10
    assert f"{len(expected)} rows of 39 spans written" in finished.stdout


def test_ray_writes_model_calls_in_parquet_with_the_schema_of_the_export(store: Path, tmp_path: Path) -> None:
    finished = with_ray("model-calls", store, tmp_path / "out", "--format", "parquet")
    assert finished.returncode == 0, finished.stderr
    alone("export", "model-calls", "--dir", store, "-o", tmp_path / "calls.parquet")
    found = pq.read_table(tmp_path / "out")
    assert found.schema.equals(SCHEMA)
    key = [("run_id", "ascending"), ("rollout_id", "ascending"), ("call_index", "ascending")]
    assert found.sort_by(key).to_pylist() == pq.read_table(tmp_path / "calls.parquet").sort_by(key).to_pylist()


def test_what_ray_cannot_see_is_said_with_exit_code_1(tmp_path: Path) -> None:
    """A request that could not be sealed whole, a damaged part, and lines that are not sealed yet."""
    store = tmp_path / "store"
    gap = {"gym.request.body.gap": "what it grew out of is damaged"}
    write(store, [*execution(1, "1-0"), span(9, attributes=gap)], "1-0")
    compact(store, idle_s=0, remove=True)
    new = write(store, execution(2, "2-0"), "2-0")
    (part := store / "parquet" / "part-damaged.parquet").write_bytes(b"PAR1")
    finished = with_ray("ls", store, tmp_path / "out")
    assert finished.returncode == 1
    assert f"{part}: cannot be read as Parquet" in finished.stderr
    assert f"{new} and others (1 in all) hold what is not sealed; compact first" in finished.stderr
    assert "what it grew out of is damaged" in finished.stderr
    assert [json.loads(line)["rollout_id"] for line in lines_of(tmp_path / "out")] == ["1-0"]


def test_what_cannot_be_done_is_one_line_with_exit_code_2(store: Path, tmp_path: Path) -> None:
    (used := tmp_path / "used").mkdir()
    (used / "file").touch()
    for arguments, said in (
        (("ls", store, used), "it holds files already"),
        (("ls", store, tmp_path / "out", "--format", "parquet"), "ls has no schema of its own"),
        (("ls", tmp_path, tmp_path / "out"), "it holds no parts; run `otel-gym compact"),
    ):
        finished = with_ray(*arguments)
        assert finished.returncode == 2
        assert said in finished.stderr and "Traceback" not in finished.stderr
