"""How many bytes of messages may be in memory at a time, from the first that is read to the last that is written."""

from __future__ import annotations

import threading


class Room:
    """A message that is larger than all of it is let in alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, size: int, held: int = 0) -> bool:
        """``held`` of it the same message has already. False, and nothing is taken, where there is no room."""
        with self._lock:
            if self._taken + size > self._size and self._taken > held:
                return False
            self._taken += size
            return True

    def give(self, size: int) -> None:
        with self._lock:
            self._taken -= size
