"""What is cut of a span for OTLP, and that a message never holds more than is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_gym.content import KeptBody
from otel_gym.content_policy import ContentPolicy
from otel_gym.tracing.otlp.cutting import cut_json, cut_text
from otel_gym.tracing.otlp.slim import SlimForm, group_size, slim_span, span_size
from otel_gym.tracing.payloads import Payload

CONTEXT = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
WITH_CONTENT = ContentPolicy(messages=True)


def span(attributes: dict[str, Any] | None = None, **more: Any) -> ReadableSpan:
    known = {"resource": Resource({"service.name": "s"}), "start_time": 10, "end_time": 20, "kind": SpanKind.INTERNAL}
    return ReadableSpan("chat m", CONTEXT, attributes=attributes or {}, **{**known, **more})


def slim(made: ReadableSpan, limit: int = 2000, largest: int = 4_000_000, **more: Any) -> Any:
    form = SlimForm(more.pop("content", WITH_CONTENT), limit, largest)
    return slim_span(made, more.pop("payload", None), None, form)


texts = st.text(max_size=300) | st.text(alphabet="a世😀\ud800", max_size=3000)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=3000) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
attribute_sets = st.dictionaries(texts.filter(bool), values, max_size=6)


@settings(max_examples=60, deadline=None)
@given(attribute_sets, attribute_sets, texts, st.sampled_from([0, 1, 100, 2000]))
def test_no_span_takes_more_bytes_than_is_said(attributes, inner, name, limit):
    made = ReadableSpan(
        name,
        CONTEXT,
        CONTEXT,
        attributes=attributes,
        resource=Resource({"service.name": "s", "text": "世" * 5000}),
        events=[Event(name, inner, -1), Event("e", {}, 2**70)],
        links=[Link(CONTEXT, inner)],
        status=Status(StatusCode.ERROR, name),
        start_time=-5,
        end_time=2**80,
        instrumentation_scope=InstrumentationScope(name, "1", None, {"a": "b"}),
    )
    found = slim(made, limit)
    encoded = encode_spans([found])
    assert encoded.ByteSize() <= span_size(found) + group_size(found)
    sent = encoded.resource_spans[0].scope_spans[0].spans[0]
    if not limit:
        assert len(sent.attributes) == len(found.attributes)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(alphabet="abc", min_size=1, max_size=9), values, max_size=6), st.sampled_from([64, 500]))
def test_no_attribute_is_longer_than_the_limit_and_what_is_cut_is_named(attributes, limit):
    found = dict(slim(span(attributes), limit).attributes)
    named = [each.rpartition("=")[0] for each in found.pop("gym.otlp.cut", [])]
    found.pop("gym.content.replaced", None)
    for value in found.values():
        if isinstance(value, str):
            assert len(value.encode()) <= limit
    assert attributes.keys() - found.keys() <= set(named)


@given(texts, st.integers(64, 3000))
def test_a_cut_text_keeps_whole_characters_and_says_its_length(text, limit):
    text = text.encode("utf-8", "replace").decode()
    cut = cut_text(text, limit)
    head, mark, length = cut.rpartition("…[cut, ")
    assert len(cut.encode()) <= limit and mark
    assert text.startswith(head) and length == f"{len(text.encode())} bytes]"


MESSAGES = [
    {"role": "system", "parts": [{"type": "text", "content": "rules " * 100}]},
    *({"role": "user", "parts": [{"type": "text", "content": f"question {n} " * 50}]} for n in range(40)),
]


@pytest.mark.parametrize("limit", [300, 2000, 10_000])
def test_messages_stay_json_and_the_last_ones_are_kept(limit):
    cut = cut_json(json.dumps(MESSAGES), limit)
    assert cut is not None and len(cut.encode()) <= limit
    kept = json.loads(cut)
    assert kept and kept[-1]["parts"][0]["content"].startswith("question 39")


def test_messages_that_cannot_be_cut_are_left_out_and_named():
    tools = json.dumps([{"type": "function", "name": "f", "parameters": {f"p{n}": n for n in range(900)}}])
    found = slim(span({"gen_ai.tool.definitions": tools, "gen_ai.request.model": "m"})).attributes
    assert found == {"gen_ai.request.model": "m", "gym.otlp.cut": [f"gen_ai.tool.definitions={len(tools)}"]}


def test_content_is_left_out_unless_it_is_asked_for():
    made = span(
        {"gen_ai.input.messages": "[]", "gym.item": "{}", "a": 1},
        events=[Event("gym.user_message", {"gym.item": "{}"}, 1)],
    )
    payload = Payload(KeptBody(b"{}"), KeptBody(b"{}"), {"gym.model_call.id": "1"})
    found = slim(made, content=ContentPolicy(), payload=payload)
    assert found.attributes == {"a": 1, "gym.model_call.id": "1"}
    assert [(event.name, event.attributes) for event in found.events] == [("gym.user_message", {})]
    whole = slim(made, 0, payload=payload)
    assert whole.attributes["gym.request.body"] == "{}" and whole.events[0].attributes == {"gym.item": "{}"}


def test_bodies_are_cut_as_the_store_cuts_them():
    body = json.dumps({"model": "m", "text": "世" * 5000}, ensure_ascii=False).encode()
    found = slim(span(), payload=Payload(KeptBody(body), KeptBody(b"\xff" * 9000))).attributes
    assert body.startswith(found["gym.request.body"].encode()) and len(found["gym.request.body"].encode()) in range(
        1990, 2001
    )
    assert found["gym.request.body.bytes"] == len(body) and len(found["gym.request.body.sha256"]) == 64
    assert len(found["gym.response.body"]) == 2000 and found["gym.response.body.bytes"] == 9000


def test_secrets_are_redacted_as_in_the_store():
    found = slim(span({"note": "key sk-proj-" + "a1B2" * 12, "url.full": "http://h/x?key=1"}))
    assert "a1B2" not in found.attributes["note"] and found.attributes["url.full"] == "http://h/x"


@pytest.mark.parametrize("limit", [0, 2000])
def test_a_span_beyond_a_message_is_sent_with_its_largest_attributes_cut_and_hashed(limit):
    largest = 4_000_000
    made = span({"small": "x", "prompt": "a" * 6_000_000, "list": ["b" * 100] * 60_000, "gym.rollout.id": "1-0"})
    found = slim(made, limit, largest)
    assert span_size(found) <= largest
    assert found.attributes["small"] == "x" and found.attributes["gym.rollout.id"] == "1-0"
    assert any(each == "prompt=6000000" for each in found.attributes["gym.otlp.cut"])
    if not limit:
        head, _, mark = found.attributes["prompt"].partition("…[cut, 6000000 bytes, sha256 ")
        assert head.startswith("aaa") and len(mark) == 65
        assert span_size(found) > largest * 0.9


def test_a_span_of_very_many_parts_is_sent_with_what_is_left_out_counted():
    names = {f"attribute {n}": "v" * 90 for n in range(3000)}
    made = span(names, events=[Event("e" * 500, {"a": "b"}, 1)] * 400, links=[Link(CONTEXT, {"a": "b"})] * 300)
    found = slim(made, 0, 128 * 1024)
    assert span_size(found) <= 128 * 1024
    assert found.dropped == (3000 - len(found.attributes), 350, 250)
    sent = encode_spans([found]).resource_spans[0].scope_spans[0].spans[0]
    assert sent.dropped_attributes_count == found.dropped[0] > 2000


def test_a_first_token_and_a_retry_are_events_for_viewers():
    told = {
        "gen_ai.request.stream": True,
        "gym.response.time_to_first_content_ns": 7,
        "gym.request.header.x-stainless-retry-count": ["2"],
    }
    events = [(event.name, event.timestamp, dict(event.attributes)) for event in slim(span(told)).events]
    assert events == [("gym.retry", 10, {"gym.retry.count": 2}), ("gym.first_token", 17, {})]
    assert slim(span({"gym.request.header.x-stainless-retry-count": ["0"]})).events == ()


def test_an_error_is_flagged_and_its_message_cut():
    status = slim(span(status=Status(StatusCode.ERROR, "no " * 4000))).status
    assert status.status_code is StatusCode.ERROR and len(status.description) <= 2000
