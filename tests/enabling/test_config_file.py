"""``OTEL_CONFIG_FILE``: our exporter, and our processor, in OpenTelemetry's configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.views.model_calls import model_call_records

from .conftest import PROGRAMS, Launches

pytest.importorskip("opentelemetry.configuration", reason="opentelemetry-configuration is not installed")

EXPORTER = """
file_format: "1.0"
tracer_provider:
  processors:
    - batch:
        exporter:
          otel_gym:
            directory: {store}
"""
INSTRUMENTOR = """
file_format: "1.0"
propagator:
  composite: [{{tracecontext: }}, {{baggage: }}]
instrumentation/development:
  python:
    otel_gym:
      directory: {store}
      run_id: step-9
"""
OTHER_PROVIDER = """
tracer_provider:
  processors: [{{simple: {{exporter: {{console: }}}}}}]
"""
BOTH_NAMES = [
    {"OTEL_PYTHON_DISTRO": "otel_gym", "OTEL_PYTHON_CONFIGURATOR": "otel_gym"},
    {"OTEL_PYTHON_DISTRO": "distro", "OTEL_PYTHON_CONFIGURATOR": "configurator"},
]


@pytest.fixture
def config_file(tmp_path: Path, launches: Launches):
    def write(text: str) -> str:
        path = tmp_path / "otel.yaml"
        path.write_text(text.format(store=launches.directory))
        return str(path)

    return write


@pytest.mark.parametrize("names", BOTH_NAMES, ids=["ours", "theirs"])
def test_the_exporter_stores_spans_where_the_file_says(launches: Launches, config_file, names: dict[str, str]):
    done = launches.instrumented("genai_spans.py", **names, OTEL_GYM="", OTEL_CONFIG_FILE=config_file(EXPORTER))
    assert done.returncode == 0, done.stderr
    assert ([span.name for span in launches.spans()], launches.lines()) == (["chat m"], 1)


@pytest.mark.parametrize("provider", ["", OTHER_PROVIDER], ids=["no provider", "a provider"])
@pytest.mark.parametrize("names", BOTH_NAMES, ids=["ours", "theirs"])
def test_the_instrumentor_in_the_file_turns_the_store_on(
    launches: Launches, config_file, names: dict[str, str], provider: str
):
    text = INSTRUMENTOR + provider
    done = launches.instrumented("served_call.py", **names, OTEL_GYM="", OTEL_CONFIG_FILE=config_file(text))
    assert done.returncode == 0 and "200 m" in done.stdout, done.stderr
    assert ('"name": "chat m"' in done.stdout) == bool(provider)
    (rollout,) = launches.rollouts()
    assert (rollout.run_id, len(list(model_call_records(rollout)))) == ("step-9", 1)


@pytest.mark.parametrize("names", BOTH_NAMES, ids=["ours", "theirs"])
def test_the_exporter_beside_otel_gym_1_stores_once(launches: Launches, config_file, names: dict[str, str]):
    done = launches.instrumented("served_call.py", **names, OTEL_CONFIG_FILE=config_file(EXPORTER))
    assert done.returncode == 0, done.stderr
    spans = launches.spans()
    assert sorted(span.name for span in spans) == ["POST /v1/chat/completions", "chat m"]
    ended = sum(path.read_text().count('"endTimeUnixNano"') for path in (launches.directory / "spans").rglob("*.jsonl"))
    assert ended == 2


def test_a_file_is_read_at_first_use_too(launches: Launches, config_file, tmp_path: Path):
    (tmp_path / "agent.py").write_text(
        "import otel_gym\nfrom opentelemetry import trace\n"
        "with otel_gym.rollout(7, 0):\n    print(type(trace.get_tracer_provider().id_generator).__name__)\n"
    )
    settings = {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(launches.directory), "OTEL_CONFIG_FILE": config_file(EXPORTER)}
    done = launches.run("python", "agent.py", **settings)
    assert (done.stdout, done.stderr) == ("RandomIdGenerator\n", "")
    assert [span.name for span in launches.spans()] == ["rollout"]


@pytest.mark.parametrize(
    ("text", "said", "spans"),
    [("file_format: [", "cannot be used: ", 1), ("file_format: '1.0'\ndisabled: true\n", "disabled: true in", 0)],
)
def test_a_file_that_is_wrong_or_off_is_said_once(launches: Launches, config_file, text: str, said: str, spans: int):
    path = config_file(text)
    done = launches.instrumented("genai_spans.py", **BOTH_NAMES[0], OTEL_CONFIG_FILE=path)
    assert done.returncode == 0
    assert done.stderr.count(f"{path} {said}" if "used" in said else f"{said} OTEL_CONFIG_FILE={path}") == 1
    assert len(launches.spans()) == spans


def test_a_missing_package_is_said(launches: Launches, bare_python: Path, config_file):
    done = launches.traced(bare_python, PROGRAMS / "served_call.py", OTEL_CONFIG_FILE=config_file(EXPORTER))
    assert done.stdout.startswith("200")
    assert done.stderr.count("OTEL_CONFIG_FILE is not read: pip install opentelemetry-configuration") == 1
    assert [rollout.rollout_id for rollout in launches.rollouts()] == ["7-0"]
