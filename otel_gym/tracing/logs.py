"""What tracing says of its own failures: each kind once."""

from __future__ import annotations

import logging

logger = logging.getLogger("otel_gym")

_said: set[str] = set()


def log_once(problem: str, *, with_traceback: bool = True) -> None:
    """Says a failure of ours once per kind; must never raise into the traced program."""
    if problem in _said:
        return
    _said.add(problem)
    logger.warning("otel_gym: %s", problem, exc_info=with_traceback)
