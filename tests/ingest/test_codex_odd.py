"""Parts of sessions that are rare, or that other versions of Codex write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.span import STATUS_ERROR
from tests.ingest.codex_sessions import Record, attribute, event, only, records, said, until, write


def answered(tmp_path: Path, facts: Record | None = None, **output: Any) -> Any:
    """The tool of the session's patch, with another answer and other facts of how it ran."""
    lines = records("parallel_tools")
    [answer] = [line for line in lines if line["payload"].get("type") == "custom_tool_call_output"]
    [told] = [line for line in lines if line["payload"].get("item", {}).get("type") == "FileChange"]
    answer["payload"] = {"type": "custom_tool_call_output", "call_id": answer["payload"]["call_id"], **output}
    told["payload"]["item"] = {"id": told["payload"]["item"]["id"], **(facts or {})}
    return only(write(tmp_path, lines)).tools[-1]


@pytest.mark.parametrize(
    ("facts", "output", "message"),
    [
        ({"type": "McpToolCall", "status": "failed", "error": {"message": "no such row"}}, "Error", "no such row"),
        ({"type": "FileChange", "status": "failed", "stderr": "no such file"}, "it failed", "no such file"),
        ({}, {"content": "rejected", "success": False}, "rejected"),
        ({}, '{"output":"no","metadata":{"exit_code":7,"duration_seconds":0.1}}', "Exit code 7"),
        ({}, "Exit code: 7\nWall time: 0 seconds\nOutput:\nno\n", "Exit code 7"),
    ],
)
def test_a_tool_failed_by_whatever_tells_so(facts: Record, output: Any, message: str, tmp_path: Path) -> None:
    tool = answered(tmp_path, facts, output=output)
    assert tool.status == STATUS_ERROR
    assert attribute(tool, "gym.tool.error")["message"] == message


@pytest.mark.parametrize(
    ("facts", "output"),
    [
        ({"type": "FileChange", "status": "completed"}, "fine"),
        ({}, "it printed this:\nOutput:\nExit code: 7\n"),
        ({"type": "FileChange", "status": "declined"}, "the user said no"),
    ],
)
def test_a_tool_did_not_fail_where_nothing_tells_so(facts: Record, output: str, tmp_path: Path) -> None:
    assert answered(tmp_path, facts, output=output).status != STATUS_ERROR


def test_a_result_keeps_its_form(tmp_path: Path) -> None:
    parts = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
    assert attribute(answered(tmp_path, output=parts), "gen_ai.tool.call.result") == parts
    tool = answered(tmp_path, tools=[{"name": "a"}], execution="client")
    assert attribute(tool, "gen_ai.tool.call.result") == {"tools": [{"name": "a"}], "execution": "client"}


def test_a_command_that_outlived_its_result_did_not_fail(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    call = next(line for line in lines if line["payload"].get("type") == "function_call")["payload"]["call_id"]
    item = {"type": "CommandExecution", "id": call, "status": "failed", "exit_code": -1}
    spans = only(write(tmp_path, [*lines, event(lines, type="item_completed", item=item)]))
    assert spans.tools[0].status != STATUS_ERROR


def test_turns_that_were_rolled_back_are_out_of_the_context(tmp_path: Path) -> None:
    lines = records("resume")
    lines.append(event(lines, type="thread_rolled_back", num_turns=1))
    spans = only(write(tmp_path, lines))
    boundary = said(spans.turns[-1])[-1][1]
    assert boundary["kind"] == "rollback"
    assert boundary["content"][-1]["content"][0]["text"] == "First."
    assert len(spans.chats) == 3


def test_a_compaction_that_names_no_items_leaves_what_the_user_said_and_the_summary(tmp_path: Path) -> None:
    lines = records("compaction_auto")
    [compacted] = [line for line in lines if line["type"] == "compacted"]
    compacted["payload"] = {"message": "So far: one."}
    [boundary] = [item for name, item in said(only(write(tmp_path, lines)).turns[0]) if name == "gym.context_boundary"]
    assert [item["role"] for item in boundary["content"]] == ["developer", "developer", "user", "user", "user"]
    assert boundary["content"][-1]["content"][0]["text"] == "So far: one."


def test_a_compaction_call_that_only_its_result_names_is_a_generation(tmp_path: Path) -> None:
    lines = records("compaction_auto")
    own = {line["ordinal"] for line in lines if "resp_fake000010" in str(line) or "msg_fake000011" in str(line)}
    kept = [line for line in lines if line["ordinal"] not in own or line["type"] == "compacted"]
    spans = only(write(tmp_path, kept))
    [chat] = [chat for chat in spans.chats if chat.attributes.get("gym.call.kind") == "compaction"]
    assert chat.attributes["gen_ai.response.id"] == "resp_fake000010"
    assert chat.attributes["gen_ai.usage.output_tokens"] == 300
    assert len(spans.chats) == 5


def test_a_reply_without_items_is_a_generation(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    usage = {**lines[-1], "type": "token_usage_record"}
    usage["payload"] = {"response_id": "resp_empty", "usage": {"input_tokens": 9, "output_tokens": 0}}
    lines.insert(len(until(lines, "token_count")), usage)
    spans = only(write(tmp_path, lines))
    assert len(spans.chats) == 5
    [empty] = [chat for chat in spans.chats if chat.attributes["gen_ai.response.id"] == "resp_empty"]
    assert attribute(empty, "gym.output.items") == []
    assert empty.attributes["gen_ai.usage.output_tokens"] == 0


def test_a_turn_that_goes_on_after_a_killed_one_is_another(tmp_path: Path) -> None:
    lines = records("resume")
    first = until(lines, "function_call")
    second = lines[len(until(lines, "task_complete")) :]
    spans = only(write(tmp_path, [*first, *second]))
    assert [turn.end_ns is None for turn in spans.turns] == [True, False]
    assert spans.tools[0].end_ns is None and spans.chats[0].end_ns is None
    assert spans.all[0].end_ns is not None


def test_what_the_harness_says_of_a_fault_is_an_event(tmp_path: Path) -> None:
    lines = records("response_failed")
    place = len(until(lines, "token_count"))
    lines.insert(place, event(lines[:place], type="stream_error", message="Reconnecting... 1/3"))
    turn = only(write(tmp_path, lines)).turns[0]
    assert [event.attributes["exception.message"] for event in turn.events if event.name == "exception"] == [
        "Reconnecting... 1/3"
    ]


def test_threads_that_name_each_other_as_parents_are_there_once(tmp_path: Path) -> None:
    one, other = records("subagent"), records("subagent", 1)
    one[0]["payload"]["parent_thread_id"] = other[0]["payload"]["id"]
    one[0]["payload"]["session_id"] = other[0]["payload"]["session_id"] = "elsewhere"
    write(tmp_path, one, "one")
    write(tmp_path, other, "other")
    spans = only(tmp_path)
    assert spans.rollout.session_id == "elsewhere"
    assert len(spans.turns) == 2 and len(spans.chats) == 5


@pytest.mark.parametrize("again", [lambda lines: lines * 2, lambda lines: [line for line in lines for _ in range(2)]])
def test_lines_that_a_file_holds_twice_cost_no_tokens_twice(again: Any, tmp_path: Path) -> None:
    lines = records("parallel_tools")
    once, twice = only(write(tmp_path, lines)), only(write(tmp_path, again(lines)))
    assert [span.name for span in twice.all] == [span.name for span in once.all]
    tokens = [[chat.attributes.get("gen_ai.usage.input_tokens") for chat in spans.chats] for spans in (once, twice)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_span_can_have_is_that_of_the_record_before(time: str, tmp_path: Path) -> None:
    lines = records("parallel_tools")
    start_ns = only(write(tmp_path, lines)).all[0].start_ns
    spans = only(write(tmp_path, [lines[0], *({**line, "timestamp": time} for line in lines[1:])]))
    assert {(span.start_ns, span.end_ns) for span in spans.chats} == {(start_ns, start_ns)}


def test_a_duration_that_no_double_can_hold_is_unknown(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    [end] = [line for line in lines if line["payload"].get("type") == "task_complete"]
    end["payload"]["duration_ms"] = 10**400
    assert "gym.agent.duration_ms" not in only(write(tmp_path, lines)).turns[-1].attributes
