"""Under a TracerProvider that others made: what it takes from the store is said."""

from __future__ import annotations

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from typer.testing import CliRunner

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.cli.main import app
from otel_gym.store.reader import Store

from ..capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request


def call_model() -> None:
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    assert otel_gym.flush(10)


def test_calls_that_the_providers_sampler_drops_are_counted_and_doctor_says_so(tmp_path):
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(ALWAYS_OFF))
    call_model()
    call_model()
    assert Store(tmp_path).counts() == {"dropped_calls": 2}
    result = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert "dropped_calls: 2" in result.stdout and "sampler" in result.stdout
    assert result.exit_code == 1
