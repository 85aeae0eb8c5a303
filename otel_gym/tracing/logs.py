"""What tracing says of its own failures: each kind once."""

from __future__ import annotations

import logging

logger = logging.getLogger("otel_gym")

_said: set[str] = set()


def log_once(problem: str, *, kind: str | None = None, with_traceback: bool = True) -> None:
    """Says a failure of ours once per kind; must never raise into the traced program.

    ``kind``: where the text names one case of many; else the text is the kind.
    """
    kind = kind or problem
    if kind in _said:
        return
    _said.add(kind)
    logger.warning("otel_gym: %s", problem, exc_info=with_traceback)
