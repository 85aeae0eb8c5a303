"""Calls of which only the context names the agent: each view puts those of one agent together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import otel_gym
from otel_gym import AgentContext, agent_context
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.cli.main import app
from otel_gym.records.trajectory import Trajectory
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.agent_tree import agents_of_contexts
from otel_gym.views.perfetto.export import processes
from otel_gym.views.perfetto.timeline import Shown
from otel_gym.views.trajectory import trajectories
from tests.capture.asgi import ANSWER, CHAT_PATH, json_app, send_request

PLANNER = AgentContext("s", "t", "s:planner")
SEARCHER = PLANNER.child("s:searcher")
READER = SEARCHER.child("s:reader")
FAMILY = (PLANNER, SEARCHER, READER, SEARCHER, PLANNER)
SIBLINGS = (AgentContext("a"), AgentContext("b"), AgentContext("a"))

Tree = dict[str | None, Any]


def capture(live_store: Any, contexts: Sequence[AgentContext | None], *, body: bool = False) -> RolloutSpans:
    middleware = ModelCallCapture(json_app(ANSWER))
    for number, context in enumerate(contexts):
        said = {"nvext": {"agent_context": context.as_mapping()}} if body and context is not None else {}
        request = {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}], **said}
        headers = {} if context is None or body else context.headers()
        asyncio.run(send_request(middleware, f"/ng-rollout/1-0{CHAT_PATH}", request, headers))
    [rollout] = live_store.rollouts()
    return rollout


def tree_of(found: Sequence[Trajectory]) -> Tree:
    return {each.agent_id: (len(each.generations), tree_of(each.subagents)) for each in found}


@pytest.mark.parametrize("body", [False, True], ids=["headers", "body"])
def test_a_trajectory_an_agent_nested_by_parent(live_store, body):
    found = trajectories(capture(live_store, FAMILY, body=body))
    assert tree_of(found) == {"s:planner": (2, {"s:searcher": (2, {"s:reader": (1, {})})})}


def test_agents_without_a_parent_stand_side_by_side_and_calls_without_context_apart(live_store):
    found = trajectories(capture(live_store, (*SIBLINGS, None)))
    assert tree_of(found) == {"a": (2, {}), "b": (1, {}), None: (1, {})}


def test_a_subagent_whose_call_came_first_is_still_below_its_parent(live_store):
    found = trajectories(capture(live_store, (READER, SEARCHER, PLANNER)))
    assert tree_of(found) == {"s:planner": (1, {"s:searcher": (1, {"s:reader": (1, {})})})}


def tracks_of(rollout: RolloutSpans) -> dict[str, int]:
    """The calls in each group of tracks."""
    [process] = processes([rollout], Shown())
    found = {track.name: track.tracks for track in process.tracks}
    found["main"] = [track for track in process.tracks if not track.tracks]
    return {
        name: sum(len(lane) for track in tracks if track.name == "model calls" for lane in track.lanes)
        for name, tracks in found.items()
        if tracks
    }


def test_perfetto_has_a_group_an_agent(live_store):
    counted = tracks_of(capture(live_store, FAMILY))
    assert {name: calls for name, calls in counted.items() if calls} == {
        "main": 2,
        "subagent s:searcher": 2,
        "subagent s:reader": 1,
    }


def test_perfetto_names_agents_of_which_none_is_the_first(live_store):
    counted = tracks_of(capture(live_store, SIBLINGS))
    assert {name: calls for name, calls in counted.items() if calls} == {"agent a": 2, "agent b": 1}


def test_show_has_a_line_an_agent(live_store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    capture(live_store, FAMILY)
    shown = CliRunner().invoke(app, ["show", "1-0", "--dir", str(live_store.directory)])
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.output.splitlines() if "agent s:" in line or "POST" in line]
    kinds = [line.split("agent ")[1].split()[0] if "agent " in line else "call" for line in lines]
    assert kinds == ["s:planner", "call", "s:searcher", "call", "s:reader", "call", "call", "call"]
    depths = [line.index("agent") for line in lines if "agent " in line]
    assert depths == sorted(set(depths))
    plain = CliRunner().invoke(app, ["show", "1-0", "--json", "--dir", str(live_store.directory)])
    assert "agent s:" not in plain.output


def test_one_agent_alone_makes_no_group(live_store):
    rollout = capture(live_store, (PLANNER, PLANNER))
    assert tracks_of(rollout) == {"main": 2}
    assert "agent s:" not in CliRunner().invoke(app, ["show", "1-0", "--dir", str(live_store.directory)]).output


def test_where_spans_of_agents_are_they_count(live_store):
    with otel_gym.rollout(1, 0), agent_context(PLANNER), otel_gym.invoke_agent("main"):
        for context in (PLANNER, SEARCHER):
            with agent_context(context), otel_gym.execute_tool("t", context.agent_id):
                pass
    [rollout] = live_store.rollouts()
    [process] = processes([rollout], Shown())
    assert not [track.name for track in process.tracks if "agent" in track.name and track.tracks]
    assert len(trajectories(rollout)) == 1


contexts = st.builds(AgentContext, st.sampled_from("abcd"), parent_session_id=st.none() | st.sampled_from("abcde"))


@given(st.lists(st.none() | contexts))
def test_parents_come_first_and_circles_end(found: list[AgentContext | None]):
    agents = agents_of_contexts(found)
    named = {context.agent_id for context in found if context is not None}
    assert set(agents) == (named if len(named) > 1 else set())
    before: list[Any] = [None]
    for agent in agents.values():
        assert agent.parent in before
        before.append(agent)
