"""Packages load what is asked for, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import otel_gym
import otel_gym.records


@pytest.mark.parametrize("package", [otel_gym, otel_gym.records], ids=lambda package: package.__name__)
def test_every_public_name_is_there(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = package.nothing_such


def test_converting_a_session_loads_neither_pydantic_nor_the_sdk():
    program = (
        "import sys\n"
        "from otel_gym.ingest.claude_code import claude_code_runs\n"
        "from otel_gym.views.atif import atif_files_of_run\n"
        "print(sorted({'pydantic', 'opentelemetry.sdk', 'pyarrow', 'fastapi'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
