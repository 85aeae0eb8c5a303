"""The pages made from the code say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import otel_gym

ROOT = Path(__file__).parent.parent


def test_pages_made_from_the_code_are_fresh() -> None:
    script = ROOT / "scripts" / "make_docs.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_examples_of_the_python_page_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
        said = [line.split(")  # ")[1] for line in block.splitlines() if line.lstrip().startswith("print(")]
        assert capsys.readouterr().out.splitlines() == said
    assert sorted(path.name for path in (tmp_path / "otel_gym_store" / "spans").iterdir()) == [
        "rollout_id=12-0",
        "rollout_id=13-0",
    ]


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    names = [name for name in otel_gym.__all__ if not name.startswith("__")]
    assert [name for name in names if not re.search(rf"^### `{name}\b", text, re.MULTILINE)] == []
