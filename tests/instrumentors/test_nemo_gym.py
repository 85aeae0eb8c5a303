"""Requests as NeMo Gym's servers get them; a whole run of the real one is bench/nemo_gym_run.py."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from otel_gym.capture.instrumentors.nemo_gym import _ToolCalls
from otel_gym.capture.instrumentors.nemo_gym_rollouts import rollout_id_of_run, verdict_of
from otel_gym.capture.instrumentors.nemo_gym_servers import install
from otel_gym.store.span import KIND_SERVER

ID = "gym.rollout.id=1-0,gym.run.id=run-1"
PARENT = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
VERDICT = {"reward": 0.5, "mask_sample": True, "failure_kind": "judge_failed"}


class BaseServer:
    """What an instrumentor knows of a server of NeMo Gym: its base class by name, its name, its session cookie."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(name="the_server")

    def get_session_middleware_key(self) -> str:
        return "Server___the_server"


class SimpleResourcesServer(BaseServer):
    pass


class SimpleResponsesAPIAgent(BaseServer):
    pass


def app_of(server: BaseServer) -> FastAPI:
    app = FastAPI()
    cookie = b64encode(json.dumps({"session_id": "s-1"}).encode()).decode()

    def answer(content: Any, status: int = 200) -> JSONResponse:
        response = JSONResponse(content, status)
        response.headers["set-cookie"] = f"Server___the_server={cookie}.time.signature; path=/; httponly"
        return response

    @app.post("/seed_session")
    async def seed() -> JSONResponse:
        return answer({})

    @app.post("/verify")
    async def verify() -> JSONResponse:
        return answer(VERDICT)

    @app.post("/get_weather")
    async def get_weather(request: Request) -> JSONResponse:
        return answer({"city": (await request.json())["city"]})

    @app.post("/fails")
    async def fails() -> JSONResponse:
        return answer({"detail": "no such city"}, 422)

    @app.post("/run")
    async def run(request: Request) -> JSONResponse:
        return answer({**await request.json(), **VERDICT})

    @app.post("/ng-rollout/{rollout_id}/v1/responses")
    async def responses(rollout_id: str) -> JSONResponse:
        return answer({"id": rollout_id, "output": []})

    install(server, app)
    return app


def post(app: FastAPI, path: str, body: Any, **headers: str) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gym") as client:
            return await client.post(path, json=body, headers=headers)

    return asyncio.run(send())


def test_seed_and_verify_say_session_and_verdict(live_store):
    app = app_of(SimpleResourcesServer())
    for path in ("/seed_session", "/verify"):
        assert post(app, path, {}, baggage=ID, **PARENT).status_code == 200

    seed, verify = live_store.spans("1-0")
    assert [(span.name, span.kind) for span in (seed, verify)] == [
        ("POST /seed_session", KIND_SERVER),
        ("POST /verify", KIND_SERVER),
    ]
    assert {span.trace_id for span in (seed, verify)} == {"ab" * 16}
    assert {span.attributes["gym.session.id"] for span in (seed, verify)} == {"s-1"}
    assert {span.attributes["nemo.gym.server.name"] for span in (seed, verify)} == {"the_server"}
    said = {name: verify.attributes[f"gym.{name}"] for name in VERDICT}
    assert said == VERDICT and "gym.reward" not in seed.attributes


def test_any_other_post_is_the_run_of_a_tool(live_store):
    """simple_agent does not prefix its requests to tools: baggage alone says whose they are."""
    app = app_of(SimpleResourcesServer())
    baggage = f"{ID},gen_ai.tool.call.id=call_1"
    assert post(app, "/get_weather", {"city": "Oslo"}, baggage=baggage, **PARENT).json() == {"city": "Oslo"}

    server, tool = live_store.spans("1-0")
    assert (server.name, tool.name, tool.parent_span_id) == ("POST", "execute_tool get_weather", server.span_id)
    assert tool.attributes["gen_ai.tool.call.id"] == "call_1"
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"city":"Oslo"}'
    assert tool.attributes["gen_ai.tool.call.result"] == '{"city":"Oslo"}'


def test_a_tool_that_answers_with_an_error_or_is_missing_failed(live_store):
    app = app_of(SimpleResourcesServer())
    assert post(app, "/fails", {}, baggage=ID).status_code == 422
    assert post(app, "/nowhere", {}, baggage=ID).status_code == 404

    tools = [span for span in live_store.spans("1-0") if span.name.startswith("execute_tool")]
    assert [(span.name, span.status) for span in tools] == [
        ("execute_tool fails", 2),
        ("execute_tool nowhere", 2),
    ]
    assert "no such city" in tools[0].attributes["gym.tool.error"]


def test_requests_of_no_rollout_are_left_alone(live_store):
    app = app_of(SimpleResourcesServer())
    assert post(app, "/get_weather", {"city": "Oslo"}).json() == {"city": "Oslo"}
    assert post(app, "/verify", {}).json() == VERDICT
    assert live_store.is_empty()


def test_an_agents_own_responses_are_a_turn_and_no_model_call(live_store):
    app = app_of(SimpleResponsesAPIAgent())
    answered = post(app, "/ng-rollout/1-0/v1/responses", {"input": "hi"})
    assert answered.json()["id"] == "1-0"  # Gym's own route for the prefix

    server, turn = live_store.spans("1-0")
    assert (server.name, turn.name) == ("POST /v1/responses", "invoke_agent the_server")
    assert live_store.records("1-0") == []


def test_a_run_that_no_traced_collector_sent_is_named_by_its_body_and_judged_by_its_answer(live_store):
    app = app_of(SimpleResponsesAPIAgent())
    body = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2, "x": "y" * 100_000}
    assert post(app, "/run", body).json() == {**body, **VERDICT}

    [rollout] = [each for each in live_store.rollouts() if each.rollout_id == "3-1-a2"]
    assert [span.name for span in rollout.spans] == ["POST /run", "record_reward"]
    assert rollout.spans[1].attributes["gym.reward"] == 0.5
    assert len({span.trace_id for span in rollout.spans}) == 1


def test_a_run_of_a_traced_collector_is_judged_there(live_store):
    app = app_of(SimpleResponsesAPIAgent())
    post(app, "/run", {"_ng_task_index": 3, "_ng_rollout_index": 1}, baggage=ID, **PARENT)
    assert [span.name for span in live_store.spans("1-0")] == ["POST /run"]


def test_a_server_of_no_known_kind_is_left_to_others():
    app = FastAPI()
    install(BaseServer(), app)
    assert app.user_middleware == []


@pytest.mark.parametrize(
    ("body", "rollout_id"),
    [
        ({"_ng_task_index": 12, "_ng_rollout_index": 0}, "12-0"),
        ({"_ng_task_index": 12, "_ng_rollout_index": 0, "_ng_attempt_index": 0}, "12-0"),
        ({"_ng_task_index": 12, "_ng_rollout_index": 0, "_ng_attempt_index": 3}, "12-0-a3"),
        ({"_ng_rollout_id": "math-1", "_ng_task_index": 1, "_ng_rollout_index": 2}, "math-1"),
        ({"episode_id": {"rollout_id": "r7", "attempt": 1}, "task": {}}, "r7-a1"),
        ({"_ng_rollout_id": "../etc"}, None),
        ({"_ng_task_index": 12}, None),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_the_body_of_a_run_names_the_rollout(body, rollout_id):
    assert rollout_id_of_run(body) == rollout_id


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"reward": 1, "response": {}}, (1.0, None, None)),
        (VERDICT, (0.5, True, "judge_failed")),
        ({"episode_id": {}, "result": {"reward": 0.25}}, (0.25, None, None)),
        ({"episode_id": {}, "failure": {"failure_kind": "timeout"}}, (None, None, "timeout")),
        ({"reward": None}, (None, None, None)),
        ({"reward": True}, (None, None, None)),
        ({"reward": float("nan")}, (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_an_answer_says_the_verdict_or_nothing(answer, verdict):
    assert verdict_of(json.dumps(answer).encode()) == verdict


def test_what_is_no_json_says_nothing():
    assert verdict_of(b"Internal Server Error") == (None, None, None)


def answer_of(*calls: tuple[str, str, str]) -> SimpleNamespace:
    items = [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]
    return SimpleNamespace(_body=json.dumps({"output": items}).encode())


def test_requests_to_tools_are_told_apart_by_name_and_arguments_each_once():
    calls = _ToolCalls(
        answer_of(("c1", "get", '{"n": 1}'), ("c2", "get", '{"n": 2}'), ("c3", "put", "{}"), ("c4", "get", '{"n": 2}'))
    )
    assert calls.take("http://h:1/get", {"n": 2}) == "c2"
    assert calls.take("http://h:1/get", {"n": 2}) == "c4"
    assert calls.take("http://h:1/put", {}) == "c3"
    assert calls.take("http://h:1/verify", {"n": 1}) is None
    assert calls.take("http://h:1/ng-rollout/1-0/get", {"n": 9}) == "c1"  # changed on the way, the only one left
    assert calls.take("http://h:1/get", {"n": 1}) is None


def test_an_answer_that_was_not_read_or_is_no_json_names_no_calls():
    assert _ToolCalls(SimpleNamespace()).take("http://h/get", {}) is None
    assert _ToolCalls(SimpleNamespace(_body=None)).take("http://h/get", {}) is None
    assert _ToolCalls(SimpleNamespace(_body=b"<html>")).take("http://h/get", {}) is None
