"""What agent code recorded through the API, its model calls captured, read back as a trajectory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.records.trajectory import Trajectory, concurrent_calls
from otel_gym.views.trajectory import trajectories

from ..capture.asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request
from ..conftest import LiveStore
from ..weather import ROLLOUT_ID, SUMMARY, run_weather


def the_trajectory(live_store: LiveStore, rollout_id: str) -> Trajectory:
    (rollout,) = live_store.rollouts()
    assert rollout.rollout_id == rollout_id
    (trajectory,) = trajectories(rollout)
    return trajectory


def test_the_running_example_is_whole_when_it_is_read_back(live_store: LiveStore):
    asyncio.run(run_weather(compacted=True))
    trajectory = the_trajectory(live_store, ROLLOUT_ID)
    items = trajectory.items()
    assert [(item["type"], item.get("agent_step_no")) for item in items] == [
        ("message", None),
        ("function_call", 1),
        ("function_call_output", 1),
        ("message", 2),
        ("context_boundary", None),
        ("message", None),
        ("function_call", 3),
        ("function_call_output", 3),
        ("message", 4),
    ]
    assert (trajectory.gaps, trajectory.complete, trajectory.agent_telemetry.source) == ([], True, "in_process")
    assert [generation.response_id for generation in trajectory.generations] == ["resp_1", "resp_2", "resp_3", "resp_4"]
    third = trajectory.generations[2].usage
    assert (third.input_tokens, third.input_tokens_details.cached_tokens) == (80, 64)
    paris, berlin = items[2], items[7]
    assert (paris["output"], paris["execution"]["extra"]) == ("21 C", {"station": "Paris"})
    assert berlin["execution"]["duration_ms"] >= 10
    assert berlin["execution"]["error"] == {
        "message": "the weather service of Berlin does not answer",
        "data": {"type": "ConnectionError"},
    }
    assert (items[4]["content"][0]["content"][0]["text"], items[4]["trigger"]) == (SUMMARY, "auto")


CALLS = [
    {"id": f"call_{number}", "type": "function", "function": {"name": "ls", "arguments": "{}"}} for number in (1, 2)
]


async def ask_for_two_tools(rollout: otel_gym.Rollout) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": CALLS}
    answer = {**ANSWER, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    server = ModelCallCapture(json_app(answer))
    await send_request(server, f"/ng-rollout/{rollout.rollout_id}{CHAT_PATH}", REQUEST, rollout.headers)


def test_tools_in_plain_threads_join_their_step_by_rollout_and_call_id(live_store: LiveStore):
    """R055: threads have no context."""

    def run(call_id: str) -> None:
        with otel_gym.execute_tool("ls", call_id) as tool:
            tool.record_result(call_id)

    with otel_gym.rollout(0, 0) as rollout, otel_gym.invoke_agent("a"), otel_gym.agent_step():
        asyncio.run(ask_for_two_tools(rollout))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, ["call_1", "call_2"]))
    (stored,) = live_store.rollouts()
    tools = [span for span in stored.spans if span.name == "execute_tool ls"]
    assert {span.parent_span_id for span in tools} == {None}
    trajectory = the_trajectory(live_store, "0-0")
    outputs = {item["call_id"]: item for item in trajectory.items() if item["type"] == "function_call_output"}
    assert {call_id: item["agent_step_no"] for call_id, item in outputs.items()} == {"call_1": 1, "call_2": 1}
    assert trajectory.gaps == []


def test_calls_that_ran_at_once_are_told_from_those_that_did_not(live_store: LiveStore):
    async def run(call_id: str) -> None:
        with otel_gym.execute_tool("ls", call_id) as tool:
            await asyncio.sleep(0.01)
            tool.record_result(call_id)

    async def main() -> None:
        async with otel_gym.rollout(0, 0) as rollout, otel_gym.invoke_agent("a"):
            with otel_gym.agent_step():
                await ask_for_two_tools(rollout)
                await asyncio.gather(run("call_1"), run("call_2"))
            with otel_gym.agent_step():
                await ask_for_two_tools(rollout)
                await run("call_1")
                await run("call_2")

    asyncio.run(main())
    assert [set(pair) for pair in concurrent_calls(the_trajectory(live_store, "0-0").items())] == [{"call_1", "call_2"}]


def test_a_subagent_of_a_tool_call_is_a_trajectory_of_its_own(live_store: LiveStore):
    async def main() -> None:
        async with otel_gym.rollout(0, 0) as rollout, otel_gym.invoke_agent("main"), otel_gym.agent_step():
            await ask_for_two_tools(rollout)
            with otel_gym.execute_tool("ls", "call_1") as tool:
                async with otel_gym.invoke_agent("explore", agent_id="explore-1"), otel_gym.agent_step():
                    await ask_for_two_tools(rollout)
                tool.record_result("done")

    asyncio.run(main())
    trajectory = the_trajectory(live_store, "0-0")
    (sub,) = trajectory.subagents
    assert (sub.agent_id, sub.spawned_by, len(sub.generations)) == ("explore-1", "call_1", 1)
    assert len(trajectory.generations) == 1
