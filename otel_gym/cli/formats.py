"""Numbers and times as people read them in tables."""

from __future__ import annotations

import time

UNKNOWN = "-"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def counted(number: int, thing: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{number:,} {thing if number == 1 else thing + 's'}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if abs(value) < 10:
        return f"{value:.1f} ms"
    if abs(value) < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:.2f} s"


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def utc(epoch_seconds: float) -> str:
    """``2026-11-30 02:24:05Z``; a time that no calendar has stays a number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(epoch_seconds))
    except (OverflowError, OSError, ValueError):
        return f"{epoch_seconds:g}"


def utc_milliseconds(epoch_ns: int) -> str:
    """``02:24:05.120Z``, of a moment that is near."""
    seconds, rest = divmod(epoch_ns, 10**9)
    try:
        return f"{time.strftime('%H:%M:%S', time.gmtime(seconds))}.{rest // 10**6:03d}Z"
    except (OverflowError, OSError, ValueError):
        return str(epoch_ns)
