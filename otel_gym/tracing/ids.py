"""Trace and span ids.

Random ids come from os.urandom: RL code seeds ``random``, which must neither repeat our ids nor be
moved on by them. The root span of a rollout takes its trace id from (run id, rollout id), so that
servers which know only the URL prefix still fall into the same trace.
"""

from __future__ import annotations

import hashlib
import os
import threading

from opentelemetry.sdk.trace.id_generator import IdGenerator

from otel_gym.identity import Identity, current_identity

_SALT = os.urandom(16)
_POOL_BYTES = 8192


class _RandomPool:
    """Bytes of os.urandom, drawn in blocks: one system call for each id costs more than its span."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block = b""
        self._used = 0

    def take(self, size: int) -> bytes:
        with self._lock:
            if self._used + size > len(self._block):
                self._block, self._used = os.urandom(_POOL_BYTES), 0
            taken = self._block[self._used : self._used + size]
            self._used += size
            return taken


_pool = _RandomPool()


def random_bytes(size: int) -> bytes:
    """``size`` bytes (at most 8192) of os.urandom."""
    return _pool.take(size)


def _new_pool_after_fork() -> None:
    """The child must not draw the bytes that its parent will."""
    global _pool
    _pool = _RandomPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_pool_after_fork)


def trace_id_of(identity: Identity) -> int:
    """128-bit trace id of a rollout. Without a run id it holds within this process only."""
    launch = identity.run_id.encode() if identity.run_id else _SALT
    digest = hashlib.sha256(launch + b"\0" + (identity.rollout_id or "").encode()).digest()
    return int.from_bytes(digest[:16], "big") or 1


class GymIdGenerator(IdGenerator):
    def generate_trace_id(self) -> int:
        identity = current_identity()
        if identity is not None and identity.rollout_id is not None:
            return trace_id_of(identity)
        return int.from_bytes(random_bytes(16), "big") or 1

    def generate_span_id(self) -> int:
        return int.from_bytes(random_bytes(8), "big") or 1

    def is_trace_id_random(self) -> bool:
        identity = current_identity()
        return identity is None or identity.rollout_id is None
