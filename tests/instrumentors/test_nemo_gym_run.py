"""A real run of NeMo Gym, where one is installed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_a_real_run_gives_the_records_that_nemo_gym_captured_itself(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    environment = importlib.import_module("nemo_gym_run").DEFAULT_ENVIRONMENT
    if not (environment / "bin" / "gym").exists():
        pytest.skip(f"no NeMo Gym at {environment}: `make nemo-gym` installs it (Python 3.13)")
    done = subprocess.run(
        [sys.executable, BENCH / "nemo_gym_run.py", "--no-overhead"], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(" 0 wrong")
