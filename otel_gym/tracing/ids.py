"""Trace and span ids.

Random ids come from os.urandom: RL code seeds ``random``, which must neither repeat our ids nor be
moved on by them. The root span of a rollout takes its trace id from (run id, rollout id), so that
servers which know only the URL prefix still fall into the same trace.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from functools import lru_cache

from opentelemetry.sdk.trace.id_generator import IdGenerator

from otel_gym.identity import Identity, current_identity, is_leftover

_SALT = os.urandom(16)
_POOL_BYTES = 8192


class _RandomPool:
    """64-bit numbers of os.urandom, drawn in blocks: one system call for each id costs more than its span.

    Without a lock: a deque gives each number to one thread only.
    """

    def __init__(self) -> None:
        self._numbers: deque[int] = deque()

    def take(self) -> int:
        while True:
            try:
                return self._numbers.popleft()
            except IndexError:
                self._numbers.extend(_UNPACK(os.urandom(_POOL_BYTES)))


_UNPACK = struct.Struct(f"{_POOL_BYTES // 8}Q").unpack
_pool = _RandomPool()


def random_id64() -> int:
    """A number of 64 random bits of os.urandom."""
    return _pool.take()


def random_id128() -> int:
    """A number of 128 random bits of os.urandom."""
    return _pool.take() << 64 | _pool.take()


def _new_pool_after_fork() -> None:
    """The child must not draw the numbers that its parent will."""
    global _pool
    _pool = _RandomPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_pool_after_fork)


@lru_cache(maxsize=1024)
def trace_id_of(identity: Identity) -> int:
    """128-bit trace id of a rollout. Without a run id it holds within this process only."""
    launch = identity.run_id.encode() if identity.run_id else _SALT
    digest = hashlib.sha256(launch + b"\0" + (identity.rollout_id or "").encode()).digest()
    return int.from_bytes(digest[:16], "big") or 1


class GymIdGenerator(IdGenerator):
    def generate_trace_id(self) -> int:
        identity = current_identity()
        if identity is None or identity.rollout_id is None or is_leftover(identity):
            return random_id128() or 1
        return trace_id_of(identity)

    def generate_span_id(self) -> int:
        return random_id64() or 1

    def is_trace_id_random(self) -> bool:
        identity = current_identity()
        return identity is None or identity.rollout_id is None or is_leftover(identity)
