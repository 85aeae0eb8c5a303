"""A receiver as its users run it: a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan

_STARTED = re.compile(r"on (http://\S+) .* and (\S+) ")
TIMEOUT_S = 30


class RunningReceiver:
    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        arguments = ["-m", "otel_gym.cli", "receive", "--http", "0", "--grpc", "0", "--dir", str(directory)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env=inherited | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        found = _STARTED.search(first)
        assert found, f"{first}{self.process.communicate(timeout=TIMEOUT_S)}"
        self.http, self.grpc = found.groups()

    @property
    def traces(self) -> str:
        return f"{self.http}/v1/traces"

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, and what it said on stdout and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out, err


Receive = Callable[..., RunningReceiver]


@pytest.fixture
def receive(tmp_path: Path) -> Iterator[Receive]:
    """Starts receivers, by default on the store ``tmp_path/store``; environment variables may be given."""
    started: list[RunningReceiver] = []

    def start(directory: Path | None = None, **environment: str) -> RunningReceiver:
        started.append(RunningReceiver(directory or tmp_path / "store", **environment))
        return started[-1]

    yield start
    for receiver in started:
        if receiver.process.poll() is None:
            receiver.process.kill()
            receiver.process.communicate(timeout=TIMEOUT_S)


def spans_by_rollout(directory: Path) -> dict[str, list[StoredSpan]]:
    store = Store(directory)
    spans = {rollout_id: list(store.spans(rollout_id)) for rollout_id in store.rollout_ids()}
    assert store.damage == []
    return spans
