"""Tool events of harnesses, over ZeroMQ, → spans in a store, in the place where Dynamo would bind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.ingest.dynamo.endpoints import Endpoint, EndpointError, bound_address
from otel_gym.ingest.dynamo.tool_frames import Refusal, RefusedError, tool_event_of
from otel_gym.ingest.dynamo.tool_store import ToolStore
from otel_gym.settings import Settings

# How long is waited for a message before it is looked whether to stop.
_WAIT_MS = 100
# Messages that are taken before what was made of them is written.
_MOST_MESSAGES = 5000
# One frame; who sends a longer one is disconnected by ZeroMQ, which counts nothing.
_MOST_FRAME_BYTES = 64 * 1024 * 1024
# After a signal: what lies in the sockets is still taken, for so long.
_LAST_S = 2.0
_HOUSE_EVERY_S = 1.0


class RelayError(Exception):
    """The relay cannot begin; the text says why and what to do."""


@dataclass(slots=True)
class RelayCounts:
    """Since the start: messages, those that became part of a span, and the others by reason."""

    messages: int = 0
    events: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    # Tools that they told of.
    spans: int = 0
    # Why the last of it could not be written.
    failed: str | None = None


class ToolEventRelay:
    """Binds at once. ``run`` takes messages until it is told to stop, and writes what came; RelayError."""

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        endpoints: Sequence[Endpoint],
        say: Callable[[str], None] = print,
    ) -> None:
        self._zmq = _zmq()
        self.counts = RelayCounts()
        self._say = say
        self._context = self._zmq.Context()
        self._sockets: dict[Any, Endpoint] = {}
        try:
            for endpoint in endpoints:
                socket = self._bound(endpoint)
                address = socket.getsockopt_string(self._zmq.LAST_ENDPOINT)
                self._sockets[socket] = Endpoint(address, endpoint.topic)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._store = ToolStore(directory, settings)

    @property
    def endpoints(self) -> list[Endpoint]:
        """As bound: with the port that was free."""
        return list(self._sockets.values())

    def run(self, is_stopping: Callable[[], bool]) -> None:
        poller = self._zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, self._zmq.POLLIN)
        try:
            kept_at = time.monotonic()
            while not is_stopping():
                self._take([socket for socket, _ in poller.poll(_WAIT_MS)])
                if time.monotonic() - kept_at > _HOUSE_EVERY_S:
                    self._store.keep_house(self._refused())
                    kept_at = time.monotonic()
            self._take_rest(poller)
        finally:
            self._context.destroy(linger=0)
            self._note(self._store.close(self._refused()))

    def _bound(self, endpoint: Endpoint) -> Any:
        socket = self._context.socket(self._zmq.PULL)
        socket.setsockopt(self._zmq.LINGER, 0)
        socket.setsockopt(self._zmq.MAXMSGSIZE, _MOST_FRAME_BYTES)
        if "[" in endpoint.address:
            socket.setsockopt(self._zmq.IPV6, 1)
        try:
            socket.bind(bound_address(endpoint.address))
        except self._zmq.ZMQError as error:
            cure = "does a Dynamo, or another relay, bind it? give another --endpoint"
            raise EndpointError(f"{endpoint.address} cannot be bound: {error.strerror}; {cure}") from None
        return socket

    def _take_rest(self, poller: Any) -> None:
        deadline = time.monotonic() + _LAST_S
        while time.monotonic() < deadline and (ready := poller.poll(0)):
            self._take([socket for socket, _ in ready])

    def _take(self, ready: Sequence[Any]) -> None:
        """What lies there now, from all in turn, and then writes it."""
        number = 0
        while ready and number < _MOST_MESSAGES:
            still = []
            for socket in ready:
                try:
                    frames = socket.recv_multipart(self._zmq.NOBLOCK)
                except self._zmq.Again:
                    continue
                still.append(socket)
                number += 1
                self._take_one(frames, self._sockets[socket])
            ready = still
        self._note(self._store.write())

    def _note(self, failed: OSError | None) -> None:
        self.counts.spans = self._store.tools
        if failed is not None and self.counts.failed is None:
            self._say(f"the store cannot be written: {failed.strerror}; it is tried again with what comes next")
        self.counts.failed = None if failed is None else failed.strerror

    def _take_one(self, frames: list[bytes], endpoint: Endpoint) -> None:
        self.counts.messages += 1
        try:
            self._store.add(tool_event_of(frames, endpoint.topic))
        except RefusedError as problem:
            self.counts.refused[problem.reason] += 1
            if self.counts.refused[problem.reason] == 1 and problem.reason is not Refusal.DUPLICATE:
                self._say(f"{problem.reason}: {problem} (the first; others are counted)")
        else:
            self.counts.events += 1

    def _refused(self) -> int:
        duplicates = self.counts.refused[Refusal.DUPLICATE]
        return self.counts.refused.total() - duplicates


def _zmq() -> Any:
    try:
        import zmq
    except ModuleNotFoundError:
        raise RelayError("ZeroMQ is a package of its own: pip install 'otel_gym[dynamo]'") from None
    return zmq
