"""Tool events of a harness, sent to Dynamo or to ``otel-gym dynamo relay`` over ZeroMQ, on a thread of their own.

Whoever receives them binds; a harness connects. Nothing here waits for a receiver, or raises into the harness: what
cannot be kept or sent is dropped and counted by reason.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple

from otel_gym.agent_identity import AgentContext
from otel_gym.dynamo_settings import AGENT_TRACE, DEFAULT_TOPIC, REQUEST_TRACE
from otel_gym.settings import say_once
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.worker_end import close_when_a_worker_ends

Shape = Literal["nested", "flat"]
Status = Literal["running", "succeeded", "error", "cancelled"]

DEFAULT_QUEUE_SIZE = 10_000
CLOSE_TIMEOUT_S = 2.0
# The same bound as the receiver's.
_MOST_BYTES = 1024 * 1024
_HIGH_WATER_MARK = 1000
_RETRY_MS = 50

# Why an event was dropped.
QUEUE_FULL = "queue full"
NOT_SENT = "not sent before the end"
CLOSED = "came after the end"
TOO_LARGE = "too large"
NO_SESSION = "no session"
NOT_ENCODED = "not encoded"
NO_SOCKET = "no socket"


class _Message(NamedTuple):
    number: int
    content: bytes


class ToolEventPublisher:
    """Sends tool events; ``with`` closes it at the end.

    endpoint    where Dynamo or the relay binds, such as ``tcp://127.0.0.1:20390``; ``*`` and 0.0.0.0, at which others
                bind, mean this machine
    topic       first frame of each message
    shape       ``nested`` for ``dynamo.agent.trace.v1`` (Dynamo 1.2), ``flat`` for ``dynamo.request.trace.v1`` (newer)
    queue_size  events that wait at most; what comes while so many wait is dropped

    The number in a message counts every event, dropped ones too, so that a receiver can see gaps. ``dropped`` counts by
    reason, ``sent`` what was handed to ZeroMQ: it tells nobody whether a receiver had it. After a fork the child
    connects, and numbers, anew, and leaves the parent's events to the parent.
    """

    def __init__(
        self,
        endpoint: str,
        topic: str = DEFAULT_TOPIC,
        shape: Shape = "flat",
        queue_size: int = DEFAULT_QUEUE_SIZE,
    ) -> None:
        if shape not in _SHAPES:
            raise ValueError(f"shape {shape!r} is not known: {', '.join(_SHAPES)}")
        if queue_size < 1:
            raise ValueError(f"queue_size {queue_size}: at least 1 event has to find room")
        self.endpoint = _reachable(endpoint)
        self._topic = topic.encode()
        self._record_of = _SHAPES[shape]
        self._queue_size = queue_size
        # Here, and not on the thread: a process that forks while a thread imports has half a module in its child.
        self._zmq = _zmq()
        self._reset()
        _publishers.add(self)

    def _reset(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.sent = 0
        self._number = 0
        self._queue: deque[_Message] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None

    def tool_start(
        self, context: AgentContext, tool_call_id: str, tool_class: str, *, started_at_unix_ms: int | None = None
    ) -> None:
        """A tool begins, now or at ``started_at_unix_ms``."""
        tool = {"status": "running", "started_at_unix_ms": started_at_unix_ms}
        self._publish("tool_start", context, tool_call_id, tool_class, started_at_unix_ms, tool)

    def tool_end(
        self,
        context: AgentContext,
        tool_call_id: str,
        tool_class: str,
        *,
        started_at_unix_ms: int | None = None,
        ended_at_unix_ms: int | None = None,
        duration_ms: float | None = None,
        status: Status = "succeeded",
        output_tokens: int | None = None,
        output_bytes: int | None = None,
        tool_name_hash: str | None = None,
    ) -> None:
        """A tool has ended. It tells of the tool also where its start was lost: give all of its times."""
        tool = {
            "started_at_unix_ms": started_at_unix_ms,
            "ended_at_unix_ms": ended_at_unix_ms,
            "status": status,
            "duration_ms": duration_ms,
            "output_tokens": output_tokens,
            "output_bytes": output_bytes,
            "tool_name_hash": tool_name_hash,
        }
        self._publish("tool_end", context, tool_call_id, tool_class, ended_at_unix_ms, tool)

    def tool_error(
        self,
        context: AgentContext,
        tool_call_id: str,
        tool_class: str,
        *,
        started_at_unix_ms: int | None = None,
        ended_at_unix_ms: int | None = None,
        duration_ms: float | None = None,
        status: Status = "error",
        error_type: str | None = None,
        tool_name_hash: str | None = None,
    ) -> None:
        """A tool has failed, or was cancelled."""
        tool = {
            "started_at_unix_ms": started_at_unix_ms,
            "ended_at_unix_ms": ended_at_unix_ms,
            "status": status,
            "duration_ms": duration_ms,
            "tool_name_hash": tool_name_hash,
            "error_type": error_type,
        }
        self._publish("tool_error", context, tool_call_id, tool_class, ended_at_unix_ms, tool)

    def send(self, record: dict[str, Any]) -> None:
        """A whole record, in the publisher's shape."""
        try:
            self._queue_message(record)
        except Exception:
            self.dropped[NOT_ENCODED] += 1
            log_once("a tool event could not be made, and is not sent")

    def flush(self, timeout_s: float) -> bool:
        """Waits until what came is handed to ZeroMQ; False if the time ran out first."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._queue, max(0.0, timeout_s))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Sends what waits, within the time; False if not all could be sent. What comes later is dropped."""
        try:
            atexit.unregister(self._close_at_exit)
            with self._condition:
                thread = self._thread
                if self._deadline is None:
                    self._deadline = time.monotonic() + max(0.0, timeout_s)
                self._condition.notify_all()
            if thread is not None:
                thread.join(timeout_s + 2 * _RETRY_MS / 1000)
                if thread.is_alive():
                    return False
            return not (self.dropped[NOT_SENT] or self.dropped[NO_SOCKET])
        except Exception:
            log_once("a publisher of tool events could not be closed")
            return False

    def _close_at_exit(self) -> None:
        self.close()

    def __enter__(self) -> ToolEventPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _publish(
        self,
        event_type: str,
        context: AgentContext,
        tool_call_id: str,
        tool_class: str,
        time_ms: int | None,
        tool: Mapping[str, Any],
    ) -> None:
        try:
            said = {"tool_call_id": tool_call_id, "tool_class": tool_class, **_said(tool)}
            now_ms = time.time_ns() // 1_000_000 if time_ms is None else int(time_ms)
            self._queue_message(self._record_of(event_type, now_ms, context, said))
        except Exception:
            self.dropped[NOT_ENCODED] += 1
            log_once("a tool event could not be made, and is not sent")

    def _queue_message(self, record: dict[str, Any] | None) -> None:
        content = b"" if record is None else _packed(record)
        with self._condition:
            self._number += 1
            reason = self._reason_to_drop(content)
            if reason is not None:
                self.dropped[reason] += 1
                return
            self._queue.append(_Message(self._number, content))
            if self._thread is None:
                self._thread = self._started()
            self._condition.notify_all()

    def _reason_to_drop(self, content: bytes) -> str | None:
        if not content:
            return NO_SESSION
        if len(content) > _MOST_BYTES:
            return TOO_LARGE
        if self._deadline is not None:
            return CLOSED
        return QUEUE_FULL if len(self._queue) >= self._queue_size else None

    def _started(self) -> threading.Thread:
        atexit.register(self._close_at_exit)
        close_when_a_worker_ends(self._close_at_exit)
        thread = threading.Thread(target=self._run, name="otel-gym-tool-events", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        zmq, context = self._zmq, None
        if zmq is None:
            self._drop_all(NO_SOCKET)
            return
        try:
            context = zmq.Context()
            socket = context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
            socket.setsockopt(zmq.SNDTIMEO, _RETRY_MS)
            # Else what nobody receives would count as sent.
            socket.setsockopt(zmq.IMMEDIATE, 1)
            if "[" in self.endpoint:
                socket.setsockopt(zmq.IPV6, 1)
            socket.connect(self.endpoint)
            self._send_all(socket, zmq.Again)
        except Exception as error:
            say_once(f"tool events are not sent to {self.endpoint}: {error}")
            self._drop_all(NO_SOCKET)
        finally:
            if context is not None:
                self._end(context)

    def _send_all(self, socket: Any, busy: type[Exception]) -> None:
        """Until it is closed, and nothing waits or the time is over."""
        while (message := self._next()) is not None:
            frames = [self._topic, message.number.to_bytes(8, "big"), message.content]
            while True:
                try:
                    socket.send_multipart(frames)
                    self.sent += 1
                    break
                except busy:
                    if self._is_over():
                        self._drop_all(NOT_SENT, 1)
                        return

    def _next(self) -> _Message | None:
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._deadline is not None)
            message = self._queue.popleft() if self._queue else None
            self._condition.notify_all()
            return message

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _drop_all(self, reason: str, also: int = 0) -> None:
        """What waits, and what comes until it is closed."""
        while True:
            with self._condition:
                self.dropped[reason] += len(self._queue) + also
                also = 0
                self._queue.clear()
                if self._deadline is not None:
                    return
                self._condition.wait_for(lambda: self._queue or self._deadline is not None)

    def _end(self, context: Any) -> None:
        """What ZeroMQ has not sent yet may still go, until the time is over."""
        with suppress(Exception):
            rest_s = max(0.0, (self._deadline or 0.0) - time.monotonic())
            context.destroy(linger=int(rest_s * 1000))


def _zmq() -> Any:
    """None where it is not installed, which is said."""
    try:
        import zmq
    except ImportError:
        say_once("tool events are not sent: ZeroMQ is a package of its own: pip install 'otel_gym[dynamo]'")
        return None
    return zmq


_publishers: weakref.WeakSet[ToolEventPublisher] = weakref.WeakSet()


def _forked() -> None:
    for publisher in list(_publishers):
        publisher._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _nested(event_type: str, time_ms: int, context: AgentContext, tool: dict[str, Any]) -> dict[str, Any] | None:
    """None where the context names no session. A session without trajectories is one of its own name."""
    if context.session_id is None or context.agent_id is None:
        return None
    said: dict[str, Any] = {
        "session_type_id": context.session_type_id or _NO_TYPE,
        "session_id": context.session_id,
        "trajectory_id": context.agent_id,
    }
    if context.parent_agent_id is not None:
        said["parent_trajectory_id"] = context.parent_agent_id
    return {
        "schema": AGENT_TRACE,
        "event_type": event_type,
        "event_time_unix_ms": time_ms,
        "event_source": "harness",
        "agent_context": said,
        "tool": tool,
    }


# Dynamo asks for one.
_NO_TYPE = "agent"


def _flat(event_type: str, time_ms: int, context: AgentContext, tool: dict[str, Any]) -> dict[str, Any] | None:
    """None where the context names no session. Each agent is a session of its own."""
    if context.agent_id is None:
        return None
    said: dict[str, Any] = {
        "schema": REQUEST_TRACE,
        "event_type": event_type,
        "event_time_unix_ms": time_ms,
        "session_id": context.agent_id,
    }
    if context.session_above is not None:
        said["parent_session_id"] = context.session_above
    return {**said, "tool": tool}


_SHAPES: dict[str, Callable[[str, int, AgentContext, dict[str, Any]], dict[str, Any] | None]] = {
    "nested": _nested,
    "flat": _flat,
}


def _said(tool: Mapping[str, Any]) -> dict[str, Any]:
    """What is known, in the types that the receiver asks for: it drops a record for one number of another."""
    said: dict[str, Any] = {}
    for name, value in tool.items():
        if value is None:
            continue
        if name == "duration_ms":
            if math.isfinite(value):
                said[name] = float(value)
        else:
            said[name] = value if isinstance(value, str) else int(value)
    return said


def _packed(record: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(record)


def _reachable(endpoint: str) -> str:
    """An address that the receiver binds for all is reached on this machine."""
    for wildcard, local in (("tcp://*:", "tcp://127.0.0.1:"), ("tcp://0.0.0.0:", "tcp://127.0.0.1:")):
        if endpoint.startswith(wildcard):
            return local + endpoint.removeprefix(wildcard)
    return endpoint.replace("tcp://[::]:", "tcp://[::1]:")
