from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from otel_gym.settings import read_settings, unknown_settings


def test_a_misspelt_setting_is_said_with_the_nearest_name():
    environ = {"OTEL_GYM_CONTNT": "full", "OTEL_GYM_DIR": "x", "OTHER_GYM": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "y"}
    assert unknown_settings(environ) == {"OTEL_GYM_CONTNT": "OTEL_GYM_CONTENT"}
    assert read_settings(environ).problems == ("OTEL_GYM_CONTNT is no setting; did you mean OTEL_GYM_CONTENT?",)


def test_a_wrong_value_is_said_and_the_default_used():
    settings = read_settings({"OTEL_GYM": "maybe", "OTEL_GYM_QUEUE_BYTES": "-1", "OTEL_GYM_RUN_ID": "../x"})
    assert (settings.enabled, settings.queue_bytes, settings.run_id) == (None, 64 * 1024 * 1024, None)
    assert len(settings.problems) == 3
    assert all("refused" in problem for problem in settings.problems)


def test_right_values_are_taken():
    settings = read_settings(
        {"OTEL_GYM": "1", "OTEL_GYM_DIR": "/data/x", "OTEL_GYM_RUN_ID": "step-3", "OTEL_GYM_CONTENT": "none"}
    )
    assert (settings.enabled, settings.directory, settings.run_id, settings.content) == (
        True,
        Path("/data/x"),
        "step-3",
        "none",
    )
    assert settings.problems == ()


def test_redaction_is_on_unless_it_is_switched_off_and_a_bad_expression_is_said():
    assert read_settings({}).redact.defaults
    settings = read_settings({"OTEL_GYM_REDACT": "off,patient_id", "OTEL_GYM_CONTENT": "no_media"})
    assert (settings.redact.defaults, settings.redact.names, settings.content) == (False, ("patient_id",), "no_media")
    settings = read_settings({"OTEL_GYM_REDACT": "/(/"})
    assert settings.redact.defaults and "OTEL_GYM_REDACT" in settings.problems[0]


def test_otel_sdk_disabled_means_off():
    settings = read_settings({"OTEL_GYM": "1", "OTEL_SDK_DISABLED": "true"})
    assert settings.enabled is False
    assert "OTEL_SDK_DISABLED" in settings.problems[0]


def test_a_program_is_told_once_on_stderr(tmp_path):
    program = "import otel_gym\nfor n in range(3):\n    with otel_gym.rollout(0, n): pass\n"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"OTEL_GYM": "1", "OTEL_GYM_DIRR": "x", "PATH": "/usr/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stderr.count("did you mean OTEL_GYM_DIR?") == 1
    assert result.stderr.count("spans go to") == 1
    assert len(list((tmp_path / "otel_gym_store" / "spans").iterdir())) == 3
