"""A Python that is newer than ours need be, for peers that want one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("python3.14", "python3.13", "python3.12", "python3")


def pythons_from(major: int, minor: int) -> Iterator[str]:
    """Those on PATH and of pyenv (also where its shims are not told to use them) that run and are new enough."""
    program = f"import sys, venv; sys.exit(sys.version_info < ({major}, {minor}))"
    return (name for name in (*_NAMES, *_of_pyenv()) if runs(name, program))


def _of_pyenv() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(map(str, root.glob("versions/3.*/bin/python")), reverse=True)


def runs(python: str | Path, program: str) -> bool:
    try:
        return subprocess.run([python, "-c", program], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
