"""In a program below ``otel-gym run``: whether its own packages go with those that we bring, and the start."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

API = "opentelemetry-api"
# The oldest that our SDK was seen to run on (below it spans cannot be ended), the oldest SDK that we run on, and the
# first version that may have other interfaces.
OLDEST_API, OLDEST_SDK, NEXT_API = (1, 44), (1, 45), (2, 0)

Version = tuple[int, ...]


class MisfitError(Exception):
    """The program's OpenTelemetry and ours do not go together; the text says why and what to do."""


def start_in_child(folders: list[str]) -> None:
    """``folders``: those of our packages, at the end of ``sys.path``. Raises MisfitError."""
    own_path = [folder for folder in sys.path if folder not in folders]
    ours = {name: version for folder in folders for name, version in bundled_versions(Path(folder)).items()}
    others = other_releases(found_versions(ours, own_path), ours)
    if others:
        _try_out(others, ours[API])
    from otel_gym.bootstrap.starting import start

    start()


def other_releases(theirs: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Those of the program's packages of OpenTelemetry that are of another release than ours, if ours are used too.

    They are made for each other, release by release. None where the program has all that is needed.
    """
    others = {name: version for name, version in theirs.items() if _release(version) != _release(ours[name])}
    has_all = theirs.keys() >= ours.keys()
    return {} if has_all and OLDEST_SDK <= _release(theirs[API]) < NEXT_API else others


def _try_out(others: Mapping[str, str], our_version: str) -> None:
    """Raises MisfitError where the two releases do not go together."""
    found = ", ".join(f"{name} {version}" for name, version in sorted(others.items()))
    problem = f"its environment has {found}, which does not go with OpenTelemetry {our_version}, ours"
    cure = "install otel_gym there, or the same release of OpenTelemetry"
    if API in others and not OLDEST_API <= _release(others[API]) < NEXT_API:
        raise MisfitError(f"{problem}; {cure}")
    try:
        from otel_gym.bootstrap.trial import try_out

        try_out()
    except Exception as error:
        raise MisfitError(f"{problem} ({type(error).__name__}: {error}); {cure}") from None


def bundled_versions(folder: Path) -> dict[str, str]:
    """The packages of OpenTelemetry in a folder of ours → their versions, by the names of their metadata's folders."""
    pairs = (path.name.removesuffix(".dist-info").split("-") for path in folder.glob("opentelemetry_*-*.dist-info"))
    return {name.replace("_", "-"): version for name, version, *_ in pairs}


def found_versions(names: Iterable[str], path: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        distribution = next(iter(distributions(name=name, path=path)), None)
        if distribution is not None:
            found[name] = distribution.version
    return found


def _release(version: str) -> Version:
    """(1, 45) of 1.45.2."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
