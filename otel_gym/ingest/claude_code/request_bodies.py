"""The exact request of a model call, rebuilt from what newer versions note of each attempt.

A request is noted as (an earlier one, how many of its messages are kept, the names of those after them). A message's
name is the hash of its compact JSON with sorted keys. One that cannot be told from the ordinary records is noted whole;
the others are looked for among them: what a user record says, and the records of one message put together. System
blocks and tools are noted once for all requests that share them.

The file is read for it a second time, and only when a body is asked for: bodies grow with the square of a session.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.content import safe_json
from otel_gym.ingest.claude_code.lines import Damage, Row, rows
from otel_gym.wire.items.shapes import compact_json
from otel_gym.wire.usage import token_count

# Sent as a header.
_NOT_IN_BODY = frozenset({"betas"})


@dataclass(slots=True)
class NotedRequest:
    """A request as its file notes it; only ``time_ns``, ``params`` and ``body`` are for others."""

    time_ns: int | None
    params: dict[str, Any]
    base: str | None
    kept: int
    tail: list[str]
    shape: str | None
    cache_control: list[Any]
    bodies: RequestBodies

    def body(self) -> str | None:
        """JSON, but for what is not noted (metadata, stream, the billing block); None if a part of it is lost."""
        return self.bodies.body(self)


class RequestBodies:
    """The requests that one file notes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._requests: dict[str, NotedRequest] = {}
        self._messages: dict[str, str] | None = None
        self._shapes: dict[str, str] = {}

    def add_request(self, request_id: str, row: Row, time_ns: int | None) -> NotedRequest:
        tail, params, cache_control = row.get("tail"), row.get("params"), row.get("cacheControl")
        base, shape = row.get("base"), row.get("shapeHash")
        request = self._requests[request_id] = NotedRequest(
            time_ns,
            params if isinstance(params, dict) else {},
            base if isinstance(base, str) else None,
            token_count(row.get("keep")) or 0,
            [name for name in tail if isinstance(name, str)] if isinstance(tail, list) else [],
            shape if isinstance(shape, str) else None,
            cache_control if isinstance(cache_control, list) else [],
            self,
        )
        return request

    def body(self, request: NotedRequest) -> str | None:
        """Of a request of this file, as ``NotedRequest.body``."""
        names = self._names(request)
        if names is None:
            return None
        texts = self._read()
        shape = self._shapes.get(request.shape or "")
        if shape is None or any(name not in texts for name in names):
            return None
        body: dict[str, Any] = {
            "model": request.params.get("model"),
            "messages": [json.loads(texts[name]) for name in names],
            **json.loads(shape),
            **{name: value for name, value in request.params.items() if name not in _NOT_IN_BODY},
        }
        for mark in request.cache_control:
            if not _set_cache_control(body, mark):
                return None
        return safe_json(body)

    def _names(self, request: NotedRequest) -> list[str] | None:
        """Of its messages; None where an earlier request that it builds on is not there."""
        parts: list[list[str]] = []
        length = request.kept + len(request.tail)
        for _ in range(len(self._requests)):
            if length > request.kept + len(request.tail):
                return None
            parts.append(request.tail[: max(length - request.kept, 0)])
            length = min(length, request.kept)
            base = self._requests.get(request.base or "")
            if length == 0:
                return [name for part in reversed(parts) for name in part]
            if base is None:
                return None
            request = base
        return None

    def _read(self) -> dict[str, str]:
        """The messages, JSON by name."""
        if self._messages is None:
            wanted = {name for request in self._requests.values() for name in request.tail}
            self._messages = {}
            answers: dict[str, list[Any]] = {}
            for _, row in rows(self._path, Damage(self._path)):
                self._read_row(row, wanted, answers)
            for content in answers.values():
                self._keep({"role": "assistant", "content": content}, wanted)
        return self._messages

    def _read_row(self, row: Row, wanted: set[str], answers: dict[str, list[Any]]) -> None:
        kind, message = row.get("type"), row.get("message")
        if kind == "api-request-shape":
            shape = row.get("shape")
            self._shapes[str(row.get("shapeHash"))] = compact_json(shape if isinstance(shape, dict) else {})
        elif not isinstance(message, dict) or self._messages is None:
            return
        elif kind == "api-request-blob":
            self._messages[str(row.get("hash"))] = compact_json(message)
        elif kind == "user":
            self._keep({"role": "user", "content": message.get("content")}, wanted)
        elif kind == "assistant" and isinstance(message.get("content"), list):
            answers.setdefault(str(message.get("id")), []).extend(message["content"])

    def _keep(self, message: Row, wanted: set[str]) -> None:
        """Only what a request names."""
        name = _name_of(message)
        if self._messages is not None and name in wanted:
            self._messages.setdefault(name, compact_json(message))


def _name_of(message: Row) -> str:
    text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _set_cache_control(body: dict[str, Any], mark: Any) -> bool:
    """A mark is {path, value}; False where its path leads nowhere."""
    if not isinstance(mark, dict) or not isinstance(mark.get("path"), list):
        return False
    place: Any = body
    for step in mark["path"]:
        try:
            place = place[step]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(place, dict):
        return False
    place["cache_control"] = mark.get("value")
    return True
