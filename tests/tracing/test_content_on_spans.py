"""Secrets, odd values and limits on their way from spans to the store."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.content_policy import ContentPolicy
from otel_gym.redaction import Redactor, read_rules
from otel_gym.store import otlp_json
from otel_gym.store.otlp_json import spans_of_line
from otel_gym.store.reader import Store
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing import encode
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.exporter import RolloutSpanExporter
from otel_gym.tracing.limits import own_span_limits
from otel_gym.tracing.open_spans import OpenSpans
from otel_gym.tracing.pipeline import active_pipeline

from ..capture.asgi import ANSWER, CHAT_PATH, EVENT_STREAM, REQUEST, body_app, json_app, send_request, sse
from ..conftest import LiveStore

KEY = "sk-" + "test-0000000000000000"


def test_spans_with_thousands_of_names_leave_nothing_in_memory(live_store):
    tracer = active_pipeline().tracer
    remembered = (otlp_json._templates, encode._with_queries, active_pipeline().content.redactor._clean_names)
    for span in range(3):
        names = {f"llm.{span}.{number}": "x" for number in range(2000)}
        tracer.start_span("numbered", attributes={"gym.rollout.id": "1-0", **names}).end()
    assert not any(len(names) > 1000 for table in remembered for names in _names_in(table))


def _names_in(table):
    return [key[0] if key and isinstance(key[0], tuple) else key for key in table]


def strict(line: bytes) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def start_records(directory: Path) -> list[bytes]:
    """Of the spans that are open now; the recorder writes them when it comes by."""
    deadline = time.monotonic() + 10
    while not (lines := _lines_below(directory / "open")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return lines


def _lines_below(folder: Path) -> list[bytes]:
    return [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines(keepends=True)]


@pytest.fixture
def foreign(tmp_path):
    """A provider that others made, with their limits, and what its other exporter sees."""
    seen = InMemorySpanExporter()
    provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=16, max_events=2, max_links=1))
    provider.add_span_processor(SimpleSpanProcessor(seen))
    otel_gym.configure(directory=tmp_path / "store", run_id="run-1", tracer_provider=provider)
    yield LiveStore(tmp_path / "store"), provider, seen
    otel_gym.flush(10)


def test_a_secret_is_nowhere_in_the_store(live_store):
    tracer = trace.get_tracer("agent")
    with otel_gym.rollout(1, 0):
        attributes = {"tool.output": f"OPENAI_API_KEY={KEY}", "db.password": "swordfish", "n": 1}
        with tracer.start_as_current_span(f"tool {KEY}", attributes=attributes) as span:
            span.add_event("env", {"dump": [f"K={KEY}"], "headers": {"cookie": "swordfish"}})
            span.record_exception(RuntimeError(f"401 for {KEY}"))
            span.set_status(trace.StatusCode.ERROR, f"refused {KEY}")
            span.set_attribute("http.url", f"https://u:swordfish@h/p?api_key={KEY}")
            span.set_attribute("url.query", f"api_key={KEY}")
        request = {"messages": [{"role": "tool", "content": f"OPENAI_API_KEY={KEY}"}], "password": "swordfish"}
        answer = {"error": {"message": f"no such key: {KEY}", "type": "auth"}}
        path = f"/ng-rollout/1-0{CHAT_PATH}"
        headers = {"authorization": f"Bearer {KEY}", "x-codex-note": f"Bearer {KEY}", "cookie": "swordfish"}
        asyncio.run(send_request(ModelCallCapture(json_app(answer, status=401)), path, request, headers))

    text = live_store.text()
    assert KEY not in text and "swordfish" not in text
    assert "https://u:[redacted]@h/p" in text


def test_other_exporters_of_the_provider_see_no_secret_of_a_captured_call(foreign):
    _, _, seen = foreign
    answer = {"error": {"message": f"no such key: {KEY}", "type": "auth"}}
    asyncio.run(send_request(ModelCallCapture(json_app(answer, status=401)), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    assert otel_gym.flush(10)
    spans = [span for span in seen.get_finished_spans() if "gen_ai.operation.name" in (span.attributes or {})]
    assert spans == [] or all(KEY not in span.to_json() for span in spans)
    assert all(KEY not in span.to_json() for span in seen.get_finished_spans())


def test_a_secret_that_a_stream_cuts_in_two_is_not_in_what_is_put_together_for_other_exporters(live_store):
    pipeline = active_pipeline()
    pipeline.content = pipeline.processor.content = ContentPolicy(messages=True)
    deltas = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in ("K=" + KEY[:9], KEY[9:], " ok")]
    app = body_app(sse(*deltas, "[DONE]"), headers=EVENT_STREAM)
    asyncio.run(send_request(ModelCallCapture(app), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    (span,) = [span for span in live_store.spans("1-0") if "gen_ai.output.messages" in span.attributes]
    assert "K=[redacted] ok" in span.attributes["gen_ai.output.messages"]


def test_a_redacted_body_is_the_body_but_for_the_secret(live_store):
    body = '{ "model":"toy" ,"messages" : [{"content":"K=%s \\u00fc"}],"n":1.50}'
    app = ModelCallCapture(json_app(ANSWER))
    asyncio.run(send_request(app, f"/ng-rollout/1-0{CHAT_PATH}", (body % KEY).encode()))
    (span,) = [span for span in live_store.spans("1-0") if "gym.request.body" in span.attributes]
    assert span.attributes["gym.request.body"] == body % "[redacted]"
    assert span.attributes["gym.response.body"] == json.dumps(ANSWER)


def test_a_body_that_is_no_utf8_is_redacted_too(live_store):
    body = b'\xff{"password":"swordfish"}'
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", body))
    (record,) = live_store.records("1-0")
    (span,) = [span for span in live_store.spans("1-0") if "gym.request.body" in span.attributes]
    assert span.attributes["gym.request.body.encoding"] == "base64"
    assert "swordfish" not in record.to_json() and "[redacted]" in record.to_json()


def test_redaction_can_be_switched_off(tmp_path):
    program = (
        "import otel_gym\nwith otel_gym.rollout(1, 0) as r: r.span.set_attribute('a', 'password=hunter2 EMP-1234')\n"
    )
    for value, kept, gone in (("off", "hunter2", ""), ("/EMP-[0-9]+/", "password", "hunter2 EMP")):
        directory = tmp_path / value[:3].strip("/")
        environ = {
            "PATH": os.environ["PATH"],
            "OTEL_GYM": "1",
            "OTEL_GYM_DIR": str(directory),
            "OTEL_GYM_REDACT": value,
        }
        subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60)
        text = "".join(path.read_text() for path in directory.rglob("*.jsonl"))
        assert kept in text and not any(word in text for word in gone.split())


def test_the_users_rules_and_no_media_hold_for_spans_that_are_still_open(live_store):
    rules = Redactor(read_rules("/EMP-[0-9]+/"))
    active_pipeline().processor.content = ContentPolicy(media=False, redactor=rules)
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "badge": "EMP-123456",
        "picture": "data:image/png;base64," + "iVBORw0KGgo" + "A" * 1001,
    }
    with trace.get_tracer("agent").start_as_current_span("execute_tool scan", attributes=attributes):
        (line,) = start_records(live_store.directory)
    assert b"EMP-123456" not in line and b"iVBORw0KGgo" not in line
    (span,) = spans_of_line(line)
    assert span.attributes["badge"] == "[redacted]"
    assert span.attributes["picture"].startswith("data:image/png;base64,otel_gym:blob:")


def test_no_media_keeps_hash_type_and_length_of_a_picture(live_store):
    pipeline = active_pipeline()
    pipeline.content = pipeline.processor.content = ContentPolicy(media=False, messages=True)
    url = "data:image/png;base64," + "iVBORw0KGgo" + "A" * 1001
    request = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", request))
    text = live_store.text()
    assert "iVBORw0KGgo" not in text
    assert "data:image/png;base64,otel_gym:blob:" in text


class Picture(str):
    """A text of a type of its own."""


def test_no_media_holds_for_lists_maps_events_and_what_an_exception_says(live_store):
    pipeline = active_pipeline()
    pipeline.content = pipeline.processor.content = ContentPolicy(media=False)
    url = "data:image/png;base64," + "iVBORw0KGgo" + "A" * 1001
    with otel_gym.rollout(1, 0):
        span = trace.get_tracer("agent").start_span("t")
        span.set_attributes({"list": ["a", url], "map": {"b": [{"c": url}]}, "text": Picture(url)})
        span.add_event("seen", {"list": [url]})
        error = ValueError(f"cannot read {url}")
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, f"ValueError: {error}")
        span.end()
    text = live_store.text()
    assert "iVBORw0KGgo" not in text
    assert text.count("data:image/png;base64,otel_gym:blob:") >= 6
    (span,) = [span for span in live_store.spans("1-0") if span.name == "t"]
    assert span.attributes["list"][0] == "a" and span.attributes["map"]["b"][0]["c"] == span.attributes["text"]


def test_half_an_emoji_from_a_server_is_counted_and_the_body_kept(live_store):
    body = b'{"id":"r","choices":[{"message":{"content":"hi \\ud83e"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}'
    app = ModelCallCapture(json_app(body))
    asyncio.run(send_request(app, f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    (span,) = [span for span in live_store.spans("1-0") if "gym.response.body" in span.attributes]
    assert span.attributes["gym.content.replaced"] == 2
    assert span.attributes["gym.response.body"] == body.decode()
    (record,) = live_store.records("1-0")
    assert record.response["choices"][0]["message"]["content"] == "hi \ufffd"
    assert record.response["choices"][0]["logprobs"]["content"][0]["logprob"] is None


def test_odd_values_lose_no_span_and_no_batch_and_every_line_is_strict_json(live_store):
    tracer = trace.get_tracer("agent")
    deep: list = []
    for _ in range(150):
        deep = [deep]
    with otel_gym.rollout(8, 0):
        for number, value in enumerate(["x\ud83e", float("nan"), float("-inf"), 2**70, deep, b"\xff", {"a": None}]):
            with tracer.start_as_current_span(f"odd {number} \ud83e", attributes={"value": value}) as span:
                span.add_event("event \ud83e", {"k": "\ud83e"})
                span.set_status(trace.StatusCode.ERROR, "\ud83e")

    spans = {span.name[:5]: span for span in live_store.spans("8-0") if span.name.startswith("odd")}
    assert len(spans) == 7
    assert [spans["odd 0"].attributes[name] for name in ("value", "gym.content.replaced")] == ["x\ufffd", 5]
    assert str(spans["odd 1"].attributes["value"]) == "nan" and spans["odd 1"].attributes["gym.content.replaced"] == 4
    assert spans["odd 2"].attributes["value"] == float("-inf")
    assert spans["odd 3"].attributes["value"] == str(2**70)
    assert "<nested too deep>" in str(spans["odd 4"].attributes["value"])
    assert (spans["odd 5"].attributes["value"], spans["odd 6"].attributes["value"]) == (b"\xff", {"a": None})
    for path in live_store.directory.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            strict(line)


def test_a_reward_that_is_no_finite_number_is_kept(live_store):
    with otel_gym.rollout(8, 1) as rollout:
        rollout.record_reward(float("inf"))
    (span,) = live_store.spans("8-1")
    assert span.attributes["gym.reward"] == float("inf")


def test_a_model_server_that_says_odd_things_of_itself_costs_no_record(live_store):
    cyclic: dict = {}
    cyclic["self"] = cyclic

    async def app(scope, receive, send):
        scope.setdefault("state", {})["nemo_gym_model_execution"] = {"local_response_reason": cyclic}
        await json_app(ANSWER)(scope, receive, send)

    asyncio.run(send_request(ModelCallCapture(app), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST))
    (record,) = live_store.records("1-0")
    assert record.response == ANSWER


def test_300_attributes_200_events_and_200_links_of_a_span_are_all_stored(live_store):
    other = trace.get_tracer("agent").start_span("other").get_span_context()
    with otel_gym.rollout(9, 0):
        span = trace.get_tracer("agent").start_span("big", links=[trace.Link(other)] * 200)
        span.set_attributes({f"k{number}": number for number in range(300)})
        for number in range(200):
            span.add_event(str(number))
        span.end()
    (stored,) = [span for span in live_store.spans("9-0") if span.name == "big"]
    assert (len(stored.events), len(stored.links), stored.dropped) == (200, 200, 0)
    assert sum(name.startswith("k") for name in stored.attributes) == 300


def test_another_providers_limits_take_neither_a_span_nor_what_it_is_about(foreign):
    store, provider, _ = foreign
    tracer = provider.get_tracer("agent")
    with otel_gym.rollout(9, 1):
        with tracer.start_as_current_span("big") as span:
            for number in range(40):
                span.set_attribute(f"k{number}", number)
                span.add_event(str(number))
        asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/9-1{CHAT_PATH}", REQUEST))

    spans = {span.name: span for span in store.spans("9-1")}
    big, call = spans["big"], spans["chat toy"]
    assert (big.rollout_id, big.run_id) == ("9-1", "run-1")
    # 16 of the 40 were kept, and the three ids that were dropped with the rest are written again.
    assert big.dropped == (40 + 3 - 16 - 3) + (40 - 2)
    assert call.dropped == 0
    assert call.attributes["gen_ai.usage.input_tokens"] == 11 and call.rollout_id == "9-1"
    (record,) = store.records("9-1")
    assert (record.model, record.tokens_in, record.response) == ("toy-served", 11, ANSWER)


def test_a_span_whose_attributes_change_meanwhile_has_its_start_record(tmp_path):
    class Busy(ContentPolicy):
        def attributes(self, attributes):
            for name in attributes:
                span.set_attribute(f"{name}.more", 1)
            return attributes

    span = TracerProvider().get_tracer("agent").start_span("tool", attributes={"a": 1})
    open_spans = OpenSpans()
    open_spans.enter(span, Busy())
    open_spans.write(StoreWriter(tmp_path))
    assert len(start_records(tmp_path)) == 1


def test_another_providers_limits_leave_an_open_span_its_rollout(foreign):
    store, provider, _ = foreign
    operation = {"gen_ai.operation.name": "execute_tool"}
    with (
        otel_gym.rollout(9, 2),
        provider.get_tracer("agent").start_as_current_span("tool", attributes=operation) as span,
    ):
        span.set_attributes({f"k{number}": number for number in range(40)})
        records = [one for line in start_records(store.directory) for one in spans_of_line(line)]
    assert {(one.name, one.rollout_id, one.run_id) for one in records} >= {("tool", "9-2", "run-1")}


def test_the_standard_variables_still_limit_spans():
    assert own_span_limits({}).max_span_attributes is None
    assert own_span_limits({}).max_events is None


@pytest.mark.parametrize(("value", "kept"), [("20", 20), ("", 200)])
def test_a_limit_that_the_user_sets_is_kept_and_counted(tmp_path, value, kept):
    program = (
        "import otel_gym\n"
        "with otel_gym.rollout(1, 0) as r:\n"
        "    for n in range(200): r.span.set_attribute(f'k{n}', n)\n"
    )
    environ = {
        **{"PATH": os.environ["PATH"], "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path)},
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": value,
    }
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60, capture_output=True)
    (path,) = tmp_path.rglob("*.jsonl")
    (span,) = spans_of_line(path.read_bytes())
    assert sum(name.startswith("k") for name in span.attributes) == kept
    assert span.rollout_id == "1-0"
    assert (span.dropped > 0) == (kept < 200)


def test_a_refused_limit_is_said_and_stops_nothing(tmp_path):
    program = "import otel_gym\nwith otel_gym.rollout(1, 0): print('done')\n"
    environ = {
        **{"PATH": os.environ["PATH"], "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path)},
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "many",
    }
    result = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "done\n")
    assert "OTEL_SPAN_EVENT_COUNT_LIMIT" in result.stderr


def test_the_plain_exporter_and_the_resource_are_redacted(tmp_path):
    provider = TracerProvider(resource=Resource({"process.command_args": ["--api-key", KEY], "service.name": "s"}))
    provider.add_span_processor(SimpleSpanProcessor(RolloutSpanExporter(str(tmp_path))))
    provider.get_tracer("x").start_span("s", attributes={"gym.rollout.id": "1-0", "a": f"K={KEY}"}).end()
    text = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    assert KEY not in text and text.count("[redacted]") == 2


def test_a_span_of_anyone_can_be_encoded():
    span = TracerProvider().get_tracer("x").start_span("s", attributes={"a": "b"})
    span.end()
    strict(encode_span(span))


LONG_IDS = """
import asyncio, otel_gym
from opentelemetry import trace
from otel_gym.capture.middleware import ModelCallCapture
from tests.capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request
{configure}
tool = {{"gen_ai.operation.name": "execute_tool", "tool.output": "x" * 40}}
for number in (1, 2):
    with otel_gym.rollout(rollout_id=f"math-problem-0000000{{number}}", run_id="2026-11-30-evaluation"):
        trace.get_tracer("agent").start_span("tool", attributes=tool).end()
    path = f"/ng-rollout/math-problem-0000000{{number}}{{CHAT_PATH}}"
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER), server_spans=False), path, REQUEST))
for number in (3, 4):
    ids = {{"gym.rollout.id": f"math-problem-0000000{{number}}"}}
    trace.get_tracer("agent").start_span("tool", attributes={{**tool, **ids}}).end()
"""
OWN_PROVIDER = "otel_gym.configure()"
FOREIGN_PROVIDER = """
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
trace.set_tracer_provider(TracerProvider(span_limits=SpanLimits(max_span_attribute_length=16)))
otel_gym.configure()
"""


@pytest.mark.parametrize(("configure", "unknown"), [(OWN_PROVIDER, set()), (FOREIGN_PROVIDER, {"unassigned"})])
def test_a_limit_of_lengths_made_one_rollout_of_two(tmp_path, configure, unknown):
    environ = {
        **{"PATH": os.environ["PATH"], "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path)},
        **{"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "16", "PYTHONPATH": os.pathsep.join(sys.path)},
    }
    program = LONG_IDS.format(configure=configure)
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60, capture_output=True)
    store = Store(tmp_path)
    whole = {f"math-problem-0000000{number}" for number in ((1, 2) if unknown else (1, 2, 3, 4))}
    assert {rollout.rollout_id for rollout in store.rollouts()} == whole | unknown
    spans = list(store.spans("math-problem-00000001"))
    assert sorted(span.name for span in spans) == ["chat toy", "rollout", "tool"]
    assert {span.rollout_id for span in spans} == {"math-problem-00000001"}
    assert {span.run_id for span in spans if span.name != "chat toy"} == {"2026-11-30-evaluation"}
    assert [span.attributes.get("gym.content.cut") for span in spans if span.name == "tool"] == [1]


def test_the_plain_exporter_keeps_an_id_apart_that_a_limit_may_have_cut(tmp_path):
    provider = TracerProvider(span_limits=SpanLimits(max_span_attribute_length=4))
    provider.add_span_processor(SimpleSpanProcessor(RolloutSpanExporter(str(tmp_path))))
    for rollout_id in ("12-10", "12-11", "1-0"):
        provider.get_tracer("x").start_span("s", attributes={"gym.rollout.id": rollout_id}).end()
    assert {rollout.rollout_id for rollout in Store(tmp_path).rollouts()} == {"1-0", "unassigned"}


def test_names_tracestate_and_scope_were_never_redacted(live_store):
    state = trace.TraceState([("vendor", KEY)])
    parent = trace.NonRecordingSpan(trace.SpanContext(7, 8, True, trace.TraceFlags(1), state))
    tracer = trace.get_tracer(f"scope {KEY}", KEY, schema_url=f"https://h/{KEY}", attributes={"k": KEY, "team": "t"})
    context = trace.set_span_in_context(parent)
    span = tracer.start_span("s", context, attributes={"gym.rollout.id": "1-0", KEY: 1, "env": {KEY: {KEY: "x"}}})
    span.add_event("e", {KEY: 1})
    span.end()
    text = live_store.text()
    assert KEY not in text
    (line,) = [json.loads(line) for line in text.splitlines()]
    (scope_spans,) = line["resourceSpans"][0]["scopeSpans"]
    assert [pair["key"] for pair in scope_spans["scope"]["attributes"]] == ["k", "team", "gym.store.version"]
    (stored,) = live_store.spans("1-0")
    assert (stored.attributes["[redacted]"], stored.attributes["env"]) == (1, {"[redacted]": {"[redacted]": "x"}})


def test_an_expression_of_the_user_does_not_take_the_names_that_readers_look_for(tmp_path):
    span = TracerProvider().get_tracer("x").start_span("s", attributes={"gym.rollout.id": "1-0", "my.rollout": 1})
    span.end()
    (stored,) = spans_of_line(encode_span(span, None, ContentPolicy(redactor=Redactor(read_rules("/rollout/")))))
    assert stored.attributes == {"gym.rollout.id": "1-0", "my.[redacted]": 1}


def test_queries_were_kept_in_urls_of_other_names(live_store):
    urls = ("url.full", "url.original", "server.url", "http.url", "http.target")
    attributes = dict.fromkeys(urls, "http://h/p?key=swordfish") | {"url.query": "key=swordfish", "question": "a?b"}
    with otel_gym.rollout(1, 0), trace.get_tracer("x").start_as_current_span("s", attributes=attributes) as span:
        span.add_event("redirect", {"url.full": "http://h/p?key=swordfish"})
    assert "swordfish" not in live_store.text()
    (stored,) = [span for span in live_store.spans("1-0") if span.name == "s"]
    assert {stored.attributes[name] for name in urls} == {"http://h/p"}
    assert "url.query" not in stored.attributes and stored.attributes["question"] == "a?b"
