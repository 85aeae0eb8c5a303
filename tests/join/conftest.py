from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from otel_gym.cli.main import app

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


def capture_line(call_id: str, started_at: float = 1_790_000_000.25, **said: Any) -> dict[str, Any]:
    """As NeMo Gym writes it of a chat call."""
    return {
        "model_call_id": call_id,
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "started_at": started_at,
        "completed_at": started_at + 0.5,
        "latency_ms": 499.87,
        "latency_ttft_ms": 120.5,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "response": {"id": f"r-{call_id}", "model": "m", "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
        **said,
    }


def write_lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path
