from __future__ import annotations

import time
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.content import KeptBody
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.otlp_json import spans_of_line
from otel_gym.tracing import encode
from otel_gym.tracing.payloads import Payload
from tests.store.test_text_delta import noise


def test_a_line_that_cannot_be_made_is_not_built_on(tmp_path, monkeypatch):
    content = ContentOnce(BlobStore(tmp_path))
    span = TracerProvider().get_tracer("t").start_span("chat")
    span.end()
    payload = Payload(KeptBody(noise("a", 4000).encode()), None)
    with monkeypatch.context() as patched:
        patched.setattr(encode, "encode_strict_json", lambda _value: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode.encode_span(span, payload, rollout_id="1-0", once=content)
    assert b"body.base" not in encode.encode_span(span, payload, rollout_id="1-0", once=content)
    content.committed("1-0")
    assert b"body.base" in encode.encode_span(span, payload, rollout_id="1-0", once=content)


def test_a_line_that_is_made_safe_at_the_second_try_is_not_built_on_itself(tmp_path):
    content = ContentOnce(BlobStore(tmp_path))
    span = TracerProvider().get_tracer("t").start_span("half an emoji \ud83e")
    span.end()
    payload = Payload(KeptBody(noise("a", 4000).encode()), None)
    assert b"body.base" not in encode.encode_span(span, payload, rollout_id="1-0", once=content)


def test_a_span_named_by_a_number_stopped_the_start_records_of_all(live_store):
    tracer = trace.get_tracer("agent")
    tool = {"gen_ai.operation.name": "execute_tool"}
    with otel_gym.rollout(1, 0):
        numbered = tracer.start_span(123, attributes=tool)
        other = tracer.start_span("execute_tool", attributes=tool)
        assert names_of_start_records(live_store.directory, 3) == {"rollout", "123", "execute_tool"}
        other.end()
        numbered.end()
    assert {span.name for span in live_store.spans("1-0")} == {"rollout", "123", "execute_tool"}


def test_an_open_span_that_cannot_be_encoded_costs_only_its_own_start_record(live_store):
    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError

    tool = {"gen_ai.operation.name": "execute_tool"}
    with otel_gym.rollout(1, 0), trace.get_tracer("agent").start_as_current_span("tool", attributes=tool) as span:
        span._start_time = Unspeakable()
        assert names_of_start_records(live_store.directory, 1) == {"rollout"}
    assert [span.name for span in live_store.spans("1-0")] == ["rollout"]


def test_an_event_without_a_name_lost_its_span(live_store):
    with otel_gym.rollout(1, 0), trace.get_tracer("agent").start_as_current_span("s") as span:
        span.add_event(None)
        span.add_event(7, {"a": 1})
    (span,) = [span for span in live_store.spans("1-0") if span.name == "s"]
    assert [event.name for event in span.events] == ["None", "7"]


def names_of_start_records(directory: Path, count: int) -> set[str]:
    """Those that are there when ``count`` of them are."""
    deadline = time.monotonic() + 5
    names: set[str] = set()
    while len(names) < count and time.monotonic() < deadline:
        time.sleep(0.02)
        lines = [line for path in directory.glob("open/*.jsonl") for line in path.read_bytes().splitlines()]
        names = {span.name for line in lines for span in spans_of_line(line)}
    return names


@pytest.mark.parametrize(("end", "stored"), [(-5, 1), (0, 1), (2**70, 2**63 - 1), (10**18, 10**18)])
def test_an_end_that_is_no_time_or_before_the_start_breaks_no_reader(live_store, end, stored):
    rollout = otel_gym.rollout(1, 0).__enter__()
    operation = {"gen_ai.operation.name": "chat"}
    trace.get_tracer("agent").start_span("chat m", attributes=operation).end(end_time=end)
    rollout.span.end(end_time=end)
    rollout.__exit__(None, None, None)

    assert [span.end_ns for span in live_store.spans("1-0")] == [stored, stored]
    for command in (["ls", "--dir"], ["show", "1-0", "--dir"], ["stats", "--dir"], ["doctor"]):
        assert CliRunner().invoke(app, [*command, str(live_store.directory)]).exit_code == 0
