"""Records from spans that are not ours, or not ours alone."""

from __future__ import annotations

import asyncio

from opentelemetry import trace

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store
from otel_gym.views.model_calls import model_call_records
from otel_gym.views.summary import summarize_rollout
from tests.capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request
from tests.store.lines import encoded, live_file, write


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
        trace.get_tracer("client").start_span("chat asked", attributes=attributes).end()

    (record,) = live_store.records("1-0")
    assert (record.model, record.response_id, record.finish_reason) == ("answered", "resp-1", "stop")
    assert (record.tokens_in, record.tokens_out, record.tokens_total, record.cache_creation_tokens) == (12, 3, 15, 4)
    assert (record.request, record.response, record.cached_tokens, record.status_code) == (None, None, None, None)


def test_two_capture_points_in_one_chain_doubled_everything(live_store):
    """`proxy --propagate` before an instrumented server on one store: the one nearest to the model counts."""
    inner = ModelCallCapture(json_app(ANSWER), model_ref={"type": "responses_api_models", "name": "inner"})

    async def another_process(scope, receive, send):
        await inner({name: value for name, value in scope.items() if "." not in name}, receive, send)

    outer = ModelCallCapture(another_process)

    async def agent() -> None:
        async with otel_gym.rollout(1, 0):
            for _ in range(2):
                await send_request(outer, CHAT_PATH, REQUEST)

    asyncio.run(agent())

    records = live_store.records("1-0")
    assert [record.model_ref.name for record in records] == ["inner", "inner"]
    assert [record.call_index for record in records] == [0, 1]
    (rollout,) = live_store.rollouts()
    assert summarize_rollout(rollout).calls == 2
    assert sum("gym.model_call.id" in span.attributes for span in rollout.spans) == 4  # nothing is thrown away


def _client_span(**attributes: object) -> None:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    tracer = trace.get_tracer("client")
    tracer.start_span("chat toy", attributes={"gen_ai.operation.name": "chat", **named}).end()


def test_a_404_that_reached_no_captured_path_became_a_record(live_store):
    """A client's own span is a record if it tells of an answer: usage, or a response's id."""
    with otel_gym.rollout(1, 0):
        _client_span(error__type="NotFoundError")
        _client_span(gen_ai__response__id="resp-1")
        _client_span(gen_ai__usage__output_tokens=3)

    assert [(record.response_id, record.tokens_out) for record in live_store.records("1-0")] == [
        ("resp-1", None),
        (None, 3),
    ]


def test_a_clients_span_that_names_a_captured_answer_is_no_second_call(live_store):
    """A client whose instrumentation sends no trace context, given rollout.headers: the spans are siblings."""
    with otel_gym.rollout(1, 0):
        _client_span(gen_ai__response__id=ANSWER["id"], gen_ai__usage__output_tokens=3)
        asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, REQUEST))

    (record,) = live_store.records("1-0")
    assert record.model_call_id is not None


def test_streams_without_their_bodies_were_told_to_be_cut_off(tmp_path):
    """OTEL_GYM_CONTENT=none, and every slim copy: of a stream only its attributes are there."""
    said = {
        "gen_ai.operation.name": "chat",
        "gym.model_call.id": "m1",
        "gym.dialect": "chat",
        "http.response.status_code": 200,
        "gym.response.content_type": "text/event-stream",
    }
    path = live_file(tmp_path)
    write(path, encoded("1", **said), encoded("2", **said | {"gym.error_category": "cancelled"}))
    (rollout,) = Store(tmp_path).rollouts()
    assert [record.error_category for record in model_call_records(rollout)] == [None, "cancelled"]
