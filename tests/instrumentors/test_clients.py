"""What a server is told by a program that knows nothing of tracing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import pytest
import requests
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.instrumentation.utils import suppress_instrumentation

import otel_gym
from otel_gym.capture.instrumentors.hosts import is_allowed
from otel_gym.settings import read_settings
from otel_gym.tracing.current import context_of_texts

pytestmark = pytest.mark.usefixtures("live_store", "instrumented")

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def with_httpx(url: str, headers: dict[str, str] | None = None) -> None:
    with httpx.Client(follow_redirects=True) as client:
        client.post(url, json={"a": 1}, headers=headers).raise_for_status()


def with_httpx2(url: str, headers: dict[str, str] | None = None) -> None:
    with httpx2.Client(follow_redirects=True) as client:
        client.post(url, json={"a": 1}, headers=headers).raise_for_status()


def with_requests(url: str, headers: dict[str, str] | None = None) -> None:
    requests.post(url, json={"a": 1}, headers=headers, timeout=10).raise_for_status()


def runs(call: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(url: str, headers: dict[str, str] | None = None) -> None:
        asyncio.run(call(url, headers))

    run.__name__ = call.__name__
    return run


@runs
async def with_async_httpx(url: str, headers: dict[str, str] | None = None) -> None:
    async with httpx.AsyncClient(follow_redirects=True) as client:
        (await client.post(url, json={"a": 1}, headers=headers)).raise_for_status()


@runs
async def with_async_httpx2(url: str, headers: dict[str, str] | None = None) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        (await client.post(url, json={"a": 1}, headers=headers)).raise_for_status()


@runs
async def with_aiohttp(url: str, headers: dict[str, str] | None = None) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, json={"a": 1}, headers=headers) as response:
        response.raise_for_status()


CLIENTS = [with_httpx, with_async_httpx, with_httpx2, with_async_httpx2, with_aiohttp, with_requests]
every_client = pytest.mark.parametrize("send", CLIENTS, ids=lambda client: client.__name__)


@every_client
def test_a_request_within_a_rollout_names_it_and_the_current_span(echo, send):
    with otel_gym.rollout(1, 0) as rollout, otel_gym.agent_step() as step:
        send(echo.url())
        assert step.span is not None and rollout.span is not None
        context = step.span.get_span_context()

    assert echo.all("traceparent") == [[f"00-{context.trace_id:032x}-{context.span_id:016x}-01"]]
    assert echo.all("baggage") == [["gym.rollout.id=1-0,gym.run.id=run-1"]]


@every_client
def test_outside_of_a_rollout_nothing_is_told(echo, send):
    with trace.get_tracer("app").start_as_current_span("of the application"):
        send(echo.url())
    assert (echo.all("traceparent"), echo.all("baggage")) == ([[]], [[]])


@every_client
def test_a_host_that_is_not_allowed_is_told_nothing(echo, send, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_PROPAGATE_HOSTS", "model.example.com")
    otel_gym.configure(directory=tmp_path / "other", run_id="run-1")
    with otel_gym.rollout(1, 0):
        send(echo.url())
    assert (echo.all("traceparent"), echo.all("baggage")) == ([[]], [[]])


@every_client
def test_a_redirect_to_a_host_that_is_not_allowed_is_told_nothing(echo, send, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_PROPAGATE_HOSTS", "127.0.0.1")
    otel_gym.configure(directory=tmp_path / "other", run_id="run-1")
    with otel_gym.rollout(1, 0):
        send(f"{echo.url()}/redirect/{echo.url('localhost')}/elsewhere")
    assert [len(values) for values in echo.all("traceparent")] == [1, 0]
    assert [len(values) for values in echo.all("baggage")] == [1, 0]


@every_client
def test_a_request_that_names_a_span_already_keeps_it_and_its_baggage(echo, send):
    own = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "baggage": "team=blue"}
    with otel_gym.rollout(1, 0):
        send(echo.url(), own)
    assert echo.all("traceparent") == [[own["traceparent"]]]
    assert echo.all("baggage") == [["team=blue,gym.rollout.id=1-0,gym.run.id=run-1"]]
    assert own == {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "baggage": "team=blue"}


@every_client
def test_a_relay_that_hands_on_the_headers_that_it_was_sent_names_its_own_span(echo, send):
    """NeMo Gym's environment server of old agents: its agent stood beside it in the trace, not below it."""
    sent = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "baggage": "gym.rollout.id=1-0"}
    with trace.get_tracer("server").start_as_current_span("POST /run", context_of_texts(sent)) as served:
        token = otel_context.attach(baggage.set_baggage("gym.rollout.id", "1-0"))
        send(echo.url(), sent)
        otel_context.detach(token)
    assert echo.all("traceparent") == [[f"00-{'a' * 32}-{served.get_span_context().span_id:016x}-01"]]
    assert echo.all("baggage") == [["gym.rollout.id=1-0"]]


@every_client
def test_the_headers_of_a_rollout_given_by_hand_are_sent_once(echo, send):
    with otel_gym.rollout(1, 0) as rollout:
        send(echo.url(), rollout.headers)
    assert echo.all("traceparent") == [[rollout.headers["traceparent"]]]
    assert echo.all("baggage") == [[rollout.headers["baggage"]]]


@every_client
def test_baggage_of_the_application_goes_along(echo, send):
    with otel_gym.rollout(1, 0):
        token = otel_context.attach(baggage.set_baggage("team", "blue"))
        send(echo.url())
        otel_context.detach(token)
    assert echo.all("baggage") == [["gym.rollout.id=1-0,gym.run.id=run-1,team=blue"]]


@every_client
def test_what_opentelemetry_sends_itself_is_left_alone(echo, send):
    with otel_gym.rollout(1, 0), suppress_instrumentation():
        send(echo.url())
    assert (echo.all("traceparent"), echo.all("baggage")) == ([[]], [[]])


def test_the_clients_of_openai_and_anthropic(echo):
    with otel_gym.rollout(1, 0):
        openai.OpenAI(base_url=f"{echo.url()}/v1", api_key="x", max_retries=0).chat.completions.create(
            model="toy", messages=MESSAGES
        )
        anthropic.Anthropic(base_url=echo.url(), api_key="x", max_retries=0).messages.create(
            model="toy", max_tokens=5, messages=MESSAGES
        )

    assert [path for path, _ in echo.seen] == ["/v1/chat/completions", "/v1/messages"]
    assert [len(values) for values in echo.all("traceparent")] == [1, 1]  # Anthropic's client names its own span
    ids = [["gym.rollout.id=1-0,gym.run.id=run-1"]]
    assert echo.all("baggage") == ids * 2


def test_a_client_that_was_made_before_the_rollout_names_each_rollout(echo):
    with httpx.Client(base_url=echo.url()) as client:
        for index in (0, 1):
            with otel_gym.rollout(1, index):
                client.get("/")
        client.get("/")
    assert [values[:1] for values in echo.all("baggage")] == [
        ["gym.rollout.id=1-0,gym.run.id=run-1"],
        ["gym.rollout.id=1-1,gym.run.id=run-1"],
        [],
    ]


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.8.9.1", "[::1]", "10.1.2.3", "192.168.0.7", "172.31.0.1", "fd00::1", "model", "vllm.internal"],
)
def test_this_machine_and_private_networks_are_told_by_default(host):
    assert is_allowed(host, read_settings({}).propagate_hosts)


@pytest.mark.parametrize(
    "host", ["api.openai.com", "8.8.8.8", "169.254.169.254", "172.32.0.1", "2001:4860::1", "", "10.0.0.1.example.com"]
)
def test_the_rest_of_the_world_is_not(host):
    assert not is_allowed(host, read_settings({}).propagate_hosts)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [("*", ("*",)), ("none", ()), ("private, *.Example.com", ("private", "*.example.com")), ("[::1]", ("[::1]",))],
)
def test_hosts_are_given_by_name_and_glob(text, hosts):
    assert read_settings({"OTEL_GYM_PROPAGATE_HOSTS": text}).propagate_hosts == hosts


@pytest.mark.parametrize("text", ["http://model", "model/v1", "none,model", ",", "a b"])
def test_what_is_no_host_is_refused(text):
    settings = read_settings({"OTEL_GYM_PROPAGATE_HOSTS": text})
    assert settings.propagate_hosts == ("private",)
    assert "OTEL_GYM_PROPAGATE_HOSTS" in settings.problems[0]


SEARCHER = otel_gym.AgentContext("s", "t", "s:searcher", "s:planner")


@every_client
def test_the_agent_context_is_told_with_a_rollout_and_without(echo, send):
    send(echo.url())
    with otel_gym.agent_context(SEARCHER):
        send(echo.url())
        with otel_gym.rollout(1, 0):
            send(echo.url())
    assert echo.all("x-dynamo-session-id") == [[], ["s:searcher"], ["s:searcher"]]
    assert echo.all("x-dynamo-parent-session-id") == [[], ["s:planner"], ["s:planner"]]
    rollouts = ["".join(values) for values in echo.all("baggage")]
    assert "gym.rollout.id=s," in f"{rollouts[1]}," and "gym.rollout.id=1-0," in f"{rollouts[2]},"
    assert rollouts[0] == ""


@every_client
def test_a_request_that_names_a_session_keeps_it_whole(echo, send):
    own = {"X-Dynamo-Session-Id": "own"}
    with otel_gym.agent_context(SEARCHER):
        send(echo.url(), own)
    assert (echo.all("x-dynamo-session-id"), echo.all("x-dynamo-parent-session-id")) == ([["own"]], [[]])
    assert own == {"X-Dynamo-Session-Id": "own"}


@every_client
def test_a_host_that_is_not_allowed_is_not_told_of_the_agent_by_a_redirect(echo, send, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_PROPAGATE_HOSTS", "127.0.0.1")
    otel_gym.configure(directory=tmp_path / "other", run_id="run-1")
    with otel_gym.agent_context(SEARCHER):
        send(f"{echo.url()}/redirect/{echo.url('localhost')}/elsewhere")
    assert echo.all("x-dynamo-session-id") == [["s:searcher"], []]


def test_an_id_that_no_header_carries_is_not_told(echo):
    with otel_gym.agent_context(session_id="caf\u00e9"):
        with_httpx(echo.url())
    assert echo.all("x-dynamo-session-id") == [[]]


def test_the_clients_of_openai_and_anthropic_tell_the_agent(echo):
    with otel_gym.agent_context(SEARCHER):
        openai.OpenAI(base_url=f"{echo.url()}/v1", api_key="k").chat.completions.create(model="toy", messages=MESSAGES)
        anthropic.Anthropic(base_url=echo.url(), api_key="k").messages.create(
            model="toy", max_tokens=9, messages=MESSAGES
        )
    assert echo.all("x-dynamo-session-id") == [["s:searcher"], ["s:searcher"]]
