"""Beside the instrumentations of OpenTelemetry's contrib, whichever came first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
import requests
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor as ContribRequestsInstrumentor

import otel_gym
from otel_gym.capture.instrumentors.clients import HttpxInstrumentor, RequestsInstrumentor

OURS = (HttpxInstrumentor, RequestsInstrumentor)
CONTRIB = (HTTPXClientInstrumentor, ContribRequestsInstrumentor)


@pytest.fixture(params=["ours first", "contrib first"])
def both(request, live_store) -> Iterator[None]:
    order = [*OURS, *CONTRIB] if request.param == "ours first" else [*CONTRIB, *OURS]
    for instrumentor in order:
        instrumentor().instrument()
    yield
    for instrumentor in reversed(order):
        instrumentor().uninstrument()


def with_httpx(url: str) -> None:
    httpx.get(url).raise_for_status()


def with_async_httpx(url: str) -> None:
    async def get() -> None:
        async with httpx.AsyncClient() as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


def with_requests(url: str) -> None:
    requests.get(url, timeout=10).raise_for_status()


CLIENTS = pytest.mark.parametrize("send", [with_httpx, with_async_httpx, with_requests])


@CLIENTS
def test_a_request_names_contribs_span_once_and_the_rollout(both, live_store, echo, send):
    with otel_gym.rollout(1, 0):
        send(echo.url())
    spans = {span.name: span for span in live_store.spans("1-0")}
    client_span = spans["GET"]
    assert client_span.parent_span_id == spans["rollout"].span_id
    assert echo.all("traceparent") == [[f"00-{client_span.trace_id}-{client_span.span_id}-01"]]
    assert echo.all("baggage") == [["gym.rollout.id=1-0,gym.run.id=run-1"]]


@CLIENTS
def test_contrib_tells_a_host_that_is_not_allowed_no_ids(both, echo, send, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_PROPAGATE_HOSTS", "none")
    otel_gym.configure(directory=tmp_path / "other", run_id="run-1")
    with otel_gym.rollout(1, 0):
        send(echo.url())
    assert [len(values) for values in echo.all("traceparent")] == [1]  # contrib's own, which is not ours to stop
    if send is not with_requests:
        assert echo.all("baggage") == [[]]
