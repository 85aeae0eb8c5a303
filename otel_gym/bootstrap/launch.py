"""Starts a command with tracing on for every Python below it: by its environment, and by nothing else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from otel_gym.bootstrap.bundle import site_folder
from otel_gym.id_rules import checked_id, new_run_id
from otel_gym.settings import ANNOUNCED, read_settings

PYTHON_PATH = "PYTHONPATH"


class LaunchError(Exception):
    """The command could not be started; the text says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """``environment`` is that of the command, ``directory`` the store's absolute path."""

    environment: dict[str, str]
    directory: Path
    run_id: str


def launch_of(directory: Path | None, run_id: str | None, environ: Mapping[str, str]) -> Launch:
    """Arguments win over the environment; where neither names a run, it gets a new id.

    Raises InvalidIdError for a run id that is refused, LaunchError where the packages cannot be brought.
    """
    settings = read_settings(environ)
    run_id = checked_id(run_id, "run id") if run_id else settings.run_id or new_run_id()
    folder = Path(os.path.abspath(directory or settings.directory))
    try:
        site = str(site_folder())
    except OSError as error:
        raise LaunchError(f"no folder can be made for what the command needs: {error}; set XDG_CACHE_HOME") from None
    environment = {
        **environ,
        "OTEL_GYM": "1",
        "OTEL_GYM_DIR": str(folder),
        "OTEL_GYM_RUN_ID": run_id,
        ANNOUNCED: "1",
        PYTHON_PATH: os.pathsep.join([site, *_others(environ.get(PYTHON_PATH, ""), site)]),
    }
    return Launch(environment, folder, run_id)


def _others(python_path: str, site: str) -> list[str]:
    return [place for place in python_path.split(os.pathsep) if place != site] if python_path else []


def execute(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Becomes the command: its signals, terminal and exit code are its own. Raises LaunchError."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        raise LaunchError(f"{command[0]}: {error.strerror}") from None
