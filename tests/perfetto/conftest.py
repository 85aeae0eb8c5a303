"""The real engine of Perfetto, where node is here; spans to draw."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.shapes import Process
from otel_gym.views.perfetto.timeline import Shown

BENCH = Path(__file__).parents[2] / "bench"


def of_bench(name: str) -> Any:
    """A module of bench/, whose own folder is on the path only while it is loaded."""
    sys.path.append(str(BENCH))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    trace_engine = of_bench("trace_engine")
    lacking = trace_engine.missing()
    if lacking is not None:
        pytest.skip(f"Perfetto's engine does not run here: {lacking}")
    with trace_engine.Engine() as running:
        yield running


Load = Callable[..., list[Process]]


def differences_of(engine: Any, made: list[Process], name: str) -> list[str]:
    """Of what the engine shows, and what it was to show."""
    problems: list[str] = of_bench("trace_check").differences(engine, made, exact="pftrace" in name)
    return problems


@pytest.fixture(params=["pftrace", "json", "pftrace.gz", "json.gz"])
def load(request: pytest.FixtureRequest, engine: Any, tmp_path: Path) -> Load:
    """Exports rollouts in each format, loads them into the engine, and checks that it shows them as they are."""

    def loading(rollouts: list[RolloutSpans], **shown: Any) -> list[Process]:
        made = list(processes(rollouts, Shown(**shown)))
        trace = tmp_path / f"trace.{request.param}"
        write_trace(lambda: processes(rollouts, Shown(**shown)), trace)
        engine.load(trace.read_bytes())
        assert differences_of(engine, made, trace.name) == []
        return made

    return loading
