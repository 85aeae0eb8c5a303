"""Every command of README.md that reads a store works as it stands there, and its Python is whole."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_reading_commands_work_as_shown(example_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(example_store, tmp_path / "otel_gym_demo")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("otel-gym")]
    reading = [line for line in lines if " proxy " not in line]
    assert len(reading) == 7
    for line in reading:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.stderr)
    query = next(block for block in blocks("python") if "duckdb" in block)
    exec(query, {"duckdb": duckdb})


def test_python_is_whole_and_imports_what_exists() -> None:
    for block in blocks("python"):
        imports = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_links_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
