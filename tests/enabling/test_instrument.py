"""``opentelemetry-instrument`` and the standard variables: unmodified programs, by the package's entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gym.views.model_calls import model_call_records

from .conftest import Launches

OURS = {"OTEL_PYTHON_DISTRO": "otel_gym", "OTEL_PYTHON_CONFIGURATOR": "otel_gym"}
THEIRS = {
    "OTEL_PYTHON_DISTRO": "distro",
    "OTEL_PYTHON_CONFIGURATOR": "configurator",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}


def test_a_model_server_is_captured(launches: Launches):
    done = launches.instrumented("served_call.py", **OURS)
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["200"]), done.stderr
    (rollout,) = launches.rollouts()
    (record,) = model_call_records(rollout)
    assert (rollout.rollout_id, record.model, record.tokens_in) == ("7-0", "m", 3)


def test_spans_of_others_are_stored_under_our_provider(launches: Launches):
    done = launches.instrumented("genai_spans.py", **OURS)
    assert done.stdout == "GymIdGenerator\n", done.stderr
    assert [span.name for span in launches.spans()] == ["chat m"]


def test_other_exporters_work_beside_the_store_and_otel_gym_among_them_stores_once(launches: Launches):
    done = launches.instrumented("genai_spans.py", **OURS, OTEL_TRACES_EXPORTER="console,otel_gym")
    assert '"gen_ai.operation.name": "chat"' in done.stdout
    assert launches.lines() == 1


def test_none_leaves_the_store_alone(launches: Launches):
    done = launches.instrumented("genai_spans.py", **OURS, OTEL_TRACES_EXPORTER="none")
    assert (done.returncode, launches.lines()) == (0, 1)


def test_a_wrong_exporter_name_was_a_program_without_any_tracing_in_silence(launches: Launches):
    done = launches.instrumented("genai_spans.py", **OURS, OTEL_TRACES_EXPORTER="consol,console")
    assert done.stderr.count("OTEL_TRACES_EXPORTER names 'consol', which is not installed; those there are: ") == 1
    assert '"gen_ai.operation.name": "chat"' in done.stdout
    assert launches.lines() == 1


def test_another_distro_sets_up_the_provider_and_ours_joins_it_and_says_what_that_means(launches: Launches):
    done = launches.instrumented("genai_spans.py", **THEIRS, OTEL_TRACES_EXPORTER="otel_gym")
    assert done.stdout == "RandomIdGenerator\n"
    assert launches.lines() == 1
    assert done.stderr.count("another package has set up the TracerProvider") == 1
    assert "with OTEL_PYTHON_DISTRO=otel_gym OTEL_PYTHON_CONFIGURATOR=otel_gym it is ours" in done.stderr


@pytest.mark.parametrize("variable", ["OTEL_PYTHON_DISTRO", "OTEL_PYTHON_CONFIGURATOR"])
def test_a_wrong_distro_or_configurator_is_said_once_and_traced_all_the_same(launches: Launches, variable: str):
    done = launches.instrumented("genai_spans.py", **{**OURS, variable: "otelgym"})
    assert done.stderr.count(f"{variable}=otelgym is not installed; those there are: ") == 1
    assert launches.lines() == 1


def test_with_otel_gym_off_everything_is_as_without_the_package(launches: Launches):
    for variables in (OURS, {}):
        settings = {**THEIRS, **variables, "OTEL_GYM": "0", "OTEL_TRACES_EXPORTER": "console"}
        done = launches.instrumented("genai_spans.py", **settings)
        assert '"gen_ai.operation.name": "chat"' in done.stdout and "RandomIdGenerator\n" in done.stdout
        assert launches.rollouts() == []


def test_the_sdk_switched_off_is_said_once(launches: Launches):
    done = launches.instrumented("genai_spans.py", **OURS, OTEL_SDK_DISABLED="true")
    assert done.returncode == 0 and launches.rollouts() == []
    assert done.stderr.count("OTEL_SDK_DISABLED=true: OTEL_GYM is off") == 1


def test_one_instrumentation_can_be_left_out(launches: Launches):
    done = launches.instrumented(
        "served_call.py", **OURS, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="otel_gym_starlette, requests"
    )
    assert done.returncode == 0 and launches.rollouts() == []


def test_without_propagators_every_request_to_a_captured_server_failed(launches: Launches):
    done = launches.instrumented("served_call.py", **OURS, OTEL_PROPAGATORS="none")
    assert done.stdout.split()[:1] == ["200"], done.stderr
    assert sorted(span.name for span in launches.spans()) == ["POST /v1/chat/completions", "chat m"]


def test_metrics_and_logs_are_set_up_as_the_sdk_does(launches: Launches, tmp_path: Path):
    (tmp_path / "metered.py").write_text(
        "from opentelemetry import metrics\nmetrics.get_meter('m').create_counter('rollouts').add(3)\n"
    )
    settings = {**OURS, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(launches.directory), "OTEL_METRICS_EXPORTER": "console"}
    done = launches.run("opentelemetry-instrument", "python", "metered.py", **settings)
    (metric,) = json.loads(done.stdout)["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    assert (metric["name"], metric["data"]["data_points"][0]["value"]) == ("rollouts", 3)


def test_a_sampler_of_others_decides_what_is_exported_and_not_what_is_stored(launches: Launches):
    done = launches.instrumented(
        "genai_spans.py", **OURS, OTEL_TRACES_SAMPLER="always_off", OTEL_TRACES_EXPORTER="console"
    )
    assert done.stdout == "GymIdGenerator\n"
    assert launches.lines() == 1


def test_logs_are_exported_where_the_environment_asks_for_them(launches: Launches, tmp_path: Path):
    (tmp_path / "logging_program.py").write_text("import logging\nlogging.warning('said by the program')\n")
    settings = {
        **OURS,
        "OTEL_GYM": "1",
        "OTEL_GYM_DIR": str(launches.directory),
        "OTEL_LOGS_EXPORTER": "console",
        "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED": "true",
    }
    done = launches.run("opentelemetry-instrument", "python", "logging_program.py", **settings)
    assert '"body": "said by the program"' in done.stdout
    wrong = launches.instrumented("genai_spans.py", **OURS, OTEL_LOGS_EXPORTER="consol")
    assert wrong.stderr.count("logs are not exported: RuntimeError: Requested component 'consol' not found") == 1
    assert launches.lines() == 1
