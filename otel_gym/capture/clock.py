"""The clocks of a capture: wall time for where, monotonic time for how long."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ns(self) -> int:
        """UTC epoch nanoseconds."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds from any fixed point, never going back."""
        ...


class SystemClock:
    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
