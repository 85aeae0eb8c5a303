"""Every command of README.md and docs/cli.md that reads a store works as it stands there, and the Python is whole."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.store.reader import Store
from tests.capture.test_proxy import ANSWER, Upstream, answering, proxy_process, served, upstream_config

ROOT = Path(__file__).parents[2]


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(("page", "commands"), [("README.md", 12), ("docs/cli.md", 1)])
def test_reading_commands_work_as_shown(
    page: str, commands: int, example_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: list[bytes]
) -> None:
    shutil.copytree(example_store, tmp_path / "otel_gym_demo")
    for file in (tmp_path / "otel_gym_demo" / "spans").rglob("*.jsonl"):
        if b"run-2" in file.read_bytes():  # a demo's store that was made once
            file.unlink()
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("sh", page) for line in block.splitlines() if line.startswith("otel-gym")]
    reading = [line for line in lines if " proxy " not in line and " run " not in line]
    assert len(reading) == commands
    for line in reading:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.stderr)
    for query in (block for block in blocks("python", page) if "duckdb" in block):
        exec(query, {})


def test_proxy_and_rollout_recipes_pasted_in_order_gave_a_rollout_without_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = next(block for block in blocks("python") if "rollout.record_reward" in block)
    with (
        served(upstream_config(Upstream(answering(json.dumps(ANSWER).encode())))) as upstream_url,
        proxy_process(["--upstream", upstream_url, "--dir", str(tmp_path / "otel_gym_store")]) as (process, url, _),
    ):
        exec(recipe.replace("http://127.0.0.1:8787", url), {})
        process.terminate()
        process.wait(15)
    assert otel_gym.flush(10)
    (row,) = map(json.loads, CliRunner().invoke(app, ["ls", "--json"]).stdout.splitlines())
    assert (row["run_id"], row["rollout_id"], row["calls"], row["reward"]) == ("training-step-7", "12-0", 1, 1.0)


def test_recipes_called_their_rollouts_alike_and_the_second_had_two_calls() -> None:
    text = (ROOT / "README.md").read_text()
    recipes = text[text.index("### 1.") : text.index("### 4.")]
    named = re.findall(r"/ng-rollout/(\d+-\d+)/", recipes)
    named += [f"{task}-{index}" for task, index in re.findall(r"otel_gym\.rollout\((\d+), (\d+)\)", recipes)]
    assert (len(named), len(set(named))) == (3, 3)


@pytest.mark.parametrize("way", ["otel-gym run", "opentelemetry-instrument"])
def test_a_server_that_knows_nothing_of_tracing_is_captured_as_the_first_recipe_says(tmp_path: Path, way: str) -> None:
    (server,) = (block for block in blocks("python") if "FastAPI()" in block)
    (start,) = (block.replace("\\\n", " ") for block in blocks("sh") if way in block)
    assert "otel_gym" not in server
    (tmp_path / "model_server.py").write_text(server)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment = {**clean, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = f"exec env {start.replace('8001', port)}"
    process = subprocess.Popen(command, shell=True, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=10), trust_env=False) as client:
            for prefix in ("/ng-rollout/12-1", ""):
                url = f"http://127.0.0.1:{port}{prefix}/v1/chat/completions"
                assert client.post(url, json={"model": "m", "messages": []}).status_code == 200
        process.terminate()
        process.wait(15)
    finally:
        process.kill()
    store = Store(tmp_path / "otel_gym_store")
    assert [rollout.rollout_id for rollout in store.rollouts()] == ["12-1"]
    assert store.counts()["uncaptured_calls"] == 1


def test_python_is_whole_and_imports_what_exists() -> None:
    for block in blocks("python"):
        imports = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/python.md", "docs/store.md"])
def test_links_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
