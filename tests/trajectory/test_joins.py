"""What joined the wrong way in trajectories: results, retries, contexts, tools without the id of their call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.records.model_input import reconstruct_model_input
from otel_gym.records.trajectory import Trajectory
from otel_gym.views.atif import atif_of
from otel_gym.views.summary import summarize_rollout
from otel_gym.views.trajectory import trajectories

from ..capture.asgi import json_app, send_request

CHAT = "/ng-rollout/0-0/v1/chat/completions"
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def answer(calls: int = 0, text: str | None = None) -> dict[str, Any]:
    """A chat answer whose call ids are those of every other one, as some servers have it."""
    function = {"name": "f", "arguments": "{}"}
    tool_calls = [{"id": f"call_{number}", "type": "function", "function": function} for number in range(calls)]
    message = {"role": "assistant", "content": text, **({"tool_calls": tool_calls} if calls else {})}
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}


def ask(messages: list[dict[str, Any]], answered: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    app = ModelCallCapture(json_app(answered))
    asyncio.run(send_request(app, CHAT, {"model": "m", "messages": messages}, headers))


def loop(steps: int, *, system: bool = False) -> None:
    """An agent whose every answer calls ``call_0``; its result says of which step it is."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number in range(steps):
        first = [{"role": "system", "content": f"it is {number} o'clock"}] if system else []
        answered = answer(1)
        ask([*first, *history], answered)
        history += [
            answered["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "call_0", "content": f"result {number}"},
        ]
    ask([*first, *history] if system else history, answer(text="done"))


def only(live_store: Any) -> Trajectory:
    [rollout] = live_store.rollouts()
    [trajectory] = trajectories(rollout)
    return trajectory


def outputs(trajectory: Trajectory) -> list[tuple[int, Any]]:
    return [(item["agent_step_no"], item["output"]) for item in trajectory.items() if "output" in item]


@pytest.mark.parametrize("system", [False, True], ids=["alone", "with a system prompt that changes"])
def test_results_of_calls_whose_id_comes_again_stood_at_the_wrong_step(live_store, system: bool) -> None:
    loop(3, system=system)
    trajectory = only(live_store)
    assert outputs(trajectory) == [(1, "result 0"), (2, "result 1"), (3, "result 2")]
    assert not any(item["type"] == "context_boundary" for item in trajectory.items())


def test_a_call_that_was_killed_got_the_result_of_an_earlier_one(live_store) -> None:
    history = [{"role": "user", "content": "go"}, answer(1)["choices"][0]["message"]]
    history.append({"role": "tool", "tool_call_id": "call_0", "content": "first"})
    ask(history[:1], answer(1))
    ask(history, answer(1))
    assert outputs(only(live_store)) == [(1, "first")]


def test_an_answer_that_the_client_asked_for_again_was_counted_twice(live_store) -> None:
    messages = [{"role": "user", "content": "go"}]
    ask(messages, answer(text="late"), {"x-stainless-retry-count": "0"})
    ask(messages, answer(text="in time"), {"x-stainless-retry-count": "1"})
    trajectory = only(live_store)
    [rollout] = live_store.rollouts()
    summary = summarize_rollout(rollout)
    assert (trajectory.usage.input_tokens, trajectory.usage.output_tokens) == (summary.tokens_in, summary.tokens_out)
    assert len(trajectory.generations) == 1


def test_a_request_that_goes_on_from_a_kept_answer_was_called_a_compaction(live_store) -> None:
    def ask_responses(items: Any, previous: str | None, answered: list[dict[str, Any]], number: int) -> None:
        request = {"model": "m", "input": items, **({"previous_response_id": previous} if previous else {})}
        response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": answered}
        app = ModelCallCapture(json_app(response))
        asyncio.run(send_request(app, "/ng-rollout/0-0/v1/responses", request))

    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    ask_responses("go", None, [call], 1)
    result = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    ask_responses([result], "resp_1", [{"type": "message", "role": "assistant", "content": []}], 2)
    trajectory = only(live_store)
    types = [item["type"] for item in trajectory.items()]
    assert types == ["message", "function_call", "function_call_output", "message"]
    assert len(reconstruct_model_input(trajectory.items(), 2)) == 3


def test_another_conversation_is_a_change_of_context_and_no_compaction(live_store) -> None:
    ask([{"role": "user", "content": "one"}], answer(text="1"))
    ask([{"role": "user", "content": "two"}], answer(text="2"))
    [boundary] = [item for item in only(live_store).items() if item["type"] == "context_boundary"]
    assert boundary["kind"] == "context_change"


SYSTEM = {"role": "system", "content": "Be brief."}


def test_the_system_prompt_of_captured_calls_stood_in_no_step(live_store) -> None:
    for steps in (["one"], ["one", "two"]):
        ask([SYSTEM, *({"role": "user", "content": text} for text in steps)], answer(text="yes"))
    trajectory = only(live_store)
    said = [(item["role"], item["content"][0]["text"]) for item in trajectory.items()]
    assert said == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", "yes"),
        ("user", "two"),
        ("assistant", "yes"),
    ]
    document = atif_of(trajectory, rollout_id="0-0").document
    assert [step.source for step in document.steps] == ["system", "user", "agent", "user", "agent"]
    assert document.steps[0].message == "Be brief."


@pytest.mark.parametrize("prompt", ["Be brief.", "Be wordy."])
def test_a_context_made_anew_keeps_the_system_prompt_that_its_request_has(live_store, prompt: str) -> None:
    ask([SYSTEM, {"role": "user", "content": "one"}], answer(text="1"))
    ask([{**SYSTEM, "content": prompt}, {"role": "user", "content": "two"}], answer(text="2"))
    sent = reconstruct_model_input(only(live_store).items(), 2)
    assert [(item["role"], item["content"][0]["text"]) for item in sent] == [("system", prompt), ("user", "two")]


@otel_gym.execute_tool()
def get_time(city: str) -> str:
    return f"noon in {city}"


def test_two_runs_of_a_tool_without_call_ids_became_one_call(live_store) -> None:
    with otel_gym.rollout(0, 0), otel_gym.invoke_agent("a"), otel_gym.agent_step():
        get_time("Oslo")
        get_time("Rome")
    trajectory = only(live_store)
    calls = {item["call_id"]: item["arguments"] for item in trajectory.items() if item["type"] == "function_call"}
    results = {item["call_id"]: item["output"] for item in trajectory.items() if "output" in item}
    assert sorted(calls.values()) == ['{"city":"Oslo"}', '{"city":"Rome"}']
    assert {calls[call_id]: output for call_id, output in results.items()} == {
        '{"city":"Oslo"}': "noon in Oslo",
        '{"city":"Rome"}': "noon in Rome",
    }
