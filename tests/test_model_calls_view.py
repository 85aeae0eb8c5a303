"""Records from spans that are not ours, or not ours alone."""

from __future__ import annotations

import asyncio

from opentelemetry import trace

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.tracing.pipeline import active_pipeline
from tests.capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request


def test_a_call_that_client_and_server_both_traced_is_one_record(live_store):
    """The Anthropic client makes a GenAI span of its own around each call (R033)."""

    async def agent() -> None:
        async with otel_gym.rollout(1, 0):
            client_span = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 11}
            with trace.get_tracer("client").start_as_current_span("chat toy", attributes=client_span):
                await send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST)

    asyncio.run(agent())

    (record,) = live_store.records("1-0")
    assert (record.tokens_in, record.model_call_id is not None) == (11, True)


def test_a_third_partys_genai_span_gives_a_record_with_null_for_what_it_did_not_record(live_store):
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "asked",
        "gen_ai.response.model": "answered",
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.prompt_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 4,
    }
    with otel_gym.rollout(1, 0):
        active_pipeline().tracer.start_span("chat asked", attributes=attributes).end()

    (record,) = live_store.records("1-0")
    assert (record.model, record.response_id, record.finish_reason) == ("answered", "resp-1", "stop")
    assert (record.tokens_in, record.tokens_out, record.tokens_total, record.cache_creation_tokens) == (12, 3, 15, 4)
    assert (record.request, record.response, record.cached_tokens, record.status_code) == (None, None, None, None)
