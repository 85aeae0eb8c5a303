"""The stream-json output of Claude Code: what it does not say is null."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gym.ingest.claude_code import read_claude_code
from tests.ingest.sessions import RECORDED, Spans, extra, items, read


def test_the_output_of_a_message_is_not_the_1_that_it_began_with() -> None:
    spans = read(RECORDED / "parallel_tools.stream.jsonl")
    first = spans.chats[0]
    assert spans.all[0].attributes["gym.source"] == "stream_json"
    assert "gen_ai.usage.output_tokens" not in first.attributes
    assert "output_tokens" not in json.loads(first.attributes["gym.usage.provider"])
    assert first.attributes["gen_ai.usage.input_tokens"] == 3 + 22951
    assert "gen_ai.response.finish_reasons" not in first.attributes


def test_newer_versions_give_times_request_ids_and_facts_of_tools() -> None:
    spans = read(RECORDED / "parallel_tools.stream.jsonl")
    paris = spans.tool("toolu_fake000003")
    assert (paris.end_ns - paris.start_ns) // 10**6 == 1582
    assert extra(paris)["has_stdout"] is True
    assert spans.chats[0].attributes["gym.request.id"] == "req_fake000001"
    assert [item["type"] for item in items(spans.chats[0])] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]


def test_partial_messages_bring_the_last_word_on_usage() -> None:
    spans = read(RECORDED / "partial_messages.stream.jsonl")
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in spans.chats] == [20, 20]
    assert [span.attributes["gen_ai.response.finish_reasons"] for span in spans.chats] == [["tool_use"], ["end_turn"]]
    assert spans.turns[-1].attributes["gym.agent.total_cost_usd"] > 0


def test_an_old_stream_without_times_is_marked_so() -> None:
    spans = read(RECORDED / "subagent_2.0.70.stream.jsonl")
    assert all(span.attributes["gym.time.known"] is False for span in spans.all)
    assert all(span.start_ns == span.end_ns for span in spans.all)
    called = spans.turns[1]
    assert called.attributes["gym.spawned_by"] == "toolu_fake000003"
    assert called.parent_span_id == spans.tool("toolu_fake000003").span_id


def test_a_folder_with_transcripts_does_not_count_its_streams_too(tmp_path: Path) -> None:
    for name in ("parallel_tools.jsonl", "parallel_tools.stream.jsonl"):
        (tmp_path / name).write_bytes((RECORDED / name).read_bytes())
    assert [rollout.source for rollout in read_claude_code(tmp_path)] == ["transcript"]


@pytest.mark.parametrize(("version", "cost"), [("2.1.199", 0.75), ("2.1.332", 0.25)])
def test_a_run_that_was_resumed_prints_two_streams_of_one_session(tmp_path: Path, version: str, cost: float) -> None:
    """Newer versions say in the second one what both cost."""

    def stream(name: str, message_id: str, cost: float) -> None:
        said = {"duration_ms": 10, "total_cost_usd": cost, "modelUsage": {}}
        records = [
            {"type": "system", "subtype": "init", "session_id": "S1", "claude_code_version": version},
            {"type": "assistant", "session_id": "S1", "message": {"id": message_id, "content": []}},
            {"type": "result", "session_id": "S1", "subtype": "success", **said},
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)) + "\n")

    stream("stdout.0.jsonl", "m1", 0.5)
    stream("stdout.1.jsonl", "m2", 0.25)
    [rollout] = read_claude_code(tmp_path)
    spans = Spans(rollout)
    assert len(spans.turns) == len(spans.chats) == 2
    assert spans.turns[-1].attributes["gym.agent.duration_ms"] == 20
    assert spans.turns[-1].attributes["gym.agent.total_cost_usd"] == cost


def test_text_between_the_records_is_counted_and_one_object_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "stdout.jsonl"
    path.write_text('{ resource: {\n{"type":"result","session_id":"S1","modelUsage":{"m":{}},"total_cost_usd":0.5}\n')
    [rollout] = read_claude_code(path)
    [turn] = Spans(rollout).turns
    assert turn.attributes["gym.agent.total_cost_usd"] == 0.5
    assert turn.attributes["gym.agent.dropped_records"] == 1
