"""`make services` builds what it can, and says what it leaves out or could not build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_services(cache: Path, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SERVICES_CACHE": str(cache), "PATH": str(path)}
    command = [sys.executable, ROOT / "scripts" / "make_services.py"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_without_tools_each_part_is_left_out_by_name(tmp_path: Path) -> None:
    done = make_services(tmp_path / "cache", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.partition(", since it is built with ")[::2] for line in done.stdout.splitlines()] == [
        (f"services: {part}: left out", f"{tools}, not found here; its tests will be skipped")
        for part, tools in (("Kafka", "Maven and Java"), ("Compose", "Go"), ("Collector", "Go"), ("Jaeger", "Go"))
    ]


def test_a_build_that_fails_is_said_and_the_others_are_built(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    failing = programs / "go"
    failing.write_text("#!/bin/sh\necho no network\nexit 1\n")
    copying = programs / "mvn"
    copying.write_text(
        '#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) /bin/mkdir "${word#*=}";; esac; done\n'
    )
    for program in (failing, copying, programs / "java"):
        program.touch()
        program.chmod(0o755)
    cache = tmp_path / "cache"
    done = make_services(cache, programs)
    assert done.returncode == 1
    assert "services: Kafka: built in" in done.stdout
    assert done.stderr.count("no network") == 3
    assert "services: Jaeger: could not be built; everything that was said is in" in done.stderr
    again = make_services(cache, programs)
    assert f"services: Kafka: is in {cache}" in again.stdout
