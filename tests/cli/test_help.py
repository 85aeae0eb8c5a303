"""Help in a user's words."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app

COMMANDS = ["demo", "proxy", "ls", "show", "stats", "tail", "doctor", "compact", "export model-calls"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_named_values_by_the_types_of_the_code(command: str) -> None:
    said = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    assert "Example:" in said
    assert re.findall(r"<(?:int|float|str|list|path|text)\b[^>]*>", said) == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("show", "[RUN/]ROLLOUT"), ("tail", "[[RUN/]ROLLOUT]"), ("export model-calls", "[[RUN/]ROLLOUT]...")],
)
def test_usage_has_each_bracket_once(command: str, arguments: str) -> None:
    usage = CliRunner().invoke(app, [*command.split(), "--help"]).stdout.splitlines()[0]
    assert usage.endswith(f" {command} [OPTIONS] {arguments}")


def test_every_command_loaded_what_all_of_them_need() -> None:
    code = "import sys, otel_gym.cli.main; print([name for name in sys.modules if name.startswith('otel_gym.ingest')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_misspelt_command_is_named_with_what_it_may_be() -> None:
    said = CliRunner().invoke(app, ["quary"])
    assert said.exit_code == 2
    assert "No such command 'quary'" in said.stderr and "query" in said.stderr
