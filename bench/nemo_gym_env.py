"""A real NeMo Gym in an environment of its own: made once, its servers started and stopped, rollouts collected."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from newer_python import pythons_from, runs

VERSION = "0.7.0"
# What the package asks for; the patch releases of 3.13 differ in nothing that it uses.
PYTHON = "3.13.14"
START_TIMEOUT_S = 600
# Never to be found in a store.
API_KEY = "sk-" + "0123456789abcdef" * 2

_SERVERS = (
    "environment_servers/legacy_agent",
    "environment_servers/single_agent_turn_legacy",
    "resources_servers/blackjack",
    "resources_servers/example_single_tool_call",
    "responses_api_agents/gymnasium_agent",
    "responses_api_agents/simple_agent",
    "responses_api_models/openai_model",
)
_CONFIG = "resources_servers/example_single_tool_call/configs/example_single_tool_call_single_agent_turn.yaml"

# Runs in that environment: the records that NeMo Gym itself builds from what it captured.
_RECORDS = """
import json, sys
from pathlib import Path
from nemo_gym.base_responses_api_model import CaptureStore, read_model_call_records
store = CaptureStore(sys.argv[1])
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.capture.jsonl")):
    rollout_id = path.name.removesuffix(".capture.jsonl")
    found[rollout_id] = [each.model_dump(mode="json") for each in read_model_call_records(store, rollout_id)]
print(json.dumps(found))
"""


class MissingError(Exception):
    """What a run needs and is not here; the text says what, and what to do."""


@dataclass(frozen=True)
class Gym:
    """An installed NeMo Gym and the folder that its runs write to. ``before``: words in front of each ``gym``."""

    environment: Path
    folder: Path
    model_url: str
    before: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def captures(self) -> Path:
        return self.folder / "captures"

    @contextmanager
    def servers(self) -> Iterator[int]:
        """All of them, ready; the port of the head server."""
        port = _free_port()
        log = self.folder / "servers.log"
        command = [*self._gym("env", "start"), *_server_options(), *self._options(port)]
        command += [f"++uv_venv_dir={self.folder / 'venvs'}", "++skip_venv_if_present=true"]
        command += ["--model", "scripted-1", "--model-url", f"{self.model_url}/v1", "--model-api-key", API_KEY]
        self._link_environments()
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.folder, env=self._environ(), stdout=output, stderr=output)
        try:
            _wait_until_ready(process, port, log)
            yield port
        finally:
            _stop(process)

    def collect(
        self, port: int, agent: str, rows: Sequence[Mapping[str, Any]], repeats: int, *words: str
    ) -> list[dict[str, Any]]:
        """The rollouts as ``gym eval run`` writes them; ``words`` are more of its options."""
        source, target = self.folder / "rows.jsonl", self.folder / "rollouts.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [*self._gym("eval", "run"), "--no-serve", "--agent", agent, "--input", str(source)]
        command += ["--output", str(target), "--num-repeats", str(repeats), *self._options(port), *words]
        done = subprocess.run(command, cwd=self.folder, env=self._environ(), capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"gym eval run failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return [json.loads(line) for line in target.read_text().splitlines()]

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Rollout id → the records of NeMo Gym's own capture."""
        python = self.environment / "bin" / "python"
        done = subprocess.run([python, "-c", _RECORDS, str(self.captures)], capture_output=True, text=True, check=True)
        found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _gym(self, *words: str) -> list[str]:
        return [*self.before, str(self.environment / "bin" / "gym"), *words]

    def _options(self, port: int) -> list[str]:
        return [
            "++head_server.host=127.0.0.1",
            f"++head_server.port={port}",
            "++observability_enabled=true",
            f"++model_call_capture_dir={self.captures}",
        ]

    def _environ(self) -> dict[str, str]:
        theirs = {name: text for name, text in os.environ.items() if not name.startswith(("OTEL_", "PYTHON", "NEMO_"))}
        return {**theirs, "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}", **self.environ}

    def _link_environments(self) -> None:
        for server in _SERVERS:
            link = self.folder / "venvs" / server / ".venv"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(self.environment)


def install(environment: Path, *, telemetry: bool) -> None:
    """NeMo Gym at ``environment``, unless it is there; ``telemetry``: with its own OpenTelemetry packages."""
    if (environment / "bin" / "gym").exists():
        return
    python = next(pythons_from(3, 13), None)
    if python is None:
        raise MissingError("NeMo Gym needs Python 3.13: put one on PATH")
    package = f"nemo-gym[telemetry]=={VERSION}" if telemetry else f"nemo-gym=={VERSION}"
    own_python = environment / "bin" / "python"
    print(f"installs {package} into {environment}", flush=True)
    commands = (
        [python, "-m", "venv", environment],
        [own_python, "-m", "pip", "install", "-q", "uv"],
        [environment / "bin" / "uv", "pip", "install", "-q", "-p", own_python, "--python-version", PYTHON, package],
    )
    for command in commands:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"{package} could not be installed: {done.stderr.strip()[-1000:]}")
    if not runs(own_python, "import nemo_gym"):
        raise MissingError(f"{package} does not import")


def rows(environment: Path, server: str, contents: Sequence[str]) -> list[dict[str, Any]]:
    """The first example of a resources server, asked so."""
    [site] = environment.glob("lib/python3*/site-packages")
    example = site / "resources_servers" / server / "data" / "example.jsonl"
    row = json.loads(example.read_text().splitlines()[0])
    row.pop("agent_ref", None)
    parameters = row["responses_create_params"]
    return [
        {**row, "responses_create_params": {**parameters, "input": [{"role": "user", "content": content}]}}
        for content in contents
    ]


def _server_options() -> list[str]:
    chosen = ["--resources-server", "example_single_tool_call", "--resources-server", "blackjack"]
    return [*chosen, "--config", _CONFIG, "--model-type", "openai_model"]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        time.sleep(0.5)
    raise MissingError(f"the servers of NeMo Gym did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: the head server stops the others."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
