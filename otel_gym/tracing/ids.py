"""Trace and span ids.

Random ids come from os.urandom: RL code seeds ``random``, which must neither repeat our ids nor be
moved on by them. The root span of a rollout takes its trace id from (run id, rollout id), so that
servers which know only the URL prefix still fall into the same trace.
"""

from __future__ import annotations

import hashlib
import os

from opentelemetry.sdk.trace.id_generator import IdGenerator

from otel_gym.identity import Identity, current_identity

_SALT = os.urandom(16)


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
        return int.from_bytes(os.urandom(16), "big") or 1

    def generate_span_id(self) -> int:
        return int.from_bytes(os.urandom(8), "big") or 1

    def is_trace_id_random(self) -> bool:
        identity = current_identity()
        return identity is None or identity.rollout_id is None
