"""A store of its own for each test that asks for one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

import otel_gym
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.views.model_calls import model_call_records

# A shell that runs the tests in the background leaves SIGINT ignored, also in every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "DYN_", "TRACEPARENT", "BAGGAGE")):
            monkeypatch.delenv(name)


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Stands for the user's browser: what it was opened for is fetched, and is in the list."""
    traces: list[bytes] = []

    def fetch(url: str) -> None:
        [trace] = parse_qs(urlsplit(url.split("#!/")[1]).query)["url"]
        traces.append(httpx.get(trace).content)

    def opened(url: str) -> bool:
        threading.Thread(target=fetch, args=(url,), daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.open", opened)
    monkeypatch.setattr("otel_gym.cli.trace_server.QUIET_S", 0.1)
    return traces


class LiveStore:
    """The store that this test's spans go to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self) -> Store:
        assert otel_gym.flush(10)
        return Store(self.directory)

    def rollouts(self) -> list[RolloutSpans]:
        return list(self.read().rollouts())

    def records(self, rollout_id: str, least: int = 0) -> list:
        """``least``: waits for so many, since a client has its last byte before the server has returned."""
        deadline = time.monotonic() + 5
        while len(found := self._records(rollout_id)) < least and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _records(self, rollout_id: str) -> list:
        if self.is_empty():
            return []
        return [record for rollout in self.read().rollouts(rollout_id) for record in model_call_records(rollout)]

    def awaited_records(self, rollout_id: str, count: int = 1) -> list:
        """Of a server in another thread: a client may have its last byte before the call is over."""
        for _ in range(100):
            records = [] if self.is_empty() else self.records(rollout_id)
            if len(records) >= count:
                break
            time.sleep(0.05)
        return records

    def spans(self, rollout_id: str) -> list:
        return [span for rollout in self.read().rollouts(rollout_id) for span in rollout.spans]

    def is_empty(self) -> bool:
        assert otel_gym.flush(10)
        return not (self.directory / "spans").exists()

    def text(self) -> str:
        """Everything on disk."""
        assert otel_gym.flush(10)
        return "\n".join(path.read_text() for path in sorted(self.directory.rglob("*")) if path.is_file())


@pytest.fixture
def live_store(tmp_path: Path, clean_environment: None) -> Iterator[LiveStore]:
    directory = tmp_path / "store"
    otel_gym.configure(directory=directory, run_id="run-1", capture_unassigned=False)
    yield LiveStore(directory)
    otel_gym.flush(10)
