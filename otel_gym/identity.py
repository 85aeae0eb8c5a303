"""Run and rollout ids: how they look, and how they travel.

An id travels, first found wins, as an explicit argument, the ``/ng-rollout/<id>`` URL prefix, W3C
baggage, the parent span. ``current_identity`` is a context variable of ours beside OpenTelemetry's
context, since a propagator's ``extract`` starts from an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context

from otel_gym.conventions import ROLLOUT_ID, RUN_ID
from otel_gym.id_rules import checked_id, is_valid_id, is_valid_run_id

URL_PREFIX = "/ng-rollout/"

_ATTEMPT = re.compile(r"(?P<task>\d+)-(?P<rollout>\d+)(?:-a(?P<attempt>[1-9]\d*))?", re.ASCII)
_TOKEN_CAPTURE = "training-token-capture"
_PREFIXED_RAW_PATH = re.compile(rb"/ng-rollout/[^/]+(?:/training-token-capture)?(?P<rest>/.*)", re.DOTALL)


class Identity(NamedTuple):
    """Which rollout, of which launch, a span belongs to. None: not known."""

    rollout_id: str | None = None
    run_id: str | None = None


class HeldIdentity(Identity):
    """One that can be taken back where it is still current: that of a rollout in a generator that was broken off."""

    outer: Identity | None = None
    is_taken_back = False


class RequestIdentity(Identity):
    """That of a request. ``is_over``: it was answered.

    A keep-alive connection may start its next request in the context of the last one (CPython issue 140947): what is
    current there then is no identity of the next.
    """

    is_over = False


@dataclass(frozen=True, slots=True)
class RolloutIndices:
    task_index: int
    rollout_index: int
    attempt: int = 0


_current: ContextVar[Identity | None] = ContextVar("otel_gym_identity", default=None)


def rollout_id_from_indices(task_index: int, rollout_index: int, attempt: int = 0) -> str:
    """NeMo Gym's id: ``{task_index}-{rollout_index}``, plus ``-a{n}`` for a retry."""
    suffix = f"-a{attempt}" if attempt > 0 else ""
    return f"{task_index}-{rollout_index}{suffix}"


def indices_from_rollout_id(rollout_id: str) -> RolloutIndices | None:
    """The indices in an id of the form ``int-int[-aN]``; None for any other form."""
    match = _ATTEMPT.fullmatch(rollout_id)
    if match is None:
        return None
    return RolloutIndices(int(match["task"]), int(match["rollout"]), int(match["attempt"] or 0))


def split_url_prefix(path: str) -> tuple[str | None, str]:
    """``/ng-rollout/<id>/v1/messages`` → (id as it stands there, ``/v1/messages``).

    One level only, as NeMo Gym does; the id is not checked here. (None, path) without the prefix, and
    where a line feed follows it: no route has one.
    """
    if not path.startswith(URL_PREFIX):
        return None, path
    rollout_id, slash, rest = path[len(URL_PREFIX) :].partition("/")
    if not rollout_id or not slash or "\n" in rest:
        return None, path
    token_capture, slash, inner = rest.partition("/")
    return rollout_id, "/" + (inner if slash and token_capture == _TOKEN_CAPTURE else rest)


def strip_raw_url_prefix(raw_path: bytes, path: bytes) -> bytes:
    """The undecoded path that belongs to ``path``, the decoded one after its prefix was taken off.

    Where an encoded slash cut the id, the two were cut at different places: then ``path`` itself.
    """
    if b"%" not in raw_path:
        return path
    match = _PREFIXED_RAW_PATH.fullmatch(raw_path)
    rest = match["rest"] if match else raw_path
    return rest if unquote_to_bytes(rest) == path else path


def url_path_for_rollout(rollout_id: str, path: str) -> str:
    """``/v1/responses`` → ``/ng-rollout/<id>/v1/responses``."""
    return f"{URL_PREFIX}{checked_id(rollout_id)}/{path.lstrip('/')}"


def current_identity() -> Identity | None:
    identity = _current.get()
    while isinstance(identity, HeldIdentity) and identity.is_taken_back:
        identity = identity.outer
    return identity


def is_leftover(identity: Identity | None) -> bool:
    """Whether it is that of a request that was answered: a request that starts now has not got it."""
    return isinstance(identity, RequestIdentity) and identity.is_over


def set_identity(identity: Identity | None) -> Token[Identity | None]:
    return _current.set(identity)


def reset_identity(token: Token[Identity | None]) -> None:
    _current.reset(token)


def identity_from_baggage(context: Context | None = None) -> Identity | None:
    """What the baggage of an OpenTelemetry context says; ids that the pattern refuses are ignored."""
    return _identity(baggage.get_baggage(ROLLOUT_ID, context), baggage.get_baggage(RUN_ID, context))


@lru_cache(maxsize=1024)  # the requests of one rollout bring one header
def identity_from_baggage_header(header: str) -> Identity | None:
    """The same for the value of a ``baggage`` header."""
    carrier: Mapping[str, str] = {"baggage": header}
    return identity_from_baggage(W3CBaggagePropagator().extract(carrier, Context()))


def baggage_of(identity: Identity, context: Context | None = None) -> Context:
    """``context`` with the ids of ``identity`` in its baggage."""
    for name, text in ((ROLLOUT_ID, identity.rollout_id), (RUN_ID, identity.run_id)):
        if text is not None:
            context = baggage.set_baggage(name, text, context)
    return context if context is not None else Context()


def _identity(rollout_id: object, run_id: object) -> Identity | None:
    rollout = rollout_id if isinstance(rollout_id, str) and is_valid_id(rollout_id) else None
    run = run_id if isinstance(run_id, str) and is_valid_run_id(run_id) else None
    return Identity(rollout, run) if rollout or run else None
