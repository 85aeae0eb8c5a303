"""Runs the relay of tool events until a signal, and says how it goes."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from otel_gym.ingest.dynamo.endpoints import Endpoint
from otel_gym.ingest.dynamo.relay import RelayCounts, ToolEventRelay

# How often is said what came, if anything did.
SAY_EVERY_S = 30.0


def start_lines(endpoints: Sequence[Endpoint], directory: Path) -> list[str]:
    """What a user must know to send tool events here, and to read them."""
    return [
        *(f"otel-gym dynamo relay on {each.address} ({each.said_topic})" for each in endpoints),
        f"  send   DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT={endpoints[0].address}",
        f"  store  {directory.absolute()}",
        f"read it with: otel-gym ls --dir {directory}",
    ]


def count_line(counts: RelayCounts) -> str:
    """What came until now."""
    events, tools = ("event" if counts.events == 1 else "events"), ("tool" if counts.spans == 1 else "tools")
    refused = "".join(f", {number:,} {reason}" for reason, number in counts.refused.most_common())
    return f"otel-gym dynamo relay: {counts.events:,} {events} of {counts.spans:,} {tools} taken{refused}"


def serve(relay: ToolEventRelay) -> None:
    """Until SIGINT or SIGTERM; returns when all that was taken is on disk."""
    with _until_signal() as stopping:
        said = _Said(relay.counts)

        def is_stopping() -> bool:
            said.from_time_to_time()
            return stopping.is_set()

        relay.run(is_stopping)


class _Said:
    def __init__(self, counts: RelayCounts) -> None:
        self._counts = counts
        self._messages = 0
        self._at = time.monotonic()

    def from_time_to_time(self) -> None:
        now = time.monotonic()
        if now - self._at < SAY_EVERY_S:
            return
        self._at = now
        if self._counts.messages != self._messages:
            self._messages = self._counts.messages
            print(count_line(self._counts), file=sys.stderr, flush=True)


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
