"""What ``codex exec --json`` printed → spans: less is known, and nothing is made up."""

from __future__ import annotations

import shutil
from pathlib import Path

from otel_gym.ingest.codex import read_codex
from otel_gym.store.span import STATUS_ERROR
from tests.ingest.codex_sessions import PRINTED, SESSIONS, attribute, only


def test_times_and_usage_of_single_calls_are_unknown() -> None:
    spans = only(PRINTED / "ephemeral")
    assert spans.rollout.source == "stream_json"
    assert all(span.attributes["gym.time.known"] is False for span in spans.all)
    assert len(spans.chats) == 2
    for chat in spans.chats:
        assert chat.name == "chat"
        assert not any(name.startswith(("gen_ai.usage.", "gen_ai.response.")) for name in chat.attributes)
        assert "gym.usage.provider" not in chat.attributes


def test_usage_belongs_to_the_run() -> None:
    [turn] = only(PRINTED / "ephemeral").turns
    assert attribute(turn, "gym.agent.provider_usage")["output_tokens"] == 40


def test_the_usage_of_a_resumed_thread_is_summed_up_already() -> None:
    spans = only(PRINTED / "resume")
    assert len(spans.turns) == 2
    assert attribute(spans.turns[-1], "gym.agent.provider_usage")["input_tokens"] == 30
    assert "gym.agent.provider_usage" not in spans.turns[0].attributes


def test_a_tool_has_its_result_and_a_fault_is_an_event() -> None:
    spans = only(PRINTED / "errors_retry")
    [tool] = spans.tools
    assert attribute(tool, "gen_ai.tool.call.result") == {"content": "after\n"}
    assert attribute(tool, "gym.tool.extra")["exit_code"] == 0
    assert attribute(tool, "gen_ai.tool.call.arguments") == {"command": "/bin/bash -lc 'echo after'"}
    assert tool.attributes["gym.tool.index"] == 1
    faults = [event.attributes["exception.message"] for event in spans.turns[0].events]
    assert len(faults) == 2 and all("429" in fault for fault in faults)


def test_a_turn_that_failed_and_one_that_was_killed(tmp_path: Path) -> None:
    started = '{"type":"thread.started","thread_id":"t"}\n{"type":"turn.started"}\n'
    item = '{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"sleep 9"}}\n'
    path = tmp_path / "stdout.jsonl"
    path.write_text(started + item)
    spans = only(path)
    assert spans.tools[0].end_ns is None and "gen_ai.tool.call.result" not in spans.tools[0].attributes
    path.write_text(started + '{"type":"turn.failed","error":{"message":"no more"}}\n')
    [turn] = only(path).turns
    assert turn.status == STATUS_ERROR and turn.status_message == "no more"


def test_a_session_file_of_the_same_thread_tells_more(tmp_path: Path) -> None:
    shutil.copytree(SESSIONS / "resume", tmp_path, dirs_exist_ok=True)
    for path in (PRINTED / "resume").iterdir():
        shutil.copy(path, tmp_path)
    assert [rollout.source for rollout in read_codex(tmp_path)] == ["transcript", "transcript"]


def test_lines_that_are_no_events_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text((PRINTED / "ephemeral" / "stdout.jsonl").read_text() + 'done\n{"type":"mind.read"}\n')
    spans = only(path)
    assert len(spans.rollout.damage) == 2
    assert spans.turns[0].attributes["gym.agent.dropped_records"] == 2
