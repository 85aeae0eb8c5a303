"""The folder that ``otel-gym run`` brings to the programs that it starts: links to what is installed here.

    <cache>/<key>/site/sitecustomize.py   the one folder on PYTHONPATH
    <cache>/<key>/begin.py                what it runs at the first library that can be traced
    <cache>/<key>/packages/               OpenTelemetry and what it needs, and this package
    <cache>/<key>/otlp/                   what sending over OTLP needs besides

All of it runs in any Python from ours on: what is compiled there is for one version, has a fallback, and is found by
that version alone. The key follows from what is linked, so a folder never changes and is never removed while in use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement

import otel_gym
from otel_gym.version import __version__

SITE, PACKAGES, OTLP = "site", "packages", "otlp"
HOOK = "sitecustomize.py"
BEGINNING = "begin.py"

ROOTS = ("opentelemetry-sdk", "opentelemetry-instrumentation-asgi")
OTLP_ROOTS = ("opentelemetry-exporter-otlp-proto-http",)

_PACKAGE = Path(otel_gym.__file__).parent


def site_folder() -> Path:
    """The folder for PYTHONPATH, made if it is not there yet. OSError if it cannot be made anywhere."""
    packages = {each.name: each for each in needed(ROOTS)}
    parts = {
        PACKAGES: list(packages.values()),
        OTLP: [each for each in needed(OTLP_ROOTS) if each.name not in packages],
    }
    key = _key(each for group in parts.values() for each in group)
    try:
        bundle = cache_folder() / key
        if not (bundle / SITE / HOOK).exists():
            _make(bundle, parts)
    except (OSError, RuntimeError):  # no home, or none that can be written
        bundle = Path(tempfile.mkdtemp(prefix="otel_gym."))
        _fill(bundle, parts)
    return bundle / SITE


def cache_folder() -> Path:
    """The user's cache of this package; XDG_CACHE_HOME, else ~/.cache. RuntimeError where there is no home."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache") / "otel_gym"


def needed(names: Iterable[str], extras: frozenset[str] = frozenset()) -> Iterator[Distribution]:
    """The installed packages of these names and all that they require, each once."""
    seen: set[tuple[str, frozenset[str]]] = set()
    given: set[str] = set()
    waiting = [(name, extras) for name in names]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found = distribution(name)
        if name not in given:
            given.add(name)
            yield found
        for text in found.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
                waiting.append((requirement.name.lower().replace("_", "-"), frozenset(requirement.extras)))


def _key(linked: Iterable[Distribution]) -> str:
    described = sorted(f"{each.name} {each.version} {each.locate_file('')}" for each in linked)
    return hashlib.sha256("\n".join([str(_PACKAGE), __version__, *described]).encode()).hexdigest()[:16]


def _make(bundle: Path, parts: dict[str, list[Distribution]]) -> None:
    """Under another name first: a folder that is there is whole."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="making.", dir=bundle.parent))
    _fill(building, parts)
    try:
        building.rename(bundle)
    except OSError:
        shutil.rmtree(building)
        if not (bundle / SITE / HOOK).exists():  # else another command was faster
            raise


def _fill(folder: Path, parts: dict[str, list[Distribution]]) -> None:
    for part, linked in parts.items():
        for each in linked:
            link_distribution(each, folder / part)
    _link_package(folder / PACKAGES)
    (folder / SITE).mkdir()
    (folder / SITE / HOOK).symlink_to(_PACKAGE / "bootstrap" / SITE / HOOK)
    (folder / BEGINNING).symlink_to(_PACKAGE / "bootstrap" / BEGINNING)


def link_distribution(linked: Distribution, folder: Path) -> None:
    """Links each package of it whole, and each module that lies in none: a namespace holds those of others too."""
    files = [file for file in linked.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    packages: set[PurePath] = {file.parent for file in files if file.name == "__init__.py"}
    packages |= {file.parent for file in files if file.parent.suffix == ".dist-info"}
    for place in {_outermost(file, packages) for file in files}:
        link = folder / place
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.abspath(str(linked.locate_file(place))))


def _outermost(file: PurePath, packages: set[PurePath]) -> PurePath:
    return next((parent for parent in reversed(file.parents) if parent in packages), file)


def _link_package(folder: Path) -> None:
    """This package, wherever it lies, with the metadata that names its entry points."""
    (folder / _PACKAGE.name).symlink_to(_PACKAGE)
    try:
        files = distribution("otel_gym").files or ()
    except PackageNotFoundError:  # run from its sources
        return
    for file in files:
        if file.name == "METADATA":
            metadata = Path(str(file.locate())).parent
            (folder / metadata.name).symlink_to(metadata.absolute())
