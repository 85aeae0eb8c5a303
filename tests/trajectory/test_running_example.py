"""Eight questions that a trajectory must answer, asked of one that was built and of one that was read from spans."""

from __future__ import annotations

import json

import pytest

from otel_gym.records.model_input import agent_step_slices, reconstruct_model_input, turn_slices
from otel_gym.records.trajectory import Trajectory, concurrent_calls
from otel_gym.records.trajectory_builder import TrajectoryBuilder
from tests.trajectory.running_example import BASE_INPUT, BERLIN, PARIS, built, from_spans, iso


@pytest.fixture(params=[built, from_spans], ids=["built", "from spans"])
def trajectory(request: pytest.FixtureRequest) -> Trajectory:
    made: Trajectory = request.param()
    return made


def test_both_ways_make_the_same_output() -> None:
    assert from_spans().items() == built().items()


def test_where_step_2_ends_and_turn_2_begins(trajectory: Trajectory) -> None:
    output = trajectory.items()
    second_turn = turn_slices(output)[1]
    assert agent_step_slices(output)[2].stop == second_turn.start
    assert output[second_turn.start]["content"] == [{"type": "input_text", "text": BERLIN}]
    assert {item.get("agent_step_no") for item in output[second_turn]} == {None, 3, 4}


def test_what_step_3_cost_with_its_cache_hits(trajectory: Trajectory) -> None:
    usage = trajectory.generations[2].usage
    assert usage.input_tokens == 172
    assert usage.input_tokens_details.cached_tokens == 160
    assert usage.output_tokens == 21
    assert usage.output_tokens_details.reasoning_tokens is None
    assert trajectory.usage.input_tokens == 150 + 160 + 172 + 199


def test_the_exact_context_of_step_3(trajectory: Trajectory) -> None:
    context = reconstruct_model_input(trajectory.items(), 3, BASE_INPUT)
    assert context == [
        *BASE_INPUT,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PARIS}]},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "I have to ask."}],
            "encrypted_content": "signed",
        },
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "21 C"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "21 degrees."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": BERLIN}]},
    ]


def test_how_long_the_berlin_tool_took_and_that_it_failed(trajectory: Trajectory) -> None:
    [execution] = [
        item["execution"]
        for item in trajectory.items()
        if item["type"] == "function_call_output" and item["call_id"] == "c2"
    ]
    assert execution["duration_ms"] == 2000.0
    assert (execution["started_at"], execution["completed_at"]) == (iso(11), iso(13))
    assert execution["error"] == {"message": "lookup failed", "data": {"code": 404}}


def test_which_provider_response_step_3_was(trajectory: Trajectory) -> None:
    third = trajectory.generations[2]
    assert (third.response_id, third.request_id, third.model, third.ended_at) == ("r3", "q3", "m", iso(11))


def test_what_was_dropped(trajectory: Trajectory) -> None:
    assert trajectory.agent_telemetry.dropped_records == 0
    builder = TrajectoryBuilder("weather")
    builder.count_dropped(2)
    dropped = builder.build()
    assert dropped.agent_telemetry.dropped_records == 2
    assert not dropped.complete


def test_whether_two_calls_ran_concurrently(trajectory: Trajectory) -> None:
    assert concurrent_calls(trajectory.items()) == []
    builder = TrajectoryBuilder()
    builder.start_agent_step()
    builder.add_tool_call("a", "sleep")
    builder.add_tool_call("b", "sleep")
    builder.add_tool_result("b", "", started_at=iso(1), completed_at=iso(2))
    builder.add_tool_result("a", "", started_at=iso(1), completed_at=iso(3))
    assert concurrent_calls(builder.build().items()) == [("b", "a")]


def test_what_step_3_saw_after_a_compaction() -> None:
    builder = TrajectoryBuilder("weather")
    builder.add_user_message(PARIS)
    builder.start_agent_step()
    builder.add_output_text("21 degrees.")
    builder.start_agent_step()
    builder.add_output_text("and dry.")
    builder.add_context_boundary("It was about Paris.", trigger="auto", tokens_before=900)
    builder.add_user_message(BERLIN)
    builder.start_agent_step()
    output = builder.build().items()
    texts = [item["content"][0]["text"] for item in reconstruct_model_input(output, 3, BASE_INPUT)]
    assert texts == ["Be brief.", "It was about Paris.", BERLIN]


def test_a_trajectory_goes_through_json_unchanged(trajectory: Trajectory) -> None:
    again = Trajectory.model_validate(json.loads(trajectory.model_dump_json()))
    assert again == trajectory
    assert again.items() == trajectory.items()


def test_a_plain_responses_payload_stays_plain() -> None:
    plain = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    ]
    assert Trajectory.model_validate({"output": plain}).items() == plain


def test_a_message_without_a_type_is_a_message() -> None:
    [item] = Trajectory.model_validate({"output": [{"role": "assistant", "content": "42"}]}).items()
    assert item == {"type": "message", "role": "assistant", "content": "42"}


def test_there_is_no_step_5(trajectory: Trajectory) -> None:
    assert len(reconstruct_model_input(trajectory.items(), 5)) == 9  # what a fifth would be sent
    with pytest.raises(ValueError, match="steps 1 to 4"):
        reconstruct_model_input(trajectory.items(), 6)


def test_a_tool_cannot_end_before_it_starts() -> None:
    builder = TrajectoryBuilder()
    builder.start_agent_step()
    builder.add_tool_call("a", "sleep")
    with pytest.raises(ValueError, match="cannot have taken"):
        builder.add_tool_result("a", "", started_at=iso(2), completed_at=iso(1))


def test_the_result_of_a_call_of_an_earlier_step_stands_in_that_step() -> None:
    builder = TrajectoryBuilder()
    builder.start_agent_step()
    builder.add_tool_call("slow", "build")
    builder.start_agent_step()
    builder.add_output_text("meanwhile")
    builder.add_tool_result("slow", "done")
    output = builder.build().items()
    assert [(item["type"], item["agent_step_no"]) for item in output] == [
        ("function_call", 1),
        ("function_call_output", 1),
        ("message", 2),
    ]


def test_a_call_whose_result_never_came_is_kept() -> None:
    builder = TrajectoryBuilder()
    builder.start_agent_step()
    builder.add_tool_call("c", "sleep", {"seconds": 100})
    assert [item["type"] for item in builder.build().items()] == ["function_call"]


def test_a_generation_that_was_killed_has_no_items_and_is_kept() -> None:
    builder = TrajectoryBuilder()
    builder.start_agent_step(model="m")
    trajectory = builder.build()
    assert (trajectory.output, len(trajectory.generations)) == ([], 1)


def test_unknown_tokens_are_no_zeros() -> None:
    builder = TrajectoryBuilder()
    builder.start_agent_step(provider_usage={"input_tokens": 5, "output_tokens": 1})
    usage = builder.build().usage
    assert usage.input_tokens_details.cached_tokens is None
    assert usage.output_tokens_details.reasoning_tokens is None
