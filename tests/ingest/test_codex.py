"""Sessions of Codex → spans."""

from __future__ import annotations

from pathlib import Path

from otel_gym.ingest.codex import read_codex
from otel_gym.records.output import boundary_of
from otel_gym.store.span import STATUS_ERROR
from tests.ingest.codex_sessions import SESSIONS, Spans, attribute, event, only, records, said, session, until, write

USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")


def test_a_turn_is_an_agent_and_each_generation_a_step_with_its_tools() -> None:
    spans = session("parallel_tools")
    assert spans.rollout.source == "transcript" and spans.rollout.service == "codex"
    assert spans.rollout.session_id == "01a229a6-eaf6-7040-8b61-dc2aef923967"
    [turn] = spans.turns
    assert turn.name == "invoke_agent codex" and turn.attributes["gen_ai.agent.version"] == "0.171.0"
    assert [step.attributes["gym.step.index"] for step in spans.below(turn)] == [1, 2, 3, 4]
    assert [[span.name for span in spans.below(step)] for step in spans.steps] == [
        ["chat gpt-5.5", "execute_tool exec_command", "execute_tool exec_command"],
        ["chat gpt-5.5", "execute_tool exec_command", "execute_tool exec_command"],
        ["chat gpt-5.5", "execute_tool apply_patch"],
        ["chat gpt-5.5"],
    ]


def test_a_generation_has_the_response_id_and_usage_of_its_record_and_the_items_of_the_model() -> None:
    first, second, *_ = session("parallel_tools").chats
    assert first.attributes["gen_ai.response.id"] == "resp_fake000002"
    assert [item["type"] for item in attribute(first, "gym.output.items")] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert not any(
        "internal_chat_message_metadata_passthrough" in item for item in attribute(first, "gym.output.items")
    )
    assert [second.attributes[name] for name in USAGE] == [29572, 90, 22951]
    assert attribute(second, "gym.usage.provider")["cached_input_tokens"] == 22951


def test_parallel_tools_overlap_on_one_step_with_durations_of_their_own() -> None:
    paris, berlin, *_ = session("parallel_tools").tools
    assert paris.parent_span_id == berlin.parent_span_id
    assert berlin.start_ns < (paris.end_ns or 0)
    assert [round(((span.end_ns or 0) - span.start_ns) / 10**6) for span in (paris, berlin)] == [1544, 1626]
    assert attribute(paris, "gym.tool.extra")["reported_duration_ms"] == 1363.793817
    assert attribute(paris, "gen_ai.tool.call.result")["content"].endswith("paris 72F\n")


def test_a_tool_ends_when_it_was_done_though_its_result_waited_for_others(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    done = [line["payload"] for line in lines if line["payload"].get("type") == "item_completed"]
    done[1]["completed_at_ms"] = done[0]["completed_at_ms"] - 1000
    paris, berlin, *_ = only(write(tmp_path, lines)).tools
    assert (paris.end_ns or 0) - (berlin.end_ns or 0) == 10**9


def test_a_command_that_exits_with_a_code_failed() -> None:
    failed = session("parallel_tools").tools[3]
    assert failed.status == STATUS_ERROR
    assert attribute(failed, "gym.tool.error") == {
        "message": "Exit code 3",
        "data": {"exit_code": 3, "status": "failed"},
    }
    assert attribute(failed, "gym.tool.extra")["exit_code"] == 3


def test_a_call_that_codex_could_not_run_failed(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    [answer] = [line for line in lines if line["payload"].get("type") == "custom_tool_call_output"]
    answer["payload"]["output"] = "unsupported call: no_such_tool"
    failed = only(write(tmp_path, lines)).tools[-1]
    assert failed.status == STATUS_ERROR
    assert attribute(failed, "gym.tool.error")["message"] == "unsupported call: no_such_tool"


def test_what_the_user_said_stands_apart_from_what_the_harness_says() -> None:
    [turn] = session("parallel_tools").turns
    assert [(name, item["role"]) for name, item in said(turn)] == [
        ("gym.context_message", "developer"),  # the base instructions, which are no record
        ("gym.context_message", "developer"),
        ("gym.context_message", "user"),
        ("gym.user_message", "user"),
    ]


def test_messages_without_a_note_of_who_said_them_are_told_apart_by_their_tags(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    for line in lines:
        line["payload"].pop("internal_chat_message_metadata_passthrough", None)
        line.pop("metadata", None)
    [turn] = only(write(tmp_path, lines)).turns
    assert [name for name, _ in said(turn)] == ["gym.context_message"] * 3 + ["gym.user_message"]


def test_what_a_user_says_may_look_like_a_tag(tmp_path: Path) -> None:
    lines = until(records("parallel_tools"), "token_usage_record")
    [asked] = [line for line in lines if "LANE:main do" in str(line["payload"].get("content"))]
    asked["payload"] = {**asked["payload"], "internal_chat_message_metadata_passthrough": None}
    asked["payload"]["content"] = [{"type": "input_text", "text": "<html>make it blue</html>"}]
    [turn] = only(write(tmp_path, lines)).turns
    assert said(turn)[-1][0] == "gym.user_message"


def test_what_another_agent_put_into_the_history_is_no_answer_of_the_model(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    notes = {"content_item_metadata": [{"provenance": {"type": "tool", "namespace": "multi_agent"}}]}
    payload = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "from a friend"}]}
    letter = {**payload, "internal_chat_message_metadata_passthrough": notes}
    place = len(until(lines, "token_usage_record"))
    lines.insert(place, {**lines[place - 1], "type": "response_item", "payload": letter})
    spans = only(write(tmp_path, lines))
    assert len(spans.chats) == 4
    assert said(spans.turns[0])[-1] == ("gym.context_message", payload)


def test_the_order_alone_parts_generations_where_no_number_does(tmp_path: Path) -> None:
    lines = [{**line, "metadata": None} for line in records("parallel_tools")]
    there, here = session("parallel_tools"), only(write(tmp_path, lines))
    assert [span.attributes["gym.output.items"] for span in here.chats] == [
        span.attributes["gym.output.items"] for span in there.chats
    ]


def test_turns_that_are_not_told_begin_with_what_the_user_says(tmp_path: Path) -> None:
    told = {"task_started", "task_complete"}
    lines = [line for line in records("resume") if line["payload"].get("type") not in told]
    spans = only(write(tmp_path, lines))
    assert [len(spans.below(turn)) for turn in spans.turns] == [2, 1]


def test_a_token_count_within_an_answer_does_not_part_it(tmp_path: Path) -> None:
    lines = records("parallel_tools")
    for place in (len(until(lines, "function_call", 2)), len(until(lines, "function_call"))):
        lines.insert(place, event(lines[:place], type="token_count", info=None))
    spans = only(write(tmp_path, lines))
    assert len(spans.chats) == 4 and len(attribute(spans.chats[0], "gym.output.items")) == 4
    assert spans.chats[0].attributes["gen_ai.response.id"] == "resp_fake000002"


def test_an_attempt_that_failed_has_its_items_and_no_usage() -> None:
    broken, whole = session("response_failed").chats
    assert broken.status == STATUS_ERROR
    assert attribute(broken, "gym.output.items")[0]["content"][0]["text"] == "partial"
    assert not any(name.startswith("gen_ai.usage.") for name in broken.attributes)
    assert "gen_ai.response.id" not in broken.attributes
    assert whole.attributes["gen_ai.response.id"] == "resp_fake000005"


def test_an_answer_that_hit_its_limit_says_so(tmp_path: Path) -> None:
    lines = until(records("parallel_tools"), "token_usage_record")
    error = {"message": "Incomplete response returned, reason: max_output_tokens", "codex_error_info": "other"}
    spans = only(write(tmp_path, [*lines, event(lines, type="task_complete", error=error)]))
    assert spans.chats[0].attributes["gen_ai.response.finish_reasons"] == ["max_output_tokens"]
    assert spans.chats[0].status != STATUS_ERROR and spans.turns[0].status == STATUS_ERROR


def test_a_turn_that_failed_says_why() -> None:
    spans = session("exhaust_500")
    [turn] = spans.turns
    assert turn.status == STATUS_ERROR and "high demand" in (turn.status_message or "")
    assert turn.attributes["error.type"] == "internal_server_error"
    assert turn.attributes["gym.turn.end"] == "failed"
    assert not spans.chats


def test_a_compaction_is_a_boundary_and_its_own_call_is_marked() -> None:
    spans = session("compaction_auto")
    kinds = [chat.attributes.get("gym.call.kind") for chat in spans.chats]
    assert kinds == [None, None, "compaction", None, None]
    assert spans.chats[2].attributes["gen_ai.response.id"] == "resp_fake000010"
    assert spans.chats[2].attributes["gen_ai.usage.output_tokens"] == 300
    [item] = [item for name, item in said(spans.turns[0]) if name == "gym.context_boundary"]
    boundary = boundary_of(item)
    assert (boundary.kind, boundary.boundary, boundary.keeps_instructions) == ("compaction", "replace", False)
    assert [message["role"] for message in boundary.content] == ["developer", "developer", "user", "user", "user"]
    assert boundary.content[-1]["content"][0]["text"].endswith("Summary: LANE:main ran echo one.")


def test_totals_are_those_that_codex_says_of_its_turns_and_no_estimate() -> None:
    [turn] = session("compaction_auto").turns
    assert attribute(turn, "gym.agent.provider_usage")["input_tokens"] == 257010
    assert turn.attributes["gym.agent.duration_ms"] == 475.0


def test_a_resumed_session_is_one_rollout_of_two_turns_and_a_fork_counts_nothing_twice() -> None:
    resumed, fork = map(Spans, read_codex(SESSIONS / "resume"))
    assert [len(resumed.below(turn)) for turn in resumed.turns] == [2, 1]
    assert [chat.attributes["gen_ai.response.id"] for chat in fork.chats] == ["resp_fake000012"]
    assert attribute(fork.turns[0], "gym.agent.provider_usage")["input_tokens"] == 10
    root = fork.all[0]
    assert root.attributes["gym.source.continues"] == resumed.rollout.session_id
    assert root.attributes["gym.source.continues_index"] == 29


def test_a_fork_begins_with_what_its_model_saw_of_the_session_that_it_continues() -> None:
    _, fork = map(Spans, read_codex(SESSIONS / "resume"))
    (name, item), *others = said(fork.turns[0])
    assert name == "gym.context_boundary" and item["kind"] == "fork"
    texts = [part["text"] for message in item["content"] if message["type"] == "message" for part in message["content"]]
    assert texts[-4:] == ["LANE:main first", "First.", "second", "Second."]
    assert [name for name, _ in others] == ["gym.user_message"]


def test_a_fork_whose_base_is_gone_says_so(tmp_path: Path) -> None:
    spans = only(write(tmp_path, records("resume", 1)))
    assert "01a229a9-83d2-7ad0-a33f-b3be2dc3fa47" in spans.rollout.damage[0]
    assert not [name for name, _ in said(spans.turns[0]) if name == "gym.context_boundary"]


def test_a_subagent_stands_within_the_call_that_spawned_it() -> None:
    spans = session("subagent")
    [child] = [turn for turn in spans.turns if "gen_ai.agent.id" in turn.attributes]
    spawning = spans.parent(child)
    assert spawning.name == "execute_tool spawn_agent"
    assert child.attributes["gym.spawned_by"] == spawning.attributes["gen_ai.tool.call.id"]
    assert [link.span_id for link in child.links] == [spawning.span_id]
    assert child.attributes["gen_ai.agent.id"] == "01a229a9-3d59-7932-bb5c-07d31c7a918c"
    assert [step.attributes["gym.step.index"] for step in spans.below(child)] == [1, 2]
    assert len(spans.chats) == 5


def test_a_subagent_alone_belongs_to_the_session_that_it_names(tmp_path: Path) -> None:
    spans = only(write(tmp_path, records("subagent", 1)))
    assert spans.rollout.session_id == "01a229a9-3cc2-73e1-8a33-1afb6db6151f"
    [turn] = spans.turns
    assert spans.parent(turn).name == "rollout" and "gym.spawned_by" not in turn.attributes


def test_a_subagent_whose_spawning_is_not_told_is_found_by_its_result_or_its_time(tmp_path: Path) -> None:
    root, child = records("subagent"), records("subagent", 1)
    write(tmp_path, child, "child")
    without_facts = [line for line in root if line["payload"].get("type") != "item_completed"]
    for lines in (without_facts, until(root, "function_call")):
        write(tmp_path, lines, "root")
        spans = only(tmp_path)
        [nested] = [turn for turn in spans.turns if "gen_ai.agent.id" in turn.attributes]
        assert spans.parent(nested).name == "execute_tool spawn_agent"


def test_a_notice_of_a_subagent_is_no_user_message() -> None:
    turn = session("subagent").turns[0]
    [notice] = [item for _, item in said(turn) if "subagent_notification" in item["content"][0]["text"]]
    assert ("gym.context_message", notice) in said(turn)


def test_a_session_that_was_killed_while_tools_ran_leaves_them_open_and_without_result(tmp_path: Path) -> None:
    spans = only(write(tmp_path, until(records("parallel_tools"), "token_usage_record")))
    assert spans.chats[0].end_ns is not None and spans.chats[0].attributes["gen_ai.response.id"] == "resp_fake000002"
    still_open = [span.name for span in spans.all if span.end_ns is None]
    assert still_open == ["rollout", "invoke_agent codex", "agent_step", *["execute_tool exec_command"] * 2]
    assert not any("gen_ai.tool.call.result" in tool.attributes for tool in spans.tools)


def test_a_generation_that_was_killed_is_open_and_has_what_was_written(tmp_path: Path) -> None:
    [chat] = only(write(tmp_path, until(records("parallel_tools"), "function_call"))).chats
    assert chat.end_ns is None
    assert len(attribute(chat, "gym.output.items")) == 3
    assert "gen_ai.response.id" not in chat.attributes and "gym.usage.provider" not in chat.attributes


def test_a_tool_that_the_user_stopped_did_not_fail(tmp_path: Path) -> None:
    lines = until(records("parallel_tools"), "token_usage_record")
    call = next(line for line in lines if line["payload"].get("type") == "function_call")["payload"]["call_id"]
    output = {"type": "function_call_output", "call_id": call, "output": "aborted by user after 0.5s"}
    lines.append({**lines[-1], "ordinal": 16, "type": "response_item", "payload": output})
    lines.append(event(lines, type="turn_aborted", reason="interrupted"))
    item = {"type": "CommandExecution", "id": call, "status": "failed", "exit_code": -1}
    lines.append(event(lines, type="item_completed", item=item))
    spans = only(write(tmp_path, lines))
    assert [attribute(tool, "gym.tool.extra")["aborted"] for tool in spans.tools] == [True, True]
    assert not any(span.status == STATUS_ERROR for span in spans.all)
    assert spans.turns[0].attributes["gym.turn.end"] == "interrupted"
    assert not any(span.end_ns is None for span in spans.all)


def test_a_session_file_may_be_renamed(tmp_path: Path) -> None:
    path = write(tmp_path, records("parallel_tools")).rename(tmp_path / "mine.jsonl")
    assert only(path).rollout.session_id == "01a229a6-eaf6-7040-8b61-dc2aef923967"


def test_what_is_not_understood_is_left_out_counted_and_named(tmp_path: Path) -> None:
    lines = until(records("parallel_tools"), "token_usage_record")
    later = [{**lines[-1], "type": "telepathy"}, event(lines, type="mind_read"), "{broken\n", '{"type":']
    path = write(tmp_path, [*lines, *later])
    spans = only(path)
    assert spans.turns[0].attributes["gym.agent.dropped_records"] == 4
    assert len(spans.rollout.damage) == 4
    assert all(text.startswith(f"{path}, line ") for text in spans.rollout.damage)
    assert len(spans.chats) == 1


def test_an_item_of_an_unknown_type_stays_in_the_model_input(tmp_path: Path) -> None:
    lines = until(records("parallel_tools"), "token_usage_record")
    lines.append({**lines[-1], "type": "response_item", "payload": {"type": "hologram", "id": "h"}})
    [turn] = only(write(tmp_path, lines)).turns
    assert said(turn)[-1] == ("gym.context_message", {"type": "hologram", "id": "h"})
    assert turn.attributes["gym.agent.dropped_records"] == 1
