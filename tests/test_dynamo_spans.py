"""Dynamo's ``http-request`` beside what else tells of the same call: it is that call, and no second one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_gym.store.foreign import as_gym_spans
from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.store.span import StoredSpan
from otel_gym.views.layers import doubtful_calls, is_model_call, without_client_layer

SAMPLE = Path(__file__).parent / "fixtures" / "foreign" / "dynamo.jsonl.gz"
[ROLLOUT] = list(open_store(SAMPLE).rollouts())
SERVED = next(span for span in ROLLOUT.spans if span.name == "http-request")
REQUEST_ID = SERVED.attributes["request_id"]


def beside(**attributes: Any) -> StoredSpan:
    """A span of ours of the same call, and time."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "qwen", "gen_ai.usage.output_tokens": 12}
    return replace(SERVED, span_id="f" * 16, name="chat qwen", scope_name="otel_gym", attributes=said | named)


def calls_of(*more: StoredSpan) -> list[StoredSpan]:
    rollout = RolloutSpans(None, "0-0", as_gym_spans([*ROLLOUT.spans, *more]))
    assert doubtful_calls(rollout) == []
    return [span for span in without_client_layer(rollout).spans if is_model_call(span)]


def test_alone_it_is_a_call_with_what_it_tells() -> None:
    [call] = calls_of()
    assert call.attributes["gen_ai.request.model"] == "qwen"
    assert (call.attributes["gen_ai.usage.input_tokens"], call.attributes["gen_ai.usage.output_tokens"]) == (30, 12)
    assert call.attributes["gym.dynamo.ttft_ms"] == 22.75
    assert call.attributes["gym.dynamo.decode_worker_id"] == "7587894923333011487"


def test_beside_the_record_of_the_trace_the_record_counts() -> None:
    record = beside(gym__source="dynamo", gym__dynamo__request_id=REQUEST_ID, gym__dynamo__ttft_ms=22.7)
    [call] = calls_of(record)
    assert call.span_id == record.span_id and call.attributes["gym.dynamo.ttft_ms"] == 22.7
    assert [link.span_id for link in call.links] == [SERVED.span_id]


def test_beside_a_captured_call_that_counts_and_has_dynamos_times_and_workers() -> None:
    captured = beside(gym__model_call__id="m-1", gen_ai__response__id=f"chatcmpl-{REQUEST_ID}")
    [call] = calls_of(replace(captured, trace_id="a" * 32))
    assert call.span_id == captured.span_id
    assert call.attributes["gym.dynamo.ttft_ms"] == 22.75
    assert call.attributes["gym.dynamo.prefill_worker_id"] == "7587894923333011484"


def test_captured_recorded_and_served_is_one_call() -> None:
    captured = beside(gym__model_call__id="m-1", gen_ai__response__id=f"chatcmpl-{REQUEST_ID}")
    record = replace(beside(gym__source="dynamo", gym__dynamo__request_id=REQUEST_ID), span_id="e" * 16)
    [call] = calls_of(captured, record)
    assert call.span_id == captured.span_id


def test_another_clients_span_of_the_same_answer_has_what_it_lacks_from_dynamo() -> None:
    client = replace(beside(gen_ai__response__id=f"chatcmpl-{REQUEST_ID}"), scope_name="opentelemetry.some.client")
    [call] = calls_of(client)
    assert call.attributes["gym.dynamo.ttft_ms"] == 22.75


def test_another_request_is_another_call() -> None:
    assert len(calls_of(beside(gym__source="dynamo", gym__dynamo__request_id="another"))) == 2
