"""A harness's session as the rollout of a model call that names none."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gym.id_rules import rollout_id_of_session
from otel_gym.wire.agent_context import AGENT_HEADERS, session_above

# Sessions whose parent is remembered; of older ones a child's session stands alone.
MAX_SESSIONS = 4096
_WANTED = {name.encode("latin-1"): name for name in AGENT_HEADERS}


class SessionRoots:
    """The first session of each family, as far as requests told of it: a header names no more than the parent."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def rollout_id(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Made as imports make it from a session's id; None where the request names no session."""
        said: dict[str, list[str]] = {}
        for name, value in headers:
            wanted = _WANTED.get(bytes(name).lower())
            if wanted is not None:
                said.setdefault(wanted, []).append(bytes(value).decode("latin-1"))
        found = session_above(said) if said else None
        return None if found is None else rollout_id_of_session(self._root(*found))

    def _root(self, session: str, parent: str) -> str:
        if parent != session:
            self._remember(session, parent)
        seen = {session}
        while parent not in seen:
            seen.add(parent)
            parent = self._parents.get(parent, parent)
        return parent

    def _remember(self, session: str, parent: str) -> None:
        self._parents.pop(session, None)
        self._parents[session] = parent
        while len(self._parents) > MAX_SESSIONS:
            self._parents.pop(next(iter(self._parents)), None)
