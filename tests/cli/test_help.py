"""Help in a user's words."""

from __future__ import annotations

import re

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
