"""What a trace shows of a rollout, before any format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.export import processes
from otel_gym.views.perfetto.lanes import Lanes
from otel_gym.views.perfetto.shapes import Counter, Instant, Process, Slice, Track
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.spans import MS, START, Spans, everything


def process_of(rollout: RolloutSpans, **shown: Any) -> Process:
    [process] = processes([rollout], Shown(**shown))
    return process


def track(tracks: list[Track], name: str) -> Track:
    return next(each for each in tracks if each.name == name)


def all_of(tracks: list[Track]) -> Iterator[Slice | Instant]:
    for each in tracks:
        waiting = [one for lane in each.lanes for one in lane]
        while waiting:
            one = waiting.pop(0)
            yield one
            waiting += one.children if isinstance(one, Slice) else []
        yield from all_of(each.tracks)


def counter(tracks: list[Track], name: str) -> Counter:
    return next(one for each in tracks for one in each.counters if one.name == name)


def arrows(process: Process) -> list[tuple[str, str]]:
    slices = [one for one in all_of(process.tracks) if isinstance(one, Slice)]
    starts = {flow: one for one in slices for flow in one.flows_out}
    return sorted((_name(starts[flow]), _name(one)) for one in slices for flow in one.flows_in)


def _name(made: Slice) -> str:
    return f"{made.name} {made.args.get('gen_ai.tool.call.id') or round((made.start_ns - START) / MS)}"


def test_a_process_says_rollout_reward_and_status() -> None:
    assert process_of(everything()).name == "rollout 3-1 reward=0.5 ok"
    failed = Spans()
    failed.rollout().status = 2
    assert process_of(failed.spans()).name == "rollout 3-1 reward=0.5 error"
    killed = Spans()
    del killed.rollout(None).attributes["gym.reward"]
    assert process_of(killed.spans()).name == "rollout 3-1 unfinished"


def test_of_several_runs_those_behind_the_first_are_named() -> None:
    first, second = Spans("0-0"), Spans("0-0", run_id="run-2")
    first.rollout(), second.rollout()
    names = [each.name for each in processes([first.spans(), second.spans()], Shown())]
    assert names == ["rollout 0-0 reward=0.5 ok", "rollout 0-0 reward=0.5 ok run=run-2"]


def test_tracks_are_agent_calls_tools_and_what_is_left_then_counters_and_subagents() -> None:
    tracks = process_of(everything()).tracks
    assert [each.name for each in tracks] == [
        "agent",
        "model calls",
        "tools",
        "other spans",
        "context",
        "subagent explorer e1",
        "rollout",
    ]
    assert [each.name for each in track(tracks, "subagent explorer e1").tracks] == ["agent", "model calls", "context"]


def test_http_servers_are_shown_on_request() -> None:
    def names(**shown: Any) -> list[str]:
        return [one.name for one in all_of(process_of(everything(), **shown).tracks)]

    assert "POST /v1/messages" not in names()
    assert "POST /v1/messages" in names(http=True)


def test_no_span_is_missing() -> None:
    rollout = everything()
    shown = [one for one in all_of(process_of(rollout, http=True).tracks) if "span_id" in one.args]
    assert sorted(one.args["span_id"] for one in shown) == sorted(span.span_id for span in rollout.spans)


def test_turns_and_steps_nest_as_the_tree_does() -> None:
    [root] = track(process_of(everything()).tracks, "agent").lanes[0]
    assert isinstance(root, Slice)
    [turn] = root.children
    assert isinstance(turn, Slice)
    assert [root.name, turn.name, *(step.name for step in turn.children)] == [
        "rollout",
        "invoke_agent main",
        "agent_step",
        "agent_step",
    ]


def test_parallel_tools_have_lanes_of_their_own() -> None:
    lanes = track(process_of(everything()).tracks, "tools").lanes
    assert [[one.args.get("gen_ai.tool.call.id") for one in lane] for lane in lanes] == [["a", "c"], ["b"], ["d"]]


def test_a_tool_that_never_ended_runs_to_the_end_of_the_rollout_and_is_marked() -> None:
    tools = track(process_of(everything()).tracks, "tools").lanes
    unfinished = next(one for lane in tools for one in lane if one.args.get("unfinished"))
    assert isinstance(unfinished, Slice)
    assert unfinished.args["gen_ai.tool.call.id"] == "c"
    assert unfinished.end_ns == START + 1000 * MS


def test_a_span_of_unknown_time_is_a_marked_instant() -> None:
    [instant] = [one for one in all_of(process_of(everything()).tracks) if one.args.get("time_known") is False]
    assert isinstance(instant, Instant)
    assert instant.args["gen_ai.tool.call.id"] == "d"


def test_a_streamed_call_has_its_stages_and_its_first_token() -> None:
    calls = [one for lane in track(process_of(everything()).tracks, "model calls").lanes for one in lane]
    [streamed] = [call for call in calls if isinstance(call, Slice) and call.children]
    first = START + 80 * MS + 40 * MS + 1
    queue, token, decode = streamed.children
    assert isinstance(queue, Slice)
    assert isinstance(token, Instant)
    assert isinstance(decode, Slice)
    assert (queue.name, queue.start_ns, queue.end_ns) == ("queue + prefill", streamed.start_ns, first)
    assert (token.name, token.time_ns) == ("first token", first)
    assert (decode.name, decode.start_ns, decode.end_ns) == ("decode", first, streamed.end_ns)


def test_arrows_lead_from_call_to_tool_to_next_call_to_subagent_and_to_retry() -> None:
    assert arrows(process_of(everything())) == [
        ("chat toy-1 2", "chat toy-1 80"),
        ("chat toy-1 500", "execute_tool bash c"),
        ("chat toy-1 80", "execute_tool bash a"),
        ("chat toy-1 80", "execute_tool bash b"),
        ("execute_tool bash a", "chat toy-1 500"),
        ("execute_tool bash b", "chat toy-1 500"),
        ("execute_tool bash b", "invoke_agent explorer 215"),
    ]


def test_a_call_that_failed_is_no_source_of_a_call_that_asks_something_else() -> None:
    made = Spans()
    root = made.rollout()
    made.chat(root, 1, 2, failed=True, gym__request__body='{"a":1}')
    made.chat(root, 3, 4, gym__request__body='{"b":1}')
    assert arrows(process_of(made.spans())) == []


def test_counters_hold_what_each_call_was_sent_and_made() -> None:
    tracks = process_of(everything()).tracks
    end = (START + 1000 * MS, 0)
    assert counter(tracks, "context tokens").points == [(START + 80 * MS, 1000), (START + 500 * MS, 1200), end]
    assert counter(tracks, "cached tokens").points == [(START + 80 * MS, 600), (START + 500 * MS, 1000), end]
    # The subagent's tokens are of its own context, and of the rollout's sum.
    assert counter(tracks, "cumulative tokens").points == [
        (START + round(200.000001 * MS), 1080),
        (START + 300 * MS, 1095),
        (START + 700 * MS, 2295),
        end,
    ]
    rate = counter(tracks, "output tokens/s").points
    assert rate[0] == (START + 120 * MS + 1, 1000.0)
    assert rate[-1][1] == 0
    assert max(value for _, value in counter(tracks, "concurrent calls").points) == 1


def test_what_ends_with_the_rollout_is_seen_before_its_counter_falls() -> None:
    made = Spans()
    made.chat(None, 1, 11, gen_ai__usage__input_tokens=100)
    points = counter(process_of(made.spans()).tracks, "cumulative tokens").points
    assert points == [(START + 11 * MS, 100), (START + 11 * MS + 1, 0)]


def test_a_call_that_its_client_traced_as_well_counts_once() -> None:
    made = Spans()
    root = made.rollout()
    outer = made.chat(root, 1, 11, gen_ai__usage__input_tokens=100)
    del outer.attributes["gym.model_call.id"]
    made.chat(outer, 2, 10, gen_ai__usage__input_tokens=100)
    tracks = process_of(made.spans()).tracks
    assert counter(tracks, "cumulative tokens").points == [(START + 10 * MS, 100), (START + 1000 * MS, 0)]
    assert [value for _, value in counter(tracks, "concurrent calls").points] == [1, 0]


@pytest.mark.parametrize(("mode", "shown"), [("none", 0), ("ids", 1), ("full", 2)])
def test_arguments_are_none_ids_or_all(mode: str, shown: int) -> None:
    made = Spans()
    made.chat(made.rollout(), 1, 2, gen_ai__usage__input_tokens=3, gym__request__body="x" * 5000)
    [call] = [one for one in all_of(process_of(made.spans(), args=mode).tracks) if one.name == "chat toy-1"]
    assert ("gen_ai.usage.input_tokens" in call.args) == (shown >= 1)
    assert ("span_id" in call.args) == (shown >= 1)
    assert ("gym.request.body" in call.args) == (shown >= 2)


def test_a_long_prompt_is_cut_and_says_its_length() -> None:
    made = Spans()
    made.chat(made.rollout(), 1, 2, gym__request__body="x" * 5000)
    [call] = [one for one in all_of(process_of(made.spans()).tracks) if one.name == "chat toy-1"]
    assert call.args["gym.request.body"] == "x" * 256 + "… (5,000 characters)"


def test_what_failed_says_so() -> None:
    made = Spans()
    made.chat(made.rollout(), 1, 2, failed=True).status_message = "overloaded"
    [call] = [one for one in all_of(process_of(made.spans()).tracks) if one.name == "chat toy-1"]
    assert isinstance(call, Slice)
    assert call.is_error
    assert (call.args["status"], call.args["status_message"]) == ("error", "overloaded")


def test_a_span_whose_parents_form_a_ring_is_shown() -> None:
    made = Spans()
    one = made.add("a", None, 1, 3)
    other = made.add("b", one, 1, 2)
    one.parent_span_id = other.span_id
    assert {each.name for each in all_of(process_of(made.spans()).tracks)} == {"a", "b"}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(-1, 5)), max_size=40).map(
        lambda told: sorted(told, key=lambda times: (times[0], -times[1]))
    )
)
def test_in_a_lane_nothing_overlaps_but_what_is_nested_and_nothing_is_lost(told: list[tuple[int, int, int]]) -> None:
    lanes, made = Lanes(), []
    for start, length, parent in told:
        new = Slice("s", start, start + length, "c", {})
        lanes.add(new, made[parent] if 0 <= parent < len(made) else None)
        made.append(new)
    assert sum(_checked(lane, None) for lane in lanes.lanes) == len(told)


def _checked(slices: list[Any], within: Slice | None) -> int:
    """How many there are, those below them too."""
    number, before = 0, None
    for each in slices:
        assert before is None or before.closes_ns <= each.start_ns
        assert within is None or (within.start_ns <= each.start_ns and each.end_ns <= within.end_ns)
        number += 1 + _checked(each.children, each)
        before = each
    return number


def test_agents_that_are_each_others_parents_are_shown() -> None:
    made = Spans()
    root = made.rollout()
    one = made.agent(root, 1, 9, "one")
    other = made.agent(one, 2, 8, "other")
    one.parent_span_id = other.span_id
    assert {each.name for each in all_of(process_of(made.spans()).tracks)} >= {"invoke_agent one", "invoke_agent other"}


def test_two_subagents_of_one_name_are_two_groups() -> None:
    made = Spans()
    root = made.rollout()
    turn = made.agent(root, 1, 99)
    for call_id in ("a", "b"):
        tool = made.tool(turn, 2, 50, call_id)
        made.chat(made.agent(tool, 3, 40, "worker"), 4, 30, gen_ai__usage__input_tokens=100)
    groups = [each.name for each in process_of(made.spans()).tracks if each.tracks]
    assert groups == ["subagent worker", "subagent worker b"]


def test_an_agent_whose_name_is_its_id_was_named_twice() -> None:
    made = Spans()
    turn = made.agent(made.rollout(), 1, 99, "planner")
    child = made.agent(turn, 2, 50, "run-1:reader")
    child.attributes["gen_ai.agent.id"] = "run-1:reader"
    made.chat(child, 4, 30)
    groups = [each.name for each in process_of(made.spans()).tracks if each.tracks]
    assert groups == ["subagent run-1:reader"]


def test_structured_prompts_are_cut_at_every_depth_and_long_lists_say_their_length() -> None:
    made = Spans()
    messages = [{"role": "user", "parts": [{"content": "x" * 5000}]} for _ in range(40)]
    made.chat(made.rollout(), 1, 2, gen_ai__input__messages=messages)
    [call] = [one for one in all_of(process_of(made.spans()).tracks) if one.name == "chat toy-1"]
    shown = call.args["gen_ai.input.messages"]
    assert shown[0]["parts"][0]["content"].endswith("… (5,000 characters)")
    assert (len(shown), shown[-1]) == (17, "… (40 items)")


def test_twelve_calls_at_once_lead_to_their_tools() -> None:
    made = Spans()
    root = made.rollout()
    for number in range(12):
        made.chat(root, 1 + number / 100, 20, gym__output__items=f'[{{"call_id":"t{number}"}}]')
    for number in range(12):
        made.tool(root, 30, 40, f"t{number}")
    assert len(arrows(process_of(made.spans()))) == 12


def test_a_retry_is_found_with_another_call_between() -> None:
    made = Spans()
    root = made.rollout()
    made.chat(root, 1, 2, failed=True, gym__request__body='{"a":1}')
    made.chat(root, 3, 4, gym__request__body='{"b":1}')
    made.chat(root, 5, 6, gym__request__body='{"a":1}')
    assert arrows(process_of(made.spans())) == [("chat toy-1 1", "chat toy-1 5")]


def test_calls_and_tools_say_agent_and_step() -> None:
    tools = track(process_of(everything()).tracks, "tools").lanes
    assert {(one.args["agent"], one.args["step"]) for lane in tools for one in lane if "step" in one.args} == {
        ("main", 1),
        ("main", 2),
    }


def test_a_clients_own_span_of_a_captured_call_has_a_category_of_its_own() -> None:
    made = Spans()
    outer = made.chat(made.rollout(), 1, 11, gen_ai__usage__input_tokens=100)
    del outer.attributes["gym.model_call.id"]
    made.chat(outer, 2, 10)
    [lane] = track(process_of(made.spans()).tracks, "model calls").lanes
    assert isinstance(lane[0], Slice)
    assert [one.category for one in (lane[0], *lane[0].children)] == ["client calls", "model calls"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/seed_session", "http://gym:1/weather/verify?x=1"])
def test_requests_to_an_environment_have_a_track(url: str) -> None:
    made = Spans()
    root = made.rollout()
    made.add("POST", root, 1, 2, {"url.full": url}, kind=3)
    made.add("POST", root, 3, 4, {"url.full": "http://127.0.0.1:8000/weather"}, kind=3)
    tracks = process_of(made.spans()).tracks
    assert [len(track(tracks, name).lanes[0]) for name in ("environment", "other spans")] == [1, 1]


def test_an_operation_that_is_no_text_costs_no_rollout() -> None:
    made = Spans()
    made.add("odd", made.rollout(), 1, 2, {"gen_ai.operation.name": ["chat"]})
    assert "odd" in {each.name for each in all_of(process_of(made.spans()).tracks)}
