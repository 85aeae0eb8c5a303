"""What waits for what, by the rules of Dynamo's conversions of 2026-06 and 2026-08."""

import pytest

from otel_gym.views.mooncake.export import mooncake_trace
from otel_gym.views.mooncake.reading import Wanted
from otel_gym.views.mooncake.requests import MooncakeError
from otel_gym.views.mooncake.waits import RULES
from tests.mooncake.spans import by_id, request, rollout, rows_of, tool


@pytest.mark.parametrize("rules", RULES)
def test_turns_wait_for_the_one_before_and_for_tools(rules):
    first = request("r1", "root", 1000, 1100, [11])
    second = request("r2", "root", 1300, 1400, [11, 22])
    rows = rows_of(second, tool("root", "call-1", 1150, 1250), first, rules=rules)
    assert [row["hash_ids"] for row in rows] == [[0], [0, 1]]
    assert "delay" not in rows[0] and "wait_for" not in rows[0] and rows[0]["prefix_reset"] is True
    assert rows[1]["wait_for"] == ["r1"] and rows[1]["prefix_reset"] is False
    assert (rows[1]["delay"], rows[1]["tool_wait_ms"], rows[1]["timestamp"]) == (100.0, 100.0, 300.0)
    assert [event["tool_call_id"] for event in rows[1]["tool_events"]] == ["call-1"]


@pytest.mark.parametrize("rules", RULES)
def test_tools_at_the_same_time_count_once(rules):
    tools = [tool("root", f"call-{n}", *times) for n, times in enumerate([(1100, 1300), (1150, 1250), (1200, 1250)])]
    rows = rows_of(request("r1", "root", 1000, 1100), request("r2", "root", 1400, 1500), *tools, rules=rules)
    assert rows[1]["tool_wait_ms"] == 200.0 and rows[1]["delay"] == 100.0
    assert [event["tool_call_id"] for event in rows[1]["tool_events"]] == ["call-0", "call-1", "call-2"]


def test_tool_that_ended_during_the_request_before_is_told_by_the_newer_rules_alone():
    """It was started from a stream: nothing was waited for, and its result is what the next request brings."""
    spans = [
        request("r1", "root", 1000, 1100),
        tool("root", "early", 1020, 1060),
        tool("root", "across", 1050, 1150),
        tool("root", "late", 1150, 1250),
        request("r2", "root", 1200, 1300),
    ]

    def told(rules):
        row = rows_of(*spans, rules=rules)[1]
        return [event["tool_call_id"] for event in row["tool_events"]], row["tool_wait_ms"]

    assert told("2026-06") == (["across", "late"], 100.0)
    assert told("2026-08") == (["early", "across"], 50.0)


def family(*, sessions=False, spawn_end=1100):
    return [
        request("parent-0", "root", 900, 950, sessions=sessions),
        request("parent-1", "root", 1000, spawn_end, sessions=sessions),
        request("child-slow", "child", 1200, 1900, parent="root", sessions=sessions),
        request("child-fast", "child", 1300, 1400, parent="root", sessions=sessions),
        request("parent-2", "root", 1500, 1600, sessions=sessions),
        request("parent-3", "root", 2000, 2100, sessions=sessions),
    ]


@pytest.mark.parametrize("sessions", [False, True])
@pytest.mark.parametrize("rules", RULES)
def test_subagent_waits_for_its_parent_which_waits_for_its_last_answer(rules, sessions):
    rows = by_id(rows_of(*family(sessions=sessions), rules=rules))
    assert rows["child-slow"]["wait_for"] == ["parent-1"] and rows["parent-1"]["branches"] == ["child-slow"]
    assert rows["parent-2"]["wait_for"] == ["parent-1"]
    assert rows["parent-3"]["wait_for"] == ["parent-2", "child-slow"] and rows["parent-3"]["delay"] == 100.0
    kinds = {row.get("request_kind") for row in rows.values()}
    assert kinds == ({None} if rules == "2026-06" else {"foreground", "agent"})


def test_subagent_that_begins_while_its_parent_streams_is_of_that_request_by_the_newer_rules():
    spans = family(spawn_end=1250)
    assert by_id(rows_of(*spans, rules="2026-06"))["child-slow"]["wait_for"] == ["parent-0"]
    row = by_id(rows_of(*spans, rules="2026-08"))["child-slow"]
    assert row["wait_for"] == ["parent-1"] and row["delay"] == 0.0


def test_parent_that_is_not_in_the_trace_makes_an_agent_and_no_wait():
    (row,) = rows_of(request("r", "orphan", 0, 1, parent="elsewhere"), rules="2026-08")
    assert row["request_kind"] == "agent" and "wait_for" not in row


def test_two_parents_of_one_agent_are_refused():
    spans = [request("a", "child", 0, 1, parent="root-a"), request("b", "child", 2, 3, parent="root-b")]
    with pytest.raises(MooncakeError, match=r"request b .*child below root-b.*below root-a"):
        rows_of(*spans)
    assert [row["request_id"] for row in rows_of(*spans, lenient=True)] == ["a"]


def claude(source, consumer=None, child=None, mode="background"):
    said = {"source_request_id": source, "consumer_request_id": consumer, "child_session_id": child}
    return {name: value for name, value in {**said, "execution_mode": mode}.items() if value is not None}


def background(link, **options):
    return [
        request("parent-1", "root", 1000, 1100, sessions=True),
        request("child-1", "child", 1200, 1700, parent="root", sessions=True),
        request("parent-2", "root", 1300, 1400, sessions=True),
        request("parent-3", "root", 1850, 1950, sessions=True),
        tool("root", "agent-call", 1100, 1800, claude=link, sessions=True, **options),
    ]


def test_link_of_claude_code_tells_who_started_a_background_agent_and_who_got_its_result():
    rows = by_id(rows_of(*background(claude("parent-1", "parent-3", "child")), rules="2026-08"))
    assert rows["parent-1"]["branches"] == ["child-1"] and rows["child-1"]["wait_for"] == ["parent-1"]
    assert rows["child-1"]["request_kind"] == "background_agent"
    assert rows["parent-2"]["wait_for"] == ["parent-1"] and "tool_events" not in rows["parent-2"]
    assert rows["parent-3"]["wait_for"] == ["parent-2", "child-1"]
    assert (rows["parent-3"]["delay"], rows["parent-3"]["tool_wait_ms"]) == (50.0, 100.0)
    assert [event["tool_call_id"] for event in rows["parent-3"]["tool_events"]] == ["agent-call"]


def test_link_to_an_agent_that_is_not_traced_leaves_its_tool():
    tools = [tool("root", "c", 1100, 1250, claude=claude("a", "b", "missing"), sessions=True)]
    spans = [request("a", "root", 1000, 1100, sessions=True), request("b", "root", 1300, 1400, sessions=True)]
    rows = rows_of(*spans, *tools, rules="2026-08")
    assert "branches" not in rows[0] and rows[1]["tool_wait_ms"] == 150.0 and len(rows[1]["tool_events"]) == 1


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        (claude("nobody"), "names the request nobody, which is not there"),
        (claude("child-1"), "which is another agent's"),
        (claude("parent-1", mode="odd"), "execution_mode 'odd' is none of blocking, background"),
    ],
)
def test_link_that_cannot_be_is_refused_with_its_tool(link, problem):
    with pytest.raises(MooncakeError, match=rf"tool ls agent-call: .*{problem}"):
        rows_of(*background(link), rules="2026-08")
    assert len(rows_of(*background(link), rules="2026-08", lenient=True)) == 4


def test_cycle_of_waits_is_refused_as_the_replay_refuses_it():
    spans = background(claude("parent-2", "parent-1", "child"))
    with pytest.raises(MooncakeError, match="waits, through others, for itself"):
        rows_of(*spans, rules="2026-08")
    assert len(rows_of(*spans, rules="2026-08", lenient=True)) == 3


def test_agents_of_one_name_in_two_rollouts_are_two():
    rollouts = [
        rollout(request(f"{name}-{turn}", "planner", start, start + 1), rollout_id=name)
        for name in ("one", "two")
        for turn, start in ((1, 0),)
    ]
    rows = [line.decode() for line in mooncake_trace(rollouts, Wanted(True)).lines()]
    assert len(rows) == 2
    assert '"session_id":"one:planner"' in rows[0] and '"session_id":"two:planner"' in rows[1]


def test_time_in_a_tool_that_runs_on_is_clipped_to_the_wait():
    spans = [
        request("r1", "root", 1000, 1100),
        tool("root", "long", 500, 5000),
        tool("root", "short", 1110, 1120),
        request("r2", "root", 1200, 1300),
    ]
    row = rows_of(*spans)[1]
    assert row["tool_wait_ms"] == 100.0 and row["delay"] == 0.0
    assert [event["tool_call_id"] for event in row["tool_events"]] == ["long", "short"]


@pytest.mark.parametrize("rules", RULES)
def test_same_records_in_any_order_give_the_same_rows(rules):
    spans = [*family(), tool("root", "t", 1610, 1650), tool("child", "u", 1250, 1290)]
    assert rows_of(*spans, rules=rules) == rows_of(*reversed(spans), rules=rules)
