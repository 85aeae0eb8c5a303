"""``otel-gym doctor`` explains what the environment would turn on."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.bootstrap.explain import Explained, explained

from .conftest import Launches


def part(name: str, **environment: str) -> Explained:
    return next(each for each in explained(environment) if each.name == name)


def test_doctor_names_each_part_and_marks_what_is_wrong(launches: Launches):
    launches.instrumented("genai_spans.py", OTEL_PYTHON_CONFIGURATOR="otel_gym")
    wrong = {"OTEL_GYM": "1", "OTEL_TRACES_EXPORTER": "consol", "OTEL_PYTHON_DISTRO": "otelgym"}
    done = launches.run("otel-gym", "doctor", launches.directory, **wrong)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "tracing on" in lines
    assert "! exporters the store; OTEL_TRACES_EXPORTER=consol; not installed: consol" in lines
    assert any(line.startswith("! distro otelgym, by OTEL_PYTHON_DISTRO; not installed") for line in lines)
    assert any(line.startswith("otel_gym_httpx httpx ") for line in lines)


@pytest.mark.parametrize(
    ("environment", "value"),
    [
        ({}, "off: OTEL_GYM is not set; configure() turns it on"),
        ({"OTEL_GYM": "0"}, "off: OTEL_GYM is 0"),
        ({"OTEL_GYM": "1"}, "on"),
        ({"OTEL_GYM": "1", "OTEL_SDK_DISABLED": "true"}, "off: OTEL_SDK_DISABLED=true"),
    ],
)
def test_whether_tracing_is_on(environment: dict[str, str], value: str):
    assert part("tracing", **environment).value == value


def test_the_hook_of_otel_gym_run_is_seen_and_what_stands_before_it(launches: Launches, tmp_path: Path):
    done = launches.traced("python", "-c", "import os; print(os.environ['PYTHONPATH'])")
    hook = done.stdout.strip()
    assert part("otel-gym run", PYTHONPATH=hook).value.startswith("above this process")
    assert part("otel-gym run").value.startswith("not above this process")
    (tmp_path / "sitecustomize.py").write_text("")
    before = part("otel-gym run", PYTHONPATH=f"{tmp_path}:{hook}")
    assert before.problem == f"{tmp_path / 'sitecustomize.py'} stands before its hook on PYTHONPATH"


def test_a_configuration_file_a_sampler_and_an_instrumentation_left_out(tmp_path: Path):
    assert part("OTEL_CONFIG_FILE", OTEL_CONFIG_FILE=str(tmp_path / "none.yaml")).problem == "no such file"
    assert "every OTEL_* below is ignored" in part("TracerProvider", OTEL_CONFIG_FILE="x").value
    assert part("sampler", OTEL_TRACES_SAMPLER="allways_on").problem.startswith(
        "not known; those there are: always_off"
    )
    left_out = part("otel_gym_httpx", OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="otel_gym_httpx")
    assert left_out.value == "left out, by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
