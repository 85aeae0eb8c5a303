"""What the drivers of fault reports share: how a value that is not as expected is told, and what cannot be checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

REMARKS = frozenset({"note"})


class NotDrivenError(Exception):
    """The input, or a key of what is expected, is not one that can be checked here; the text says which."""


def unequal(ours: Object, expected: Object) -> Iterator[str]:
    for name, value in expected.items():
        if ours.get(name) != value or isinstance(ours.get(name), bool) != isinstance(value, bool):
            yield f"{name}: {ours.get(name)!r}, should be {value!r}"


def unequal_of_known(ours: Object, expected: Object) -> Iterator[str]:
    """Like ``unequal``, but a key that ours lacks is one that is not checked: NotDrivenError."""
    wanted = {name: value for name, value in expected.items() if name not in REMARKS}
    for name in wanted:
        if name not in ours:
            raise NotDrivenError(f"no check for the key {name!r}")
    yield from unequal(ours, wanted)
