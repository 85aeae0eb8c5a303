"""Transcripts of Claude Code as spans: every message of the model once, every tool with its own time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.spans import stored_spans, write_rollout
from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.views.summary import summarize_rollout
from otel_gym.views.trajectory import trajectories
from tests.ingest.sessions import (
    RECORDED,
    USAGE,
    Spans,
    answer,
    call,
    extra,
    items,
    read,
    result,
    text,
    user,
    write_session,
)


def test_parallel_bash_calls_are_two_overlapping_intervals_on_one_step() -> None:
    spans = read(RECORDED / "parallel_tools.jsonl")
    paris, berlin = spans.tool("toolu_fake000003"), spans.tool("toolu_fake000004")
    assert paris.parent_span_id == berlin.parent_span_id == spans.steps[0].span_id
    assert berlin.start_ns < paris.end_ns
    assert [(span.end_ns - span.start_ns) // 10**6 for span in (paris, berlin)] == [1582, 1640]
    assert [span.attributes["gym.tool.index"] for span in (paris, berlin)] == [1, 2]


def test_a_message_that_stands_on_four_lines_is_one_generation() -> None:
    first = read(RECORDED / "parallel_tools.jsonl").chats[0]
    assert [item["type"] for item in items(first)] == ["reasoning", "message", "function_call", "function_call"]
    assert first.attributes["gen_ai.usage.input_tokens"] == 3 + 22951
    assert first.attributes["gen_ai.usage.output_tokens"] == 180
    assert first.attributes["gym.request.id"] == "req_fake000001"
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_use"]


def test_a_gateway_without_request_ids_does_not_count_each_line() -> None:
    """R094."""
    spans = read(RECORDED / "R094" / "session.jsonl")
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in spans.chats] == [9]
    assert [item["type"] for item in items(spans.chats[0])] == ["message", "function_call"]


def test_lines_without_any_id_are_calls_of_their_own(tmp_path: Path) -> None:
    spans = read(write_session(tmp_path / "S1.jsonl", [user("go"), answer(None, text("a")), answer(None, text("b"))]))
    assert len(spans.chats) == 2


def test_a_server_that_gives_two_messages_one_id_gets_two_generations(tmp_path: Path) -> None:
    records = [
        user("go"),
        answer("msg_1", call("t1"), requestId="req_1", requestRef="r1"),
        result("t1"),
        answer("msg_1", text("done"), requestId="req_2", requestRef="r2"),
    ]
    spans = read(write_session(tmp_path / "S1.jsonl", records))
    assert [span.attributes["gym.request.id"] for span in spans.chats] == ["req_1", "req_2"]


def test_a_fork_counts_only_what_it_added() -> None:
    """R095: S2 copies S1 and adds one call."""
    first, second = read_claude_code(RECORDED / "R095")
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in Spans(first).chats] == [57, 4]
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in Spans(second).chats] == [7]
    assert Spans(second).all[0].attributes["gym.source.continues"] == "S1"


@pytest.mark.parametrize("version", ["resume", "resume_2.1.112"])
def test_a_fork_alone_counts_what_both_files_together_count(version: str) -> None:
    for path in (RECORDED / version).iterdir():
        [alone] = read_claude_code(path)
        [together] = [one for one in read_claude_code(RECORDED / version) if one.session_id == path.stem]
        assert [span.span_id for span in alone.spans] == [span.span_id for span in together.spans]
    assert len(read(RECORDED / version).chats) == 4


def test_what_a_fork_copied_is_context_of_its_first_call() -> None:
    fork = Spans(read_claude_code(RECORDED / "resume")[1])
    [boundary] = fork.events("gym.context_boundary")
    item = json.loads(boundary["gym.item"])
    assert (item["kind"], item["boundary"]) == ("continuation", "append")
    assert [one["type"] for one in item["content"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
        "message",
    ]
    assert fork.said_by_users() == ["third"]


def test_a_copy_whose_original_is_gone_is_known_by_the_session_that_asked(tmp_path: Path) -> None:
    name = "27efcd60-d91e-4153-946b-304014d96eed.jsonl"
    (tmp_path / name).write_bytes((RECORDED / "resume" / name).read_bytes())
    assert len(read(tmp_path).chats) == 1


def test_attachments_between_messages_lose_none() -> None:
    """R096."""
    spans = read(RECORDED / "R096" / "session.jsonl")
    said = [items(span)[0]["content"][0]["text"] for span in spans.chats]
    assert [*spans.said_by_users(), *said] == ["go", "one", "two"]


def test_a_subagent_in_its_own_file_hangs_below_the_call_that_spawned_it() -> None:
    """R097."""
    spans = read(RECORDED / "R097")
    [child] = [span for span in spans.turns if "gen_ai.agent.id" in span.attributes]
    tool = spans.tool("toolu_A")
    assert child.parent_span_id == tool.span_id
    assert [link.span_id for link in child.links] == [tool.span_id]
    assert child.attributes["gym.spawned_by"] == "toolu_A"
    assert child.name == "invoke_agent general-purpose"
    assert sum(span.attributes["gen_ai.usage.output_tokens"] for span in spans.chats) == 15


def test_a_subagent_in_the_background_outlives_the_receipt_of_its_call() -> None:
    spans = read(RECORDED / "subagent_background")
    tool = spans.tool("toolu_fake000003")
    [child] = [span for span in spans.turns if "gen_ai.agent.id" in span.attributes]
    assert child.parent_span_id == tool.span_id and child.end_ns > tool.end_ns
    assert extra(tool)["is_receipt"] is True
    assert extra(tool)["background_status"] == "completed"
    assert extra(tool)["background_ended_at"] == "2026-11-29T23:53:47.095Z"
    assert spans.said_by_users() == ["LANE:main do the scripted task", "LANE:sub1 look into it and report"]


def test_a_subagent_of_a_subagent_nests_by_the_notes_beside_its_file(tmp_path: Path) -> None:
    """The files lie flat, and its parent's call may have the id of a call of the main agent."""
    write_session(
        tmp_path / "S1.jsonl", [user("go"), answer("m1", call("t1", "Agent", prompt="outer"), requestId="r1")]
    )
    folder = tmp_path / "S1" / "subagents"
    inner = answer("m2", call("t1", "Agent", prompt="inner"), requestId="r2")
    write_session(folder / "agent-outer.jsonl", [user("outer"), inner])
    write_session(folder / "agent-inner.jsonl", [user("inner"), answer("m3", text("deep"), requestId="r3")])
    (folder / "agent-outer.meta.json").write_text('{"toolUseId": "t1", "agentType": "a"}')
    (folder / "agent-inner.meta.json").write_text('{"toolUseId": "t1", "agentType": "b", "parentAgentId": "outer"}')
    spans = read(tmp_path)
    parents = {span.span_id: span.parent_span_id for span in spans.all}
    a, b = (next(span for span in spans.turns if span.name == f"invoke_agent {kind}") for kind in "ab")
    assert parents[parents[parents[b.span_id]]] == a.span_id


def test_subagents_of_2_0_70_lie_beside_the_session_and_some_were_never_called() -> None:
    spans = read(RECORDED / "subagent_2.0.70")
    main, called, *warmups = spans.turns
    assert called.parent_span_id == spans.tool("toolu_fake000003").span_id
    assert [span.parent_span_id for span in warmups] == [main.span_id] * 2
    assert all("gym.spawned_by" not in span.attributes for span in warmups)
    assert len(spans.chats) == 6


def test_a_running_subagent_is_found_by_its_prompt(tmp_path: Path) -> None:
    write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", call("t1", "Task", prompt="look"), requestId="r1")])
    write_session(tmp_path / "agent-abc1234.jsonl", [user("look"), answer("m2", text("…"), requestId="r2")])
    spans = read(tmp_path / "S1.jsonl")
    assert spans.turns[1].attributes["gym.spawned_by"] == "t1"


def test_compaction_is_one_boundary_with_the_summary_and_what_was_kept() -> None:
    spans = read(RECORDED / "compaction_auto.jsonl")
    [boundary] = spans.events("gym.context_boundary")
    item = json.loads(boundary["gym.item"])
    assert (item["trigger"], item["tokens_before"], item["tokens_after"]) == ("auto", 193016, 2712)
    assert [one["type"] for one in item["content"]] == ["message", "message", "function_call", "function_call_output"]
    assert item["content"][0]["content"][0]["text"].startswith("This session is being continued")
    assert spans.said_by_users() == ["LANE:main do the scripted task"]
    indices = [span.attributes["gym.source.index"] for span in spans.steps]
    assert indices[1] < boundary["gym.source.index"] < indices[2]


def test_an_interrupted_tool_is_no_tool_error_and_the_finished_one_keeps_its_result() -> None:
    spans = read(RECORDED / "interrupt_sigint.jsonl")
    stopped, quick = spans.tool("toolu_fake000003"), spans.tool("toolu_fake000004")
    assert extra(stopped)["rejected"] == "user-rejected" and extra(stopped)["interrupted"] is True
    assert "gym.tool.error" not in stopped.attributes
    assert json.loads(quick.attributes["gen_ai.tool.call.result"]) == {"content": "quick"}
    assert spans.said_by_users() == ["LANE:main do the scripted task"]


def test_a_call_of_a_killed_run_has_no_result(tmp_path: Path) -> None:
    spans = read(write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", call("t1"), requestId="r1")]))
    [tool] = spans.tools
    assert tool.end_ns is None
    assert "gen_ai.tool.call.result" not in tool.attributes


def test_a_tool_that_failed_says_how(tmp_path: Path) -> None:
    failed = "Exit code 3\noops"
    records = [
        user("go"),
        answer("m1", call("t1"), requestId="r1"),
        result("t1", failed, block={"is_error": True}, toolUseResult=f"Error: {failed}"),
    ]
    [tool] = read(write_session(tmp_path / "S1.jsonl", records)).tools
    assert json.loads(tool.attributes["gym.tool.error"]) == {"message": failed, "data": {"exit_code": 3}}
    assert extra(tool) == {"is_error": True, "exit_code": 3}


@pytest.mark.parametrize("named_by", ["<tool-use-id>t1</tool-use-id>", "<task-id>b1</task-id>"])
def test_a_command_in_the_background_ends_when_the_notice_says_so(tmp_path: Path, named_by: str) -> None:
    notice = f"<task-notification>{named_by}<status>completed</status></task-notification>"
    records = [
        user("go"),
        answer("m1", call("t1"), requestId="r1"),
        result("t1", "Running in the background", toolUseResult={"stdout": "", "backgroundTaskId": "b1"}),
        {"type": "queue-operation", "operation": "enqueue", "content": notice},
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": notice}},
    ]
    spans = read(write_session(tmp_path / "S1.jsonl", records))
    assert extra(spans.tools[0]) == {
        "has_stdout": False,
        "background_task_id": "b1",
        "is_receipt": True,
        "background_status": "completed",
        "background_ended_at": "2026-11-29T00:00:03.000Z",
    }
    assert spans.said_by_users() == ["go"]


def test_a_fork_of_a_fork_continues_the_fork(tmp_path: Path) -> None:
    lines: list[str] = []
    for number in (1, 2, 3):
        own = [
            user(f"say {number}", uuid=f"u{number}"),
            answer(f"m{number}", text("x"), uuid=f"a{number}", requestId="r"),
        ]
        path = write_session(tmp_path / f"S{number}.jsonl", [{**record, "sessionId": f"S{number}"} for record in own])
        own_lines = path.read_text().replace("T00:00:", f"T0{number}:00:").splitlines()
        lines = [line.replace(f'"S{number - 1}"', f'"S{number}"') for line in lines] + own_lines
        path.write_text("\n".join(lines) + "\n")
    rollouts = read_claude_code(tmp_path)
    assert [rollout.spans[0].attributes["gym.source.continues"] for rollout in rollouts] == [None, "S1", "S2"]
    assert [len(Spans(rollout).chats) for rollout in rollouts] == [1, 1, 1]
    alone = read_claude_code(tmp_path / "S3.jsonl")
    assert [len(Spans(rollout).chats) for rollout in alone] == [1]


def test_a_message_that_was_typed_while_the_agent_worked_is_the_users_and_opens_no_turn() -> None:
    spans = read(RECORDED / "queued_prompt.jsonl")
    assert spans.said_by_users() == ["LANE:main start", "also mention cats"]
    assert len(spans.turns) == 1


@pytest.mark.parametrize(
    "record",
    [
        user("Resume directly.", isMeta=True, ownNote=True),
        user("<local-command-stdout>Compacted</local-command-stdout>"),
        user("<task-notification><status>completed</status></task-notification>"),
        user("[Request interrupted by user]"),
    ],
)
def test_what_the_harness_writes_opens_no_turn(tmp_path: Path, record: dict[str, object]) -> None:
    records = [user("go"), answer("m1", text("a"), requestId="r1"), record, answer("m2", text("b"), requestId="r2")]
    spans = read(write_session(tmp_path / "S1.jsonl", records))
    assert len(spans.turns) == 1
    assert spans.said_by_users() == ["go"]


def test_attempts_that_failed_are_events_and_the_last_one_ends_the_turn() -> None:
    spans = read(RECORDED / "exhaust_529.jsonl")
    assert spans.chats == []
    failures = spans.events("exception")
    assert [failure["gym.request.id"] for failure in failures] == ["req_fake000001", "req_fake000002", "req_fake000003"]
    assert {failure["exception.type"] for failure in failures} == {"overloaded_error"}
    assert spans.turns[0].status is not None


def test_the_stop_reason_of_a_stream_that_broke_off_was_invented() -> None:
    cut, whole = read(RECORDED / "stream_truncated.jsonl").chats
    assert "gen_ai.response.finish_reasons" not in cut.attributes
    assert whole.attributes["gen_ai.response.finish_reasons"] == ["end_turn"]


def test_the_largest_of_the_usages_that_a_message_repeats_is_its_own(tmp_path: Path) -> None:
    early = {**USAGE, "output_tokens": 1}
    records = [
        user("go"),
        answer("m1", text("a"), requestId="r1", message={"usage": early, "stop_reason": None}),
        answer("m1", call("t1"), requestId="r1", message={"stop_reason": "tool_use"}),
        answer("m1", call("t2"), requestId="r1", message={"usage": early}),
    ]
    [chat] = read(write_session(tmp_path / "S1.jsonl", records)).chats
    assert chat.attributes["gen_ai.usage.output_tokens"] == 9


def test_results_find_their_calls_between_the_lines_of_a_message(tmp_path: Path) -> None:
    records = [
        user("go"),
        answer("m1", call("t1", "NoSuchTool"), requestId="r1"),
        result("t1", "<tool_use_error>No such tool</tool_use_error>", block={"is_error": True}),
        answer("m1", call("t2"), requestId="r1"),
        result("t2"),
    ]
    spans = read(write_session(tmp_path / "S1.jsonl", records))
    assert len(spans.steps) == 1
    assert json.loads(spans.tool("t1").attributes["gym.tool.error"])["message"] == "No such tool"
    assert json.loads(spans.tool("t2").attributes["gen_ai.tool.call.result"]) == {"content": "done"}


def test_what_is_not_understood_is_counted_and_named(tmp_path: Path) -> None:
    path = write_session(tmp_path / "S1.jsonl", [user("go"), {"type": "hologram"}, "{broken", result("t9"), user("on")])
    [rollout] = read_claude_code(path)
    assert Spans(rollout).turns[-1].attributes["gym.agent.dropped_records"] == 3
    assert [text.split(": ")[0] for text in rollout.damage] == [f"{path}:{line}" for line in (2, 3, 4)]


def test_a_line_that_is_being_written_is_no_loss(tmp_path: Path) -> None:
    path = write_session(tmp_path / "S1.jsonl", [user("go")])
    with path.open("a") as file:
        file.write('{"type": "assi')
    [rollout] = read_claude_code(path)
    assert Spans(rollout).turns[-1].attributes["gym.agent.dropped_records"] == 0
    assert "cut off" in rollout.damage[0]


def test_a_lone_surrogate_loses_no_message(tmp_path: Path) -> None:
    path = write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", text("a\ud800b"), requestId="r1")])
    [chat] = read(path).chats
    assert items(chat)[0]["content"][0]["text"] == "a�b"


def test_an_empty_transcript_is_no_rollout(tmp_path: Path) -> None:
    (tmp_path / "S1.jsonl").touch()
    assert read_claude_code(tmp_path) == []


def test_an_agent_that_began_with_anothers_context_counts_none_of_it(tmp_path: Path) -> None:
    path = write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", text("a"), requestId="r1")])
    own = write_session(tmp_path / "own.jsonl", [answer("m2", text("b"), requestId="r2", uuid="own-1")])
    agent = tmp_path / "S1" / "subagents" / "agent-x.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(path.read_bytes() + own.read_bytes())
    own.unlink()
    spans = read(tmp_path)
    assert [span.attributes["gym.request.id"] for span in spans.chats] == ["r1", "r2"]


def message_name(message: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(message, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def test_the_exact_request_is_rebuilt_where_the_transcript_notes_it(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "go"}
    used = call("t1", command="ls")
    said = {"role": "assistant", "content": [used]}
    given = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "f\n\n<reminder>"}]}
    params = {"model": "toy-c", "max_tokens": 9, "betas": ["x"]}
    system = [{"type": "text", "text": "be good"}]
    mark = {"path": ["system", 0], "value": {"type": "ephemeral"}}
    first = {
        "id": "a1",
        "keep": 0,
        "tail": [message_name(asked)],
        "shapeHash": "s",
        "params": params,
        "cacheControl": [],
    }
    second = {
        **first,
        "id": "a2",
        "base": "a1",
        "keep": 1,
        "tail": [message_name(said), "noted"],
        "cacheControl": [mark],
    }
    records = [
        user("go"),
        {"type": "api-request-shape", "shapeHash": "s", "shape": {"system": system, "tools": []}},
        {"type": "api-request", **first},
        answer("m1", used, requestId="r1", requestRef="a1"),
        result("t1", "f"),
        {"type": "api-request-blob", "hash": "noted", "message": given},
        {"type": "api-request", **second},
        answer("m2", text("done"), requestId="r2", requestRef="a2"),
    ]
    one, other = read(write_session(tmp_path / "S1.jsonl", records)).chats
    assert json.loads(one.attributes["gym.request.body"])["messages"] == [asked]
    assert json.loads(other.attributes["gym.request.body"]) == {
        "model": "toy-c",
        "messages": [asked, said, given],
        "system": [{**system[0], "cache_control": {"type": "ephemeral"}}],
        "tools": [],
        "max_tokens": 9,
    }
    assert other.start_ns == one.end_ns + 3 * 10**9  # when the request was made


def test_a_request_that_lacks_a_part_is_not_rebuilt(tmp_path: Path) -> None:
    request = {"id": "a1", "keep": 2, "base": "gone", "tail": [], "shapeHash": "s", "params": {}, "cacheControl": []}
    records = [user("go"), {"type": "api-request", **request}, answer("m1", text("a"), requestId="r1", requestRef="a1")]
    [chat] = read(write_session(tmp_path / "S1.jsonl", records)).chats
    assert "gym.request.body" not in chat.attributes


def test_a_request_that_no_record_notes_is_unknown_and_the_call_is_read(tmp_path: Path) -> None:
    records = [user("go"), answer("m1", text("a"), requestId="r1", requestRef="gone")]
    [chat] = read(write_session(tmp_path / "S1.jsonl", records)).chats
    assert "gym.request.body" not in chat.attributes and chat.name == f"chat {chat.attributes['gen_ai.request.model']}"


def names_and_ids(directory: Path) -> set[tuple[str, str]]:
    store = open_store(directory)
    return {(span.name, span.span_id) for rollout_id in store.rollout_ids() for span in store.spans(rollout_id)}


@pytest.mark.parametrize("name", ["compaction_auto.jsonl", "subagent_2.0.70", "resume", "subagent_background"])
def test_a_session_that_is_imported_again_and_again_as_it_grows_is_counted_once(tmp_path: Path, name: str) -> None:
    source = RECORDED / name
    files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    copies = {path: tmp_path / "source" / path.relative_to(RECORDED) for path in files}
    for path in copies.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    longest = max(len(path.read_bytes().splitlines()) for path in files)
    for count in range(1, longest + 1):
        for path, copy in copies.items():
            lines = path.read_bytes().splitlines(keepends=True)
            copy.write_bytes(b"".join(lines[:count] if path.suffix == ".jsonl" else lines))
        for rollout in read_claude_code(tmp_path / "source"):
            write_rollout(tmp_path / "grown", rollout)
    written = [write_rollout(tmp_path / "grown", rollout) for rollout in read_claude_code(tmp_path / "source")]
    assert all(one.new == one.changed == 0 for one in written)
    for rollout in read_claude_code(source):
        write_rollout(tmp_path / "once", rollout)
    assert names_and_ids(tmp_path / "grown") == names_and_ids(tmp_path / "once")


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_span_can_have_is_unknown_and_the_session_is_read(time: str, tmp_path: Path) -> None:
    records = [user("hi"), answer("m1", text("x"), timestamp=time), answer("m2", text("y"))]
    [rollout] = read_claude_code(write_session(tmp_path / "in" / "S1.jsonl", records))
    assert write_rollout(tmp_path / "store", rollout).new == 6
    assert write_rollout(tmp_path / "store", rollout).same == 6
    chats = [span for span in open_store(tmp_path / "store").spans("S1") if span.name.startswith("chat")]
    assert {span.attributes.get("gym.time.known", True) for span in chats} == {True, False}
    assert len({span.start_ns for span in chats}) == 1


HALF = "\ud83d"
BIG = 123456789012345678901234567890


@pytest.mark.parametrize(
    "records",
    [
        [user(HALF), answer("m1", text("x"))],
        [user("hi"), answer("m1", text(HALF))],
        [user("hi"), answer("m1", call("t", a=HALF)), result("t", HALF)],
        [user("hi"), answer(f"m{HALF}", call(f"t{HALF}"), message={"model": HALF})],
        [user("hi"), answer("m1", call("t", a=BIG), message={"usage": {"input_tokens": BIG, "output_tokens": 3}})],
    ],
    ids=range(5),
)
def test_half_a_character_or_a_huge_number_is_nothing_new_when_imported_again(records: Any, tmp_path: Path) -> None:
    [rollout] = read_claude_code(write_session(tmp_path / "in" / "S1.jsonl", records))
    count = write_rollout(tmp_path / "store", rollout).new
    assert count == len(rollout.spans)
    assert write_rollout(tmp_path / "store", rollout).same == count


def test_a_session_whose_model_was_never_reached_is_an_error_in_ls_and_a_gap(tmp_path: Path) -> None:
    failure = answer("x", text("401 Invalid API key"), isApiErrorMessage=True, message={"model": "<synthetic>"})
    [rollout] = read_claude_code(str(write_session(tmp_path / "S1.jsonl", [user("go"), failure])))
    handle = RolloutSpans(None, "S1", stored_spans(rollout))
    assert summarize_rollout(handle).status == "error"
    [trajectory] = trajectories(handle)
    assert [gap.code for gap in trajectory.gaps] == ["turn_failed"]
    assert "401" in (trajectory.gaps[0].detail or "")
    assert trajectory.complete is False


def test_a_session_that_was_answered_in_the_end_is_ok(tmp_path: Path) -> None:
    failure = answer("x", text("API Error: 529"), isApiErrorMessage=True, message={"model": "<synthetic>"})
    path = write_session(tmp_path / "S1.jsonl", [user("go"), failure, user("again"), answer("m1", text("done"))])
    handle = RolloutSpans(None, "S1", stored_spans(read_claude_code(path)[0]))
    assert summarize_rollout(handle).status == "ok"


def test_thinking_tokens_are_reasoning_tokens(tmp_path: Path) -> None:
    usage = {**USAGE, "output_tokens_details": {"thinking_tokens": 7}}
    path = write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", text("done"), message={"usage": usage})])
    [trajectory] = trajectories(RolloutSpans(None, "S1", stored_spans(read_claude_code(path)[0])))
    assert trajectory.usage.output_tokens_details.reasoning_tokens == 7
