"""A program that sets up a TracerProvider of its own, as other vendors do: ours joins it, and its own parts hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import PROGRAMS, Launches

SET_UP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
provider = TracerProvider(sampler={sampler})
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
"""
SERVED = (PROGRAMS / "served_call.py").read_text()
(START,) = [line for line in SERVED.splitlines() if line.startswith("with socket.create_server")]


def program(when: str, sampler: str = "None") -> str:
    set_up = SET_UP.format(sampler=sampler)
    if when == "before":
        return set_up + SERVED
    return SERVED.replace(START, set_up + START)  # all is imported and the application made


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("way", ["run", "first use"])
def test_our_processor_joins_a_provider_set_before_or_after_the_libraries_are_imported(
    launches: Launches, tmp_path: Path, when: str, way: str
):
    (tmp_path / "agent.py").write_text(program(when))
    if way == "run":
        done = launches.traced("python", "agent.py")
    else:
        text = program(when).replace(
            "app = fastapi", "from otel_gym.capture.middleware import instrument_app\napp = fastapi"
        )
        (tmp_path / "agent.py").write_text(text.replace(START, f"instrument_app(app)\n{START}"))
        done = launches.run("python", "agent.py", OTEL_GYM="1", OTEL_GYM_DIR=str(launches.directory))
    assert done.returncode == 0, done.stderr
    assert '"name": "chat m"' in done.stdout  # the vendor's exporter got them, too
    assert sorted(span.name for span in launches.spans()) == ["POST /v1/chat/completions", "chat m"]
    notes = [path.read_text() for path in (launches.directory / "notes").iterdir()]
    assert any('"foreign"' in note for note in notes)


def test_its_sampler_holds_and_no_otlp_copy_is_sent(launches: Launches, tmp_path: Path):
    (tmp_path / "agent.py").write_text(program("before", "ALWAYS_OFF"))
    done = launches.traced("python", "agent.py", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert (done.returncode, done.stdout.split()[0]) == (0, "200")
    assert launches.spans() == []
    assert "127.0.0.1:9" not in done.stderr


def test_a_provider_that_comes_after_the_first_span_is_refused_by_opentelemetry_and_ours_goes_on(
    launches: Launches, tmp_path: Path
):
    (tmp_path / "agent.py").write_text(f"import otel_gym\nwith otel_gym.rollout(7, 0):\n    pass\n{program('before')}")
    done = launches.traced("python", "agent.py")
    assert done.returncode == 0 and "Overriding of current TracerProvider is not allowed" in done.stderr
    assert [span.name for span in launches.spans()].count("chat m") == 1
