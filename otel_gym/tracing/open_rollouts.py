"""The rollouts that are open in this process, for code that has lost its context or only knows an id."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from otel_gym.identity import Identity


class OpenRollout(Protocol):
    @property
    def identity(self) -> Identity: ...


_lock = threading.Lock()
_open: weakref.WeakSet[OpenRollout] = weakref.WeakSet()
# Those that were ever open together with another: what has no context may belong to any of them.
_not_alone: weakref.WeakSet[OpenRollout] = weakref.WeakSet()


def enter(rollout: OpenRollout) -> None:
    with _lock:
        _open.add(rollout)
        if len(_open) > 1:
            _not_alone.update(_open)


def leave(rollout: OpenRollout) -> None:
    with _lock:
        _open.discard(rollout)
        _not_alone.discard(rollout)


def only_one() -> Identity | None:
    """Of the one rollout that runs here, if no other ran while it did: else nobody can say which is meant."""
    with _lock:
        rollouts = list(_open)
        is_alone = len(rollouts) == 1 and rollouts[0] not in _not_alone
    return rollouts[0].identity if is_alone else None


def find(identity: Identity) -> OpenRollout | None:
    """The open rollout with this id, of this run if one is named; None of several."""
    with _lock:
        rollouts = [rollout for rollout in _open if rollout.identity.rollout_id == identity.rollout_id]
    found = [rollout for rollout in rollouts if identity.run_id in (None, rollout.identity.run_id)]
    return found[0] if len(found) == 1 else None


def _forget_after_fork() -> None:
    """They are open in the parent: a worker that was forked meanwhile may work for others later."""
    global _lock, _open, _not_alone
    _lock, _open, _not_alone = threading.Lock(), weakref.WeakSet(), weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
