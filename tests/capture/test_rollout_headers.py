"""`rollout.headers`: a proxy that was started without a run learns run and parent from each call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

import otel_gym
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.span import StoredSpan

from .test_proxy import ANSWER, QUESTION, answering, proxy_process, served, upstream_config
from .test_proxy import Upstream as ModelServer

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 2},
}


async def model(scope: Any, receive: Any, send: Any) -> None:
    body = MESSAGE if scope["path"].endswith("/messages") else ANSWER
    await answering(json.dumps(body).encode())(scope, receive, send)


@pytest.fixture
def proxy_url(tmp_path: Path) -> Iterator[str]:
    """A proxy process of its own on the test's store, started without --run."""
    with (
        served(upstream_config(ModelServer(model))) as upstream_url,
        proxy_process(["--upstream", upstream_url, "--dir", str(tmp_path / "store")]) as (process, url, _),
    ):
        yield url
        process.terminate()
        process.wait(15)


def ask_openai(url: str, headers: dict[str, str]) -> None:
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=url, api_key="k", default_headers=headers, http_client=http_client) as client:
        client.chat.completions.create(**QUESTION)


def ask_anthropic(url: str, headers: dict[str, str]) -> None:
    http_client = anthropic.DefaultHttpxClient(trust_env=False)
    with anthropic.Anthropic(
        base_url=url.removesuffix("/v1"), api_key="k", default_headers=headers, http_client=http_client
    ) as client:
        client.messages.create(max_tokens=9, **QUESTION)


def found(store: Path, rollout_id: str, spans: int) -> list[RolloutSpans]:
    assert otel_gym.flush(10)
    for _ in range(200):
        rollouts = list(Store(store).rollouts(rollout_id))
        if sum(span.end_ns is not None for rollout in rollouts for span in rollout.spans) >= spans:
            return rollouts
        threading.Event().wait(0.05)
    raise AssertionError("the spans did not come")


def is_below(span: StoredSpan, ancestor: StoredSpan, spans: list[StoredSpan]) -> bool:
    by_id = {each.span_id: each for each in spans}
    while span.parent_span_id in by_id:
        span = by_id[span.parent_span_id]
    return span is ancestor


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])
def test_a_recipe_gave_a_rollout_without_calls(proxy_url: str, tmp_path: Path, ask: Any) -> None:
    """The proxy knew no run, so its calls and the rollout were two groups."""
    otel_gym.configure(directory=tmp_path / "store", run_id="training-step-7")
    with otel_gym.rollout(12, 0) as rollout:
        ask(rollout.base_url(f"{proxy_url}/v1"), rollout.headers)

    (group,) = found(tmp_path / "store", "12-0", 3)
    assert group.run_id == "training-step-7"
    (root,) = [span for span in group.spans if span.name == "rollout"]
    call = next(span for span in group.spans if span.attributes.get("gym.model_call.id"))
    assert call.trace_id == root.trace_id
    assert is_below(call, root, group.spans)


def test_a_call_inside_a_span_of_the_rollout_is_its_child(proxy_url: str, tmp_path: Path) -> None:
    otel_gym.configure(directory=tmp_path / "store", run_id="step-8")
    with otel_gym.rollout(12, 0) as rollout, trace.get_tracer("agent").start_as_current_span("turn"):
        ask_openai(rollout.base_url(f"{proxy_url}/v1"), rollout.headers)

    (group,) = found(tmp_path / "store", "12-0", 4)
    turn = next(span for span in group.spans if span.name == "turn")
    server = next(span for span in group.spans if span.name == "POST /v1/chat/completions")
    assert server.parent_span_id == turn.span_id


def test_the_prefix_wins_for_the_rollout_and_the_headers_for_the_run(proxy_url: str, tmp_path: Path) -> None:
    otel_gym.configure(directory=tmp_path / "store", run_id="step-9")
    with otel_gym.rollout(12, 0) as rollout:
        headers = rollout.headers
    ask_openai(f"{proxy_url}/ng-rollout/99-9/v1", headers)
    (group,) = found(tmp_path / "store", "99-9", 2)
    assert group.run_id == "step-9"


def test_headers_name_run_rollout_and_the_current_span(live_store) -> None:
    rollout = otel_gym.rollout(3, 1)
    assert sorted(rollout.headers) == ["baggage"]
    with rollout:
        assert sorted(rollout.headers["baggage"].split(",")) == ["gym.rollout.id=3-1", "gym.run.id=run-1"]
        own = format(rollout.span.get_span_context().span_id, "016x")
        assert rollout.headers["traceparent"].split("-")[2] == own
        with trace.get_tracer("agent").start_as_current_span("turn") as turn:
            inside = format(turn.get_span_context().span_id, "016x")
            assert rollout.headers["traceparent"].split("-")[2] == inside
        with otel_gym.rollout(4, 0):  # the span of another rollout is no parent of this one's calls
            assert rollout.headers["traceparent"].split("-")[2] == own


def test_with_tracing_off_there_are_no_headers(tmp_path: Path) -> None:
    program = "import otel_gym\nwith otel_gym.rollout(1, 0) as r:\n    r.record_reward(1.0)\n    print(r.headers)\n"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{}\n", "")
