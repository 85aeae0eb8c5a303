"""A relay in a thread, sockets that push to it, and waiting with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from otel_gym.ingest.dynamo.endpoints import Endpoint
from otel_gym.ingest.dynamo.relay import ToolEventRelay
from otel_gym.settings import read_settings
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan

TIMEOUT_S = 120


@contextmanager
def running(directory: Path, address: str = "tcp://127.0.0.1:0", topic: str | None = None) -> Iterator[ToolEventRelay]:
    """At the end of the block it is stopped, and what came is written."""
    said: list[str] = []
    relay = ToolEventRelay(directory, read_settings({}), [Endpoint(address, topic)], said.append)
    stopping = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stopping.is_set,))
    thread.start()
    try:
        yield relay
    finally:
        stopping.set()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@contextmanager
def pushing(address: str, number: int = 1) -> Iterator[list[zmq.Socket[bytes]]]:
    """Sockets that end when all is sent."""
    context = zmq.Context()
    sockets = [context.socket(zmq.PUSH) for _ in range(number)]
    for socket in sockets:
        socket.connect(address)
    yield sockets
    context.destroy(linger=TIMEOUT_S * 1000)


def awaited(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def tools_of(directory: Path) -> list[StoredSpan]:
    store = Store(directory)
    spans = [span for name in store.rollout_ids() for span in store.spans(name)]
    assert store.damage == []
    return [span for span in spans if span.name.startswith("execute_tool")]
