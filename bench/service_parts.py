"""The real parts that tests and checks start, and where `make services` keeps them: outside the checkout.

Standard library alone: scripts/make_services.py runs before there is an environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE_VARIABLE = "SERVICES_CACHE"


@dataclass(frozen=True)
class Part:
    """``defined_by``: files and module versions that say what it is made of, hence where it is cached."""

    name: str
    defined_by: tuple[str, ...]
    built_with: tuple[str, ...]
    run_with: tuple[str, ...]
    program: str

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256()
        for each in self.defined_by:
            digest.update(each.encode() if "@" in each else (ROOT / each).read_bytes())
        return cache() / f"{self.name.lower()}-{digest.hexdigest()[:12]}"

    @property
    def path(self) -> Path:
        """Of its program: an executable file, or the folder of its jars."""
        return self.folder / self.program

    def lacks(self) -> str | None:
        """Why it cannot be started here; None: it can."""
        if not self.path.exists():
            missing = absent(self.built_with)
            return f"{self.name} is not built (make services" + (f", which needs {missing})" if missing else ")")
        missing = absent(self.run_with)
        return f"{self.name} needs {missing}" if missing else None


BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.165.0"
# The loader behind `docker compose config`, which needs neither Docker nor an engine.
COMPOSE_GO = "github.com/compose-spec/compose-go/v2/cmd@v2.9.0"

JAEGER = Part("Jaeger", ("tests/services/go.mod", "tests/services/go.sum"), ("go",), (), "jaeger")
COLLECTOR = Part("Collector", ("collector-config/builder.yaml", BUILDER), ("go",), (), "build/otelcol")
KAFKA = Part("Kafka", ("tests/services/kafka/pom.xml",), ("mvn", "java"), ("java",), "lib")
COMPOSE = Part("Compose", (COMPOSE_GO,), ("go",), (), "cmd")
PARTS = (KAFKA, COMPOSE, COLLECTOR, JAEGER)

_TOOLS = {"go": "Go", "mvn": "Maven", "java": "Java"}


def absent(tools: tuple[str, ...]) -> str:
    """The names of those that are not on the path, as words of a sentence; empty for none."""
    return " and ".join(_TOOLS[tool] for tool in tools if shutil.which(tool) is None)


def cache() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel_gym" / "services"
