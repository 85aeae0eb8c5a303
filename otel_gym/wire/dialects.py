"""The dialects that are known, in one table: a new one is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from otel_gym.wire.assembler import StreamAssembler
from otel_gym.wire.chat import ChatAssembler
from otel_gym.wire.exchange import DialectName
from otel_gym.wire.messages import MessagesAssembler
from otel_gym.wire.responses import ResponsesAssembler


@dataclass(frozen=True, slots=True)
class Dialect:
    """``path`` is the exact request path of a model call; ``assembler`` makes one for one stream."""

    name: DialectName
    path: str
    assembler: Callable[[], StreamAssembler]


DIALECTS: dict[DialectName, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("responses", "/v1/responses", ResponsesAssembler),
        Dialect("chat", "/v1/chat/completions", ChatAssembler),
        Dialect("messages", "/v1/messages", MessagesAssembler),
    )
}

_BY_PATH = {dialect.path: dialect for dialect in DIALECTS.values()}
_VERSION = "/v1/"
_ENDPOINTS = tuple(path.removeprefix("/v1") for path in _BY_PATH)


def dialect_for_path(path: str) -> Dialect | None:
    """The dialect that a request path speaks; sub-paths, trailing slashes and other cases speak none."""
    return _BY_PATH.get(path)


def is_near_miss(path: str) -> bool:
    """Whether a path that speaks no dialect is that of a model call all the same, by a base URL other than expected.

    ``/chat/completions``, ``/openai/v1/responses``, ``/v1/messages/`` and ``/v1/v1/messages`` are;
    ``/v1/threads/<id>/messages`` is not.
    """
    plain = path.rstrip("/").lower()
    if plain.startswith(_VERSION + _VERSION[1:]):
        plain = plain.removeprefix("/v1")
    if plain.startswith(_VERSION):
        return path not in _BY_PATH and plain in _BY_PATH
    return plain.endswith(_ENDPOINTS)
