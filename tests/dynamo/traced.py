"""Runs the program with Dynamo's variables in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    return {
        **os.environ,
        "OTEL_GYM": "1",
        "OTEL_GYM_DIR": str(folder / "store"),
        "DYN_AGENT_TRACE": "1",
        "DYN_AGENT_TRACE_OUTPUT_PATH": str(folder / "t"),
        "OTEL_GYM_TRACE_BLOCK_SIZE": "16",
        **variables,
    }


def run(folder: Path, rollouts: int = 1, **variables: str) -> str:
    """What the program said on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.dynamo.program", str(rollouts)],
        cwd=ROOT,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr
