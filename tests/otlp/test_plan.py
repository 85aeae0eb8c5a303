"""Which endpoint and which protocol the standard variables ask for, and that doctor says so."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.tracing.otlp.plan import NoOtlp, OtlpPlan, plan_of

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


@pytest.mark.parametrize(
    ("environ", "endpoint", "protocol"),
    [
        ({ENDPOINT: "http://h:4317"}, "http://h:4317", "grpc"),
        ({ENDPOINT: "http://h:4318"}, "http://h:4318", "http/protobuf"),
        ({ENDPOINT: "h:4318"}, "h:4318", "http/protobuf"),
        ({ENDPOINT: "http://h:4318", PROTOCOL: "grpc"}, "http://h:4318", "grpc"),
        (
            {ENDPOINT: "http://h:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            "http://h:4317",
            "http/protobuf",
        ),
        ({ENDPOINT: "http://h:1", PROTOCOL: "http/json"}, "http://h:1", "http/protobuf"),
        ({ENDPOINT: "http://h:1", TRACES: "https://t:4318/v1/traces"}, "https://t:4318/v1/traces", "http/protobuf"),
        ({ENDPOINT: "http://me:pw@h:4318/x?key=1#y"}, "http://h:4318/x", "http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4317", "grpc"),
        ({"OTEL_TRACES_EXPORTER": "console, OTLP", ENDPOINT: "http://h"}, "http://h", "grpc"),
        ({"OTEL_TRACES_EXPORTER": "otlp_proto_http"}, "http://localhost:4318", "http/protobuf"),
        ({ENDPOINT: "http://h:port"}, "http://h:port", "grpc"),
    ],
)
def test_where_spans_go_and_how(environ, endpoint, protocol):
    plan = plan_of(environ)
    assert isinstance(plan, OtlpPlan) and (plan.endpoint, plan.protocol) == (endpoint, protocol)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {ENDPOINT: " "},
        {ENDPOINT: "http://h", "OTEL_TRACES_EXPORTER": "none"},
        {ENDPOINT: "http://h", "OTEL_TRACES_EXPORTER": "console,otel_gym"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h"},
    ],
)
def test_where_no_spans_go(environ):
    assert isinstance(plan_of(environ), NoOtlp)


@pytest.mark.parametrize(
    ("environ", "is_asked_for"),
    [
        ({ENDPOINT: "http://h"}, False),
        ({ENDPOINT: "http://h", "OTEL_METRICS_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:4318/v1/metrics"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h", "OTEL_METRICS_EXPORTER": "none"}, False),
    ],
)
def test_metrics_are_sent_where_they_are_asked_for(environ, is_asked_for):
    assert isinstance(plan_of(environ, "metrics"), OtlpPlan) is is_asked_for


def doctor(tmp_path, *arguments: str) -> str:
    (tmp_path / "spans").mkdir()
    return CliRunner().invoke(app, ["doctor", "--dir", str(tmp_path), *arguments]).stdout


def test_doctor_says_what_is_sent_where_and_why(tmp_path, monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://me:hunter2@h:4318?key=hunter3")
    monkeypatch.setenv("OTEL_GYM_OTLP_ATTRIBUTE_BYTES", "0")
    said = doctor(tmp_path)
    assert "traces: to http://h:4318 by http/protobuf (no protocol is set, and the port is 4318)" in said
    assert "attributes not cut, without content, messages of 3,932,160 bytes at most" in said
    assert "metrics: not sent" in said and "hunter" not in said


def test_doctor_says_why_nothing_is_sent(tmp_path, monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://h:4318")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    rows = [json.loads(line) for line in doctor(tmp_path, "--json").splitlines()]
    (traces,) = (row for row in rows if row["kind"] == "otlp" and row["signal"] == "traces")
    assert (traces["endpoint"], traces["why"]) == (None, "OTEL_TRACES_EXPORTER=none")
