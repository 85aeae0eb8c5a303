"""Capture reads which agent a call is of, from whoever says it, and files what names no rollout by its session."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
import uvicorn

import otel_gym
from otel_gym import AgentContext, agent_context, instrument_llm_request
from otel_gym.agent_identity import agent_context_of_attributes
from otel_gym.capture import stand_ins
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.demo.model_server import ScriptedModelServer

from .asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request

QUESTION: Any = {"model": "scripted-1", "messages": [{"role": "user", "content": "Compare Oslo and Lima."}]}
SEARCHER = AgentContext("run-1", "deep_research", "run-1:searcher", "run-1:planner")

CLAUDE_SESSION, CLAUDE_AGENT = "b4bfb16e-68a5-416f-9388-8f76bade6584", "a0d384d4e64091bdb"
CLAUDE = {"user-agent": "claude-cli/2.1.332 (external, sdk-cli)", "x-claude-code-session-id": CLAUDE_SESSION}
CLAUDE_SUBAGENT = {**CLAUDE, "x-claude-code-agent-id": CLAUDE_AGENT}
CLAUDE_NESTED = {**CLAUDE, "x-claude-code-agent-id": "a1", "x-claude-code-parent-agent-id": CLAUDE_AGENT}

CODEX_ROOT, CODEX_CHILD = "01a229a9-3cc2-73e1-8a33-1afb6db6151f", "01a229a9-3d59-7932-bb5c-07d31c7a918c"


def codex(thread: str, **turn: Any) -> dict[str, str]:
    metadata = json.dumps({"session_id": CODEX_ROOT, "thread_id": thread, "request_kind": "turn", **turn})
    return {"session-id": CODEX_ROOT, "thread-id": thread, "x-codex-turn-metadata": metadata}


CODEX = codex(CODEX_ROOT)
CODEX_SUBAGENT = {
    **codex(CODEX_CHILD, parent_thread_id=CODEX_ROOT),
    "x-codex-parent-thread-id": CODEX_ROOT,
    "x-openai-subagent": "collab_spawn",
}
COMPACTION = {"trigger": "auto", "reason": "context_limit"}


@pytest.fixture
def server_url(live_store) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(ModelCallCapture(ScriptedModelServer()), log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/ng-rollout/1-0"
        server.should_exit = True
        thread.join(10)


def captured(live_store) -> Any:
    live_store.awaited_records("1-0")
    [call] = [span for span in live_store.spans("1-0") if span.name.startswith("chat")]
    return call


@pytest.mark.parametrize("mode", ["headers", "body"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_openai_client_tells_the_agent(live_store, server_url, mode, api):
    client = openai.OpenAI(base_url=f"{server_url}/v1", api_key="k", max_retries=0)
    with agent_context(SEARCHER):
        if api == "chat":
            kwargs = instrument_llm_request(QUESTION, mode=mode)
            client.chat.completions.create(**kwargs)
        else:
            kwargs = instrument_llm_request({"model": "scripted-1", "input": "Compare Oslo and Lima."}, mode=mode)
            client.responses.create(**kwargs)
    call = captured(live_store)
    told = agent_context_of_attributes(call.attributes)
    as_sessions = AgentContext("run-1:searcher", parent_session_id="run-1:planner")
    assert told == (SEARCHER if mode == "body" else as_sessions)
    assert (told.agent_id, told.parent_agent_id) == ("run-1:searcher", "run-1:planner")
    assert call.attributes["gym.dynamo.x_request_id"] == kwargs["extra_headers"]["x-request-id"]


def test_the_anthropic_client_tells_the_agent(live_store, server_url):
    client = anthropic.Anthropic(base_url=server_url, api_key="k", max_retries=0)
    kwargs = instrument_llm_request({**QUESTION, "max_tokens": 100, "system": "Be brief."}, SEARCHER.final())
    client.messages.create(**kwargs)
    assert agent_context_of_attributes(captured(live_store).attributes) == AgentContext(
        "run-1:searcher", parent_session_id="run-1:planner", session_final=True
    )


SAID = {
    "claude code": (CLAUDE, AgentContext(CLAUDE_SESSION)),
    "its subagent": (CLAUDE_SUBAGENT, AgentContext(CLAUDE_AGENT, parent_session_id=CLAUDE_SESSION)),
    "a nested one": (CLAUDE_NESTED, AgentContext("a1", parent_session_id=CLAUDE_AGENT)),
    "codex": (CODEX, AgentContext(CODEX_ROOT)),
    "its subagent's": (CODEX_SUBAGENT, AgentContext(CODEX_CHILD, parent_session_id=CODEX_ROOT)),
    "compaction": (codex(CODEX_ROOT, compaction=COMPACTION), AgentContext(CODEX_ROOT, compaction=COMPACTION)),
    "older codex": ({"session-id": "old"}, AgentContext("old")),
    "opencode": ({"x-session-id": "b", "x-parent-session-id": "a"}, AgentContext("b", parent_session_id="a")),
    "dynamo's first": ({**CLAUDE, **CODEX, "x-dynamo-session-id": " d "}, AgentContext("d")),
    "blank": ({**CLAUDE, "x-dynamo-session-id": " "}, AgentContext(CLAUDE_SESSION)),
    "no json": ({"thread-id": "t", "x-codex-turn-metadata": "{"}, AgentContext("t")),
    "nothing": ({"x-parent-session-id": "a"}, None),
}


@pytest.mark.parametrize("name", SAID)
def test_headers_of_harnesses_name_the_agent(live_store, name):
    headers, context = SAID[name]
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", REQUEST, headers))
    assert agent_context_of_attributes(captured(live_store).attributes) == context


def test_the_body_counts_before_headers_also_with_the_names_of_2026_05(live_store):
    said = {"workflow_type_id": "t", "workflow_id": "w", "program_id": "w:p", "parent_program_id": "w:r", "new": 1}
    body = {**REQUEST, "nvext": {"agent_context": said}}
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", body, CLAUDE))
    assert agent_context_of_attributes(captured(live_store).attributes) == AgentContext("w", "t", "w:p", "w:r")


@pytest.mark.parametrize("odd", [None, 3, [], {"agent_context": []}, {"agent_context": {"session_id": 3}}])
def test_an_odd_body_leaves_what_the_headers_say(live_store, odd):
    body = {**REQUEST, "nvext": odd}
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/1-0{CHAT_PATH}", body, CLAUDE))
    assert agent_context_of_attributes(captured(live_store).attributes) == AgentContext(CLAUDE_SESSION)


# ── without a rollout ────────────────────────────────────────────────────────────────────────────────────────────────


def filed(live_store, *requests: dict[str, str], path: str = CHAT_PATH, unassigned: bool = True) -> list[str]:
    otel_gym.configure(directory=live_store.directory, run_id="run-1", capture_unassigned=unassigned)
    app = ModelCallCapture(json_app(ANSWER))
    for headers in requests:
        asyncio.run(send_request(app, path, REQUEST, headers))
    return [] if live_store.is_empty() else sorted(live_store.read().rollout_ids())


@pytest.mark.parametrize(
    ("requests", "rollout_id"),
    [
        ((CLAUDE, CLAUDE_SUBAGENT, CLAUDE_NESTED), CLAUDE_SESSION),
        ((CODEX, CODEX_SUBAGENT), CODEX_ROOT),
        (({"x-session-id": "b", "x-parent-session-id": "a"}, {"x-session-id": "c", "x-parent-session-id": "b"}), "a"),
        (({"x-dynamo-session-id": "../a b"},), "a_b-2c2c791a"),
    ],
    ids=["claude code", "codex", "opencode", "escaped"],
)
def test_calls_of_a_harness_without_a_rollout_were_all_unassigned(live_store, requests, rollout_id):
    assert filed(live_store, *requests) == [rollout_id]
    assert len(live_store.records(rollout_id)) == len(requests)


def test_without_a_session_or_with_a_refused_id_they_stay_unassigned(live_store):
    assert filed(live_store, {}) == ["unassigned"]
    assert filed(live_store, CLAUDE, path=f"/ng-rollout/.bad{CHAT_PATH}") == ["unassigned"]


def test_they_are_not_stored_unless_asked_for(live_store):
    assert filed(live_store, CLAUDE, unassigned=False) == []


def test_a_rollout_that_is_named_counts(live_store):
    assert filed(live_store, CLAUDE, path=f"/ng-rollout/1-0{CHAT_PATH}") == ["1-0"]


def test_sessions_without_end_or_in_a_circle_are_forgotten(live_store, monkeypatch):
    monkeypatch.setattr(stand_ins, "MAX_SESSIONS", 2)
    roots = stand_ins.SessionRoots()

    def root(session: str, parent: str) -> str | None:
        return roots.rollout_id([(b"x-session-id", session.encode()), (b"X-Parent-Session-Id", parent.encode())])

    assert [root("b", "a"), root("c", "b"), root("d", "c")] == ["a", "a", "b"]
    assert root("x", "y") in "xy" and root("y", "x") in "xy"
