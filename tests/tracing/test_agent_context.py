"""Which agent a model call is of: said once around it, and told to Dynamo in the form that it knows."""

from __future__ import annotations

import asyncio
import copy
import json
import multiprocessing
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_gym
from otel_gym import AgentContext, agent_context, child_context, current_agent_context, instrument_llm_request
from otel_gym.wire.agent_context import agent_context_of_request

ROOT = Path(__file__).parents[2]
PLANNER = AgentContext("run-1", "deep_research", "run-1:planner")
SEARCHER = PLANNER.child("run-1:searcher")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}


def test_dynamo_1_3_is_told_a_trajectory_as_a_session_below_its_parent():
    headers = instrument_llm_request(asked(), SEARCHER)["extra_headers"]
    assert UUID.fullmatch(headers.pop("x-request-id"))
    assert headers == {"x-dynamo-session-id": "run-1:searcher", "x-dynamo-parent-session-id": "run-1:planner"}


def test_the_first_trajectory_of_a_session_stands_below_the_session():
    assert PLANNER.headers() == {"x-dynamo-session-id": "run-1:planner", "x-dynamo-parent-session-id": "run-1"}


def test_a_session_of_its_own_has_no_parent_and_says_when_it_is_over():
    assert AgentContext("s", parent_session_id="s").headers() == {"x-dynamo-session-id": "s"}
    assert AgentContext("s").child("t").final().headers() == {
        "x-dynamo-session-id": "t",
        "x-dynamo-parent-session-id": "s",
        "x-dynamo-session-final": "true",
    }


def test_dynamo_1_2_is_told_in_the_body():
    kwargs = instrument_llm_request(asked(extra_body={"top_k": 3, "nvext": {"greed": True}}), SEARCHER, mode="body")
    assert kwargs["extra_body"] == {
        "top_k": 3,
        "nvext": {
            "greed": True,
            "agent_context": {
                "session_type_id": "deep_research",
                "session_id": "run-1",
                "trajectory_id": "run-1:searcher",
                "parent_trajectory_id": "run-1:planner",
            },
        },
    }
    assert list(kwargs["extra_headers"]) == ["x-request-id"]


def test_what_dynamo_1_2_would_answer_400_to_is_refused_here_by_name():
    with pytest.raises(ValueError, match="session_type_id, trajectory_id"):
        instrument_llm_request(asked(), AgentContext("s"), mode="body")


@pytest.mark.parametrize(
    "more", [{"system": "Be brief."}, {"stop_sequences": ["x"]}, {"thinking": {"type": "enabled"}}]
)
def test_a_body_for_anthropic_is_refused(more: dict[str, Any]):
    with pytest.raises(ValueError, match="headers"):
        instrument_llm_request(asked(**more), PLANNER, mode="body")
    with pytest.raises(ValueError, match="api='anthropic'"):
        instrument_llm_request(asked(), PLANNER, mode="body", api="anthropic")


def test_an_id_that_no_header_carries_is_refused_before_the_client_fails_on_it():
    for text in ("caf\u00e9", "a\nb"):
        with pytest.raises(ValueError, match="printable ASCII"):
            instrument_llm_request(asked(), AgentContext(text))


def test_the_callers_own_headers_and_context_stay():
    own = {"X-Request-ID": "mine", "Traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "X-Dynamo-Session-Id": "other"}
    assert instrument_llm_request(asked(extra_headers=own), SEARCHER)["extra_headers"] == own
    body = {"nvext": {"agent_context": {"session_id": "other"}}}
    assert instrument_llm_request(asked(extra_body=body), SEARCHER, mode="body")["extra_body"] == body


json_objects = st.dictionaries(
    st.text(max_size=3), st.recursive(st.text(max_size=3), st.lists, max_leaves=4), max_size=3
)


@given(
    headers=st.none() | st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=3), max_size=3),
    body=st.none() | json_objects.map(lambda found: {**found, "nvext": dict(found)}),
    mode=st.sampled_from(["headers", "body"]),
)
def test_what_is_given_is_never_changed(headers: Any, body: Any, mode: Any):
    given_ = asked(extra_headers=headers, extra_body=body)
    before = copy.deepcopy(given_)
    made = instrument_llm_request(given_, SEARCHER, mode)
    assert given_ == before
    made["extra_headers"]["new"] = ""
    if mode == "body":
        made["extra_body"]["nvext"]["new"] = ""
    assert given_ == before


ids = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@given(session=ids, agent=ids, parent=st.none() | ids, final=st.booleans())
def test_what_is_sent_is_what_capture_reads(session: str, agent: str, parent: str | None, final: bool):
    context = AgentContext(session, "t", agent, parent, True if final else None)
    body = instrument_llm_request(asked(), context, mode="body")
    assert agent_context_of_request({}, body["extra_body"]) == context
    headers = instrument_llm_request(asked(), context)["extra_headers"]
    told = agent_context_of_request({name: [text] for name, text in headers.items()}, asked())
    assert told is not None
    assert (told.agent_id, told.is_final) == (agent, True if final else None)
    assert told.parent_agent_id in (context.parent_agent_id, session)


def test_the_current_span_is_the_parent_of_the_request(live_store):
    assert "traceparent" not in instrument_llm_request(asked(), PLANNER)["extra_headers"]
    with otel_gym.rollout(1, 0), otel_gym.agent_step() as step:
        first, second = (instrument_llm_request(asked())["extra_headers"] for _ in range(2))
        context = step.span.get_span_context()
    assert first["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    assert first["x-request-id"] != second["x-request-id"]


# ── where it is current ──────────────────────────────────────────────────────────────────────────────────────────────


def session() -> str | None:
    told = instrument_llm_request(asked())["extra_headers"]
    return told.get("x-dynamo-session-id")


def test_it_is_current_within_with_and_nests():
    assert (current_agent_context(), session()) == (None, None)
    with agent_context(session_id="s", session_type_id="t", trajectory_id="s:a") as outer:
        with agent_context(child_context("s:b")) as inner:
            assert (inner.parent_trajectory_id, inner.session_id, session()) == ("s:a", "s", "s:b")
        assert (current_agent_context(), session()) == (outer, "s:a")
    assert current_agent_context() is None
    assert child_context("alone") == AgentContext("alone")


def test_tasks_threads_and_pools_have_it():
    async def in_task(name: str) -> list[str | None]:
        with agent_context(session_id=name):
            await asyncio.sleep(0)
            return [session(), await asyncio.to_thread(session)]

    async def run() -> list[list[str | None]]:
        return await asyncio.gather(*(in_task(name) for name in "ab"))

    assert asyncio.run(run()) == [["a", "a"], ["b", "b"]]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with agent_context(PLANNER):
            function = otel_gym.in_context(session)
        assert (pool.submit(function).result(), pool.submit(session).result()) == ("run-1:planner", None)


def test_other_processes_have_it_with_tracing_and_without(tmp_path):
    program = (
        "import os, otel_gym\n"
        "with otel_gym.attached(os.environ):\n"
        "    print(otel_gym.current_agent_context())\n"
        "print(otel_gym.current_agent_context())"
    )
    with agent_context(SEARCHER.final()) as context:
        texts = otel_gym.carrier()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(otel_gym.in_context(current_agent_context)) == context
    for switch in ("0", "1"):
        environment = {**os.environ, "OTEL_GYM": switch, "OTEL_GYM_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        environment |= {name.upper(): text for name, text in texts.items()}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, timeout=60, capture_output=True, text=True
        )
        assert ran.stdout.splitlines() == [repr(context), "None"]


def test_a_carrier_with_a_context_of_another_kind_is_no_error():
    for text in ("", "[]", "{", '{"session_id": 3}', json.dumps({"other": "x"})):
        with otel_gym.attached({"gym_agent_context": text}):
            assert current_agent_context() is None


def test_spans_within_it_carry_it(live_store):
    with agent_context(PLANNER), otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"), agent_context(SEARCHER):
        otel_gym.execute_tool("t", "c")(int)()
    with otel_gym.rollout(2, 0):
        pass
    told = {span.name: span.attributes.get("gym.agent_context.trajectory_id") for span in live_store.spans("1-0")}
    assert told == {
        "rollout": "run-1:planner",
        "invoke_agent a": "run-1:planner",
        "execute_tool t": "run-1:searcher",
    }
    assert not [name for span in live_store.spans("2-0") for name in span.attributes if "agent_context" in name]


def test_a_sessions_tools_were_in_another_rollout_than_its_calls(live_store):
    with agent_context(PLANNER), otel_gym.execute_tool("search", "call_1"):
        pass
    with agent_context(AgentContext("child", parent_session_id="run-1")), otel_gym.execute_tool("search", "call_2"):
        pass
    with otel_gym.rollout(1, 0), agent_context(PLANNER), otel_gym.execute_tool("search", "call_3"):
        pass
    found = {rollout.rollout_id: len(rollout.spans) for rollout in live_store.rollouts()}
    assert found == {"1-0": 2, "run-1": 2}
