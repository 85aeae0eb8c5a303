"""docs/enabling.md: each way that it shows captures the server that it shows."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from otel_gym.store.reader import Store

from .conftest import BIN

PAGE = (Path(__file__).parents[2] / "docs" / "enabling.md").read_text()
WAYS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def block(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.mark.parametrize(("number", "run_id"), [(0, "training-step-7"), (1, "training-step-8"), (2, "training-step-9")])
def test_each_command_captures_the_server(tmp_path: Path, number: int, run_id: str):
    (tmp_path / "model_server.py").write_text(block("python"))
    (tmp_path / "otel.yaml").write_text(block("yaml"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHONPATH"))}
    environment = {**clean, "PATH": f"{BIN}{os.pathsep}{clean['PATH']}"}
    command = f"exec env {WAYS[number].replace('8001', port)}"
    process = subprocess.Popen(command, shell=True, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=10), trust_env=False, timeout=30) as client:
            url = f"http://127.0.0.1:{port}/ng-rollout/12-0/v1/chat/completions"
            assert client.post(url, json={"model": "m", "messages": []}).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
    (rollout,) = Store(tmp_path / "otel_gym_store").rollouts()
    assert (rollout.run_id, rollout.rollout_id) == (run_id, "12-0")
    assert sorted(span.name for span in rollout.spans) == ["POST /v1/chat/completions", "chat m"]


def test_links_lead_to_files():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert [link for link in links if not (Path(__file__).parents[2] / "docs" / link).exists()] == []
