"""Events of tools as they come → calls: what is told of a call together, and which events tell nothing new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from otel_gym.ingest.dynamo.tool_frames import Refusal, RefusedError
from otel_gym.records.dynamo import DynamoRecord

# What is remembered of calls: their events, packed, and about what stands around each.
MOST_BYTES = 64 * 1024 * 1024
_EVENT_BYTES = 200

CallKey = tuple[str | None, ...]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DynamoRecord).decode


@dataclass(slots=True)
class _Call:
    events: list[bytes] = field(default_factory=list)
    size: int = 0


class ToolCalls:
    """``take`` an event, ``changed`` gives the calls of which something new was told since.

    An event that says again what another said is a duplicate: a harness, or ZeroMQ's own retry of a connection, sent
    it twice. One of the same call and kind that says anything else is none, since harnesses do use ids again. Calls
    that nothing was told of for longest are forgotten first: what is said of them again is taken, under the same ids.
    ``number``: of the calls.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._calls: OrderedDict[CallKey, _Call] = OrderedDict()
        self._changed: dict[CallKey, None] = {}
        self._size = 0
        self.number = 0

    def take(self, record: DynamoRecord) -> None:
        """RefusedError for a duplicate."""
        key, packed = _key_of(record), _encode(record)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call()
            self.number += 1
        elif packed in call.events:
            raise RefusedError(Refusal.DUPLICATE, f"{record.event_type} of {key[-1]!r} says what came before")
        call.events.append(packed)
        call.size += len(packed) + _EVENT_BYTES
        self._size += len(packed) + _EVENT_BYTES
        self._calls.move_to_end(key)
        self._changed[key] = None

    def changed(self) -> dict[CallKey, list[DynamoRecord]]:
        """All that is known of each, in the order in which it came."""
        changed, self._changed = self._changed, {}
        known = {key: [_decode(packed) for packed in self._calls[key].events] for key in changed}
        self._forget()
        return known

    def again(self, keys: Iterable[CallKey]) -> None:
        """These count as changed still, unless they are forgotten."""
        self._changed = {**dict.fromkeys(key for key in keys if key in self._calls), **self._changed}

    def _forget(self) -> None:
        while self._size > self._most_bytes:
            _, call = self._calls.popitem(last=False)
            self._size -= call.size


def _key_of(record: DynamoRecord) -> CallKey:
    context = record.context
    session = (None, None) if context is None else (context.session_id, context.trajectory_id)
    return (*session, None if record.tool is None else record.tool.tool_call_id)
