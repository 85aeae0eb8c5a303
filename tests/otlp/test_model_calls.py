"""Captured model calls over OTLP: what a viewer sees, what a Collector's file would give back, and the metrics."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import open_store
from otel_gym.tracing.pipeline import active_pipeline, add_otlp_leg
from otel_gym.views.model_calls import model_call_records

from ..capture.asgi import ANSWER, CHAT_PATH, EVENT_STREAM, REQUEST, body_app, json_app, send_request, sse
from ..conftest import LiveStore
from .receivers import Received, attributes, grpc_receiver, http_receiver, value_of
from .test_leg import Program, to

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "toy-served"}
STREAM = sse(
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "4 世"}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**CHUNK, "choices": [], "usage": ANSWER["usage"]},
    "[DONE]",
)
PROMPT = "What is 2+2? 世 " * 60_000


@pytest.fixture
def received(
    live_store: LiveStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Received]:
    """What a receiver gets of this test's spans."""
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)
    with grpc_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        pipeline = otel_gym.configure(directory=live_store.directory, run_id="run-1")
        assert add_otlp_leg(pipeline)
        yield received
        leg = pipeline.processor.leg
        assert leg is not None
        leg.shutdown()
        pipeline.processor.leg = None


SLIM: dict[str, str] = {}
WHOLE = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY", "OTEL_GYM_OTLP_ATTRIBUTE_BYTES": "0"}
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT"}


def call(app: Any, request: dict[str, Any] | bytes = REQUEST, **headers: str) -> None:
    asyncio.run(send_request(ModelCallCapture(app), f"/ng-rollout/1-0{CHAT_PATH}", request, headers))


def make_calls() -> None:
    with otel_gym.rollout(1, 0) as rollout:
        call(json_app(ANSWER), {**REQUEST, "messages": [{"role": "user", "content": PROMPT}]})
        call(body_app(STREAM, 200, EVENT_STREAM), {**REQUEST, "stream": True}, **{"x-stainless-retry-count": "1"})
        call(json_app({"error": {"message": "slow down", "type": "rate_limit"}}, 429))
        call(json_app(ANSWER), b"\xff\xfe")
        rollout.record_reward(1.0)
    pipeline = active_pipeline()
    assert pipeline is not None and otel_gym.flush(10) and pipeline.processor.leg is not None
    assert pipeline.processor.leg.flush(20)


@pytest.mark.parametrize("received", [SLIM], indirect=True)
def test_viewers_get_slim_calls_with_events_and_errors(live_store: LiveStore, received: Received):
    make_calls()
    assert received.names() == [*[f"POST {CHAT_PATH}"] * 4, "chat", "chat toy", "chat toy", "chat toy", "rollout"]
    calls = [span for span in received.spans() if span.name.startswith("chat")]
    streamed = next(span for span in calls if attributes(span).get("gen_ai.request.stream"))
    assert [event.name for event in streamed.events] == ["gym.retry", "gym.first_token"]
    assert streamed.start_time_unix_nano < streamed.events[1].time_unix_nano <= streamed.end_time_unix_nano
    (failed,) = (span for span in calls if span.status.code == 2)
    assert attributes(failed)["error.type"] == "rate_limit"
    assert all(attributes(span)["gym.rollout.id"] == "1-0" for span in calls)
    assert not any("body" in name or "messages" in name for span in calls for name in attributes(span))
    assert max(received.sizes) < 20_000


@pytest.mark.parametrize("received", [WHOLE], indirect=True)
def test_a_file_of_what_was_sent_whole_gives_the_same_records(
    live_store: LiveStore, received: Received, tmp_path: Path
):
    make_calls()
    sent = tmp_path / "collector.jsonl"
    sent.write_text(received.otlp_json())
    records = [record for rollout in open_store(sent).rollouts("1-0") for record in model_call_records(rollout)]
    assert len(records) == 4 and records == live_store.records("1-0")
    assert records[0].request["messages"][0]["content"] == PROMPT


@pytest.mark.parametrize("received", [CONTENT], indirect=True)
def test_content_that_is_cut_stays_json_and_says_so(live_store: LiveStore, received: Received):
    make_calls()
    first = next(attributes(span) for span in received.spans() if "gym.request.body.bytes" in attributes(span))
    (message,) = json.loads(first["gen_ai.input.messages"])
    assert message["role"] == "user" and "…[cut, " in message["parts"][0]["content"]
    named = {each.partition("=")[0] for each in first["gym.otlp.cut"]}
    assert named == {"gen_ai.input.messages", "gym.request.body"}


@pytest.mark.parametrize("received", [{**WHOLE, "OTEL_GYM_CONTENT": "none"}], indirect=True)
def test_what_the_store_may_not_keep_is_not_sent_either(live_store: LiveStore, received: Received):
    make_calls()
    assert not any(name.endswith(".body") for span in received.spans() for name in attributes(span))
    assert not any(span.status.message for span in received.spans())


METERED = """
import asyncio
import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from tests.capture.asgi import ANSWER, CHAT_PATH, EVENT_STREAM, REQUEST, body_app, json_app, send_request
from tests.otlp.test_model_calls import STREAM
for app in (json_app(ANSWER), body_app(STREAM, 200, EVENT_STREAM), json_app({"error": {"type": "overloaded"}}, 503)):
    asyncio.run(send_request(ModelCallCapture(app), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
"""
PREFIX = "gen_ai.client.inference."


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def points(received: Received, name: str) -> list[Any]:
    found = [
        metric
        for message in received.metrics
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == PREFIX + name
    ]
    return [point for metric in found for point in (metric.histogram.data_points or metric.sum.data_points)]


def labels(point: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in point.attributes}


def test_metrics_of_model_calls_are_those_of_the_conventions(program: Program):
    with http_receiver() as received:
        program.run(METERED, **to(received, "http/protobuf", OTEL_METRICS_EXPORTER="otlp", OTEL_SERVICE_NAME="m"))
    durations = points(received, "duration")
    assert sum(point.count for point in durations) == 3
    assert [labels(point)["error.type"] for point in durations if "error.type" in labels(point)] == ["overloaded"]
    assert list(durations[0].explicit_bounds) == pytest.approx([0.01 * 2**n for n in range(14)])
    (first_chunk,) = points(received, "time_to_first_chunk")
    assert first_chunk.count == 1 and first_chunk.sum > 0
    which = labels(first_chunk)
    assert which.pop("server.address", None) is None or which.pop("server.port") == 8000
    assert which == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "toy",
        "gen_ai.response.model": "toy-served",
    }
    (tokens_in,) = points(received, "usage.input_tokens")
    assert (tokens_in.as_int, labels(tokens_in)["gen_ai.token.modality"]) == (22, "unknown")
    (per_call,) = points(received, "operation.output_tokens")
    assert (per_call.count, per_call.sum) == (2, 6)


@pytest.mark.parametrize("exporter", ["", "none"])
def test_no_metrics_are_sent_unless_they_are_asked_for(program: Program, exporter: str):
    with http_receiver() as received:
        program.run(METERED, **to(received, "http/protobuf", OTEL_METRICS_EXPORTER=exporter))
    assert received.metrics == [] and received.spans()


def test_a_meter_provider_that_is_set_is_used(program: Program):
    code = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
"""
    code += METERED + "otel_gym.flush()\nfound = reader.get_metrics_data()\n"
    code += "assert 'gen_ai.client.inference.duration' in found.to_json()\n"
    with http_receiver() as received:
        program.run(code, **to(received, "http/protobuf", OTEL_METRICS_EXPORTER="otlp"))
    assert received.metrics == []


def test_metrics_for_the_console_need_no_endpoint(program: Program):
    environ = program.environ(OTEL_METRICS_EXPORTER="console")
    done = subprocess.run([sys.executable, "-c", METERED], env=environ, capture_output=True, text=True, timeout=60)
    assert "gen_ai.client.inference.duration" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_metrics_that_nobody_takes_delay_no_exit(program: Program, protocol: str):
    asked = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_GYM_EXIT_TIMEOUT": "1"}
    _, took_s = program.run(METERED, **to("http://127.0.0.1:1", protocol, **asked))
    assert took_s < 6


def test_an_unknown_exporter_of_metrics_is_said(program: Program):
    said, _ = program.run(METERED, OTEL_METRICS_EXPORTER="graphite")
    assert "graphite" in said and len(program.stored()) >= 3
