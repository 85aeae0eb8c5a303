"""Programs that know nothing of tracing, in environments of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.newer_python import pythons_from
from otel_gym.bootstrap.bundle import link_distribution, needed
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.span import StoredSpan

PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent
LIBRARIES = ("fastapi", "uvicorn", "httpx")
OLD_LIBRARIES = ("fastapi==0.115.*", "uvicorn", "httpx")


class Launches:
    """Runs programs in a folder of their own, whose store is ``store``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "store"

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """With nothing of OpenTelemetry in the environment but what is given."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHONPATH"))}
        clean["PATH"] = f"{BIN}{os.pathsep}{clean['PATH']}"
        return subprocess.run(
            list(map(str, command)),
            cwd=self.folder,
            env={**clean, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def traced(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Below ``otel-gym run``."""
        return self.run("otel-gym", "run", "--dir", self.directory, "--", *command, **environment)

    def instrumented(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Below ``opentelemetry-instrument``, with OTEL_GYM=1 unless told otherwise."""
        settings = {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(self.directory), **environment}
        return self.run("opentelemetry-instrument", "python", PROGRAMS / program, **settings)

    def rollouts(self) -> list[RolloutSpans]:
        return list(Store(self.directory).rollouts()) if (self.directory / "spans").exists() else []

    def spans(self, rollout_id: str = "7-0") -> list[StoredSpan]:
        return [span for rollout in self.rollouts() if rollout.rollout_id == rollout_id for span in rollout.spans]

    def lines(self) -> int:
        """As written: a span that was stored twice has two."""
        return sum(path.read_bytes().count(b"\n") for path in (self.directory / "spans").rglob("*.jsonl"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache_of_our_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's is left as it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture
def launches(tmp_path: Path) -> Launches:
    return Launches(tmp_path)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with FastAPI, pydantic and httpx, and of OpenTelemetry what FastAPI requires."""
    python = new_environment(Path(sys.executable), tmp_path_factory.mktemp("bare"))
    link_into(python, LIBRARIES)
    assert not can_import(python, "opentelemetry.sdk.trace") and not can_import(python, "otel_gym")
    return python


@pytest.fixture(scope="session")
def newer_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newer Python with pydantic and FastAPI of its own, which is of the time before it required OpenTelemetry."""
    base = next(pythons_from(3, 13), None)
    if base is None:
        pytest.skip("neither PATH nor pyenv has a Python 3.13 or newer")
    python = new_environment(Path(base), tmp_path_factory.mktemp("newer"), with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *OLD_LIBRARIES]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip(f"pip installs no {', '.join(OLD_LIBRARIES)} for a newer Python: see to the package index")
    assert not can_import(python, "opentelemetry.trace") and not can_import(python, "otel_gym")
    return python


@pytest.fixture
def make_python(tmp_path: Path) -> Callable[[Sequence[str]], Path]:
    """An environment of its own with these packages of ours."""

    def make(packages: Sequence[str]) -> Path:
        python = new_environment(Path(sys.executable), tmp_path / "own")
        link_into(python, packages)
        return python

    return make


def new_environment(base: Path, folder: Path, *, with_pip: bool = False) -> Path:
    options = [] if with_pip else ["--without-pip"]
    subprocess.run([base, "-m", "venv", *options, folder], check=True, capture_output=True)
    return folder / "bin" / "python"


def site_packages(python: Path) -> Path:
    (folder,) = (python.parent.parent / "lib").glob("python3*/site-packages")
    return folder


def link_into(python: Path, packages: Sequence[str]) -> None:
    for distribution in needed(packages):
        link_distribution(distribution, site_packages(python))


def can_import(python: Path, module: str) -> bool:
    return (
        subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, check=False, cwd=python.parent
        ).returncode
        == 0
    )
