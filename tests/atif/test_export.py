"""Trajectories → ATIF: valid by the public models and by our lint, with totals that add up."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import atif
import pytest
from hypothesis import HealthCheck, given, settings

from otel_gym.ingest.atif import read_atif
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.atif_lint import errors, lint
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage
from otel_gym.records.trajectory import AgentTelemetry, Trajectory, trajectory_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import AtifExport, atif_of
from otel_gym.views.trajectory import trajectories
from otel_gym.wire.items.shapes import Item, function_call_item, message_item, reasoning_item
from otel_gym.wire.usage import TokenStats
from tests.atif.documents import Json, valid_documents
from tests.trajectory.running_example import BERLIN, PARIS, built, from_spans, iso

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\npixel").decode()


def written(export: AtifExport) -> dict[str, Any]:
    """The main document as it lies on disk; every file has to be valid, and without any finding but missing results."""
    files = export.files()
    for name in export.documents:
        value = json.loads(files[name])
        atif.Trajectory.model_validate(value)
        assert [str(each) for each in lint(value) if not each.text.startswith("no observation")] == []
    main: dict[str, Any] = json.loads(files["trajectory.json"])
    return main


def trajectory(*entries: Entry, **telemetry: Any) -> Trajectory:
    return trajectory_of(entries, AgentTelemetry(agent="toy", source="in_process", **telemetry))


def says(text: str) -> UserMessage:
    return UserMessage(message_item("user", text))


def answers(text: str = "ok", **fields: Any) -> AgentStep:
    return AgentStep(items=[message_item("assistant", text)], model="m", **fields)


def calls(*made: tuple[str | None, str], gave: tuple[ToolResult, ...] = ()) -> AgentStep:
    return AgentStep(items=[function_call_item(name, "ls", {"p": arg}) for name, arg in made], results=list(gave))


@pytest.mark.parametrize("example", [built, from_spans])
def test_the_running_example(example: Any) -> None:
    value = written(atif_of(example(), rollout_id="0-0", run_id="run", reward=1.0, agent_version="2"))
    assert [(step["source"], step["message"]) for step in value["steps"]] == [
        ("user", PARIS),
        ("agent", ""),
        ("agent", "21 degrees."),
        ("user", BERLIN),
        ("agent", ""),
        ("agent", "I could not find out."),
    ]
    assert (value["schema_version"], value["session_id"], value["trajectory_id"]) == ("ATIF-v1.7", "s-1", "0-0")
    assert value["agent"] == {"name": "weather", "version": "2", "model_name": "m"}
    third = value["steps"][4]
    assert third["tool_calls"] == [
        {"tool_call_id": "c2", "function_name": "get_weather", "arguments": {"city": "Berlin"}}
    ]
    assert third["metrics"]["prompt_tokens"] == 172
    assert third["metrics"]["cached_tokens"] == 160
    assert "cost_usd" not in third["metrics"]
    [result] = third["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == ("c2", "no such city")
    assert result["extra"]["duration_ms"] == 2000.0
    assert result["extra"]["error"] == {"message": "lookup failed", "data": {"code": 404}}
    assert third["extra"]["response_id"] == "r3"
    assert third["extra"]["request_id"] == "q3"
    assert value["steps"][1]["reasoning_content"] == "I have to ask."
    assert value["final_metrics"]["total_prompt_tokens"] == 150 + 160 + 172 + 199
    assert value["final_metrics"]["total_completion_tokens"] == 20 + 8 + 21 + 7
    assert value["extra"]["reward"] == 1.0
    assert (value["extra"]["rollout_id"], value["extra"]["run_id"]) == ("0-0", "run")
    assert value["extra"]["complete"] is True


def test_a_step_carries_the_ids_of_its_spans_r091() -> None:
    step = written(atif_of(from_spans(), rollout_id="0-0"))["steps"][1]
    assert len(step["extra"]["trace_id"]) == 32
    assert len(step["extra"]["span_id"]) == 16


def test_failed_and_unfinished_calls_are_steps_r090() -> None:
    killed = trajectory(
        says("go"),
        answers(usage=TokenStats(tokens_in=5, tokens_out=1)),
        AgentStep(error="upstream_error"),
        AgentStep(started_at=iso(10), is_unfinished=True),
    )
    value = written(atif_of(killed, rollout_id="0-0"))
    steps = [step for step in value["steps"] if step["source"] == "agent"]
    assert len(steps) == 3
    assert steps[1]["extra"] == {"error": "upstream_error"}
    assert steps[2]["extra"] == {"started_at": iso(10), "unfinished": True}
    assert "metrics" not in steps[1]
    assert value["extra"]["complete"] is False
    assert value["final_metrics"]["total_prompt_tokens"] == 5
    assert value["final_metrics"]["extra"]["generations_without_usage"] == 2


def test_a_run_that_ended_before_anything_is_a_valid_document_too() -> None:
    value = written(atif_of(Trajectory(), rollout_id="0-0"))
    assert value["extra"]["complete"] is False
    assert value["agent"] == {"name": "unknown", "version": "unknown"}


def test_a_compaction_is_a_step_of_its_own_r088() -> None:
    summary = [message_item("user", "summary")]
    boundary = ContextBoundary(summary, trigger="auto")
    told = trajectory(says("u1"), answers("a1"), says("u2"), boundary, says("u3"), answers())
    value = written(atif_of(told, rollout_id="0-0"))
    [made] = [step for step in value["steps"] if step["source"] == "system"]
    assert made["observation"] == {"results": [{"content": "summary"}]}
    managed = made["extra"]["context_management"]
    assert (managed["type"], managed["boundary"], managed["trigger"]) == ("compaction", "replace", "auto")


def test_what_comes_after_a_compaction_may_be_a_file_of_its_own() -> None:
    summary = [message_item("user", "summary")]
    usage = TokenStats(tokens_in=7, tokens_out=1)
    told = trajectory(
        UserMessage(message_item("system", "be brief")),
        says("u1"),
        answers(usage=usage),
        ContextBoundary(summary),
        says("u2"),
        answers(usage=usage),
    )
    export = atif_of(told, rollout_id="0-0", session_id="s", continue_in_files=True)
    main = written(export)
    assert list(export.documents) == ["trajectory.json", "trajectory.cont-1.json"]
    assert main["continued_trajectory_ref"] == "trajectory.cont-1.json"
    assert main["final_metrics"]["total_prompt_tokens"] == 7
    second = json.loads(export.files()["trajectory.cont-1.json"])
    assert second["session_id"] == "s-cont-1"
    assert second["agent"]["extra"] == {"continuation_index": 1}
    assert [(step["message"], step.get("is_copied_context")) for step in second["steps"]] == [
        ("be brief", True),
        ("summary", True),
        ("u2", None),
        ("ok", None),
    ]
    assert "continued_trajectory_ref" not in second


def subagent(name: str, spawned_by: str | None, cost: float) -> Trajectory:
    made = trajectory(says("sub"), answers(usage=TokenStats(tokens_in=100, tokens_out=1), extra={"cost_usd": cost}))
    return made.model_copy(update={"agent_id": name, "spawned_by": spawned_by})


def spawning() -> Trajectory:
    parent = trajectory(
        says("go"),
        calls(("t1", "a"), ("t2", "b"), gave=(ToolResult("t1", "done"),)),
        answers(usage=TokenStats(tokens_in=5, tokens_out=2), extra={"cost_usd": 1.0}),
    )
    nested = subagent("a", "t1", 0.25)
    nested.subagents = [subagent("a", None, 0.5)]
    parent.subagents = [nested, subagent("b", "t2", 0.125)]
    return parent


def test_subagents_are_embedded_and_referred_to_by_the_call() -> None:
    value = written(atif_of(spawning(), rollout_id="0-0", session_id="s"))
    assert [each["trajectory_id"] for each in value["subagent_trajectories"]] == ["0-0.a", "0-0.b"]
    first, second = value["steps"][1]["observation"]["results"]
    assert (first["source_call_id"], first["content"]) == ("t1", "done")
    assert first["subagent_trajectory_ref"] == [{"trajectory_id": "0-0.a", "session_id": "s"}]
    assert second == {
        "source_call_id": "t2",
        "subagent_trajectory_ref": [{"trajectory_id": "0-0.b", "session_id": "s"}],
    }
    totals = value["final_metrics"]
    assert totals["total_prompt_tokens"] == 5  # tokens are each document's own
    assert totals["total_cost_usd"] == 1.0 + 0.25 + 0.5 + 0.125


def test_subagents_of_a_long_run_were_compared_whole_to_find_the_file_of_each() -> None:
    """Each stands in the file that refers to it first, though they are alike; what nothing refers to, in the last."""
    told = trajectory(
        says("go"),
        calls(("t1", "a"), ("t2", "b")),
        ContextBoundary([message_item("user", "summary")]),
        calls(("t3", "c")),
        answers(),
    )
    told.subagents = [subagent("x", spawned_by, 0.25) for spawned_by in ("t3", "t1", None, "t2")]
    export = atif_of(told, rollout_id="0-0", continue_in_files=True)
    first, second = (json.loads(content) for content in export.files().values())
    assert [each["trajectory_id"] for each in first["subagent_trajectories"]] == ["0-0.x-2", "0-0.x-4"]
    assert [each["trajectory_id"] for each in second["subagent_trajectories"]] == ["0-0.x", "0-0.x-3"]
    assert [each["final_metrics"]["total_cost_usd"] for each in (first, second)] == [0.5, 0.5]


def test_subagents_may_be_files_beside_the_document() -> None:
    export = atif_of(spawning(), rollout_id="0-0", embed_subagents=False)
    value = written(export)
    assert "subagent_trajectories" not in value
    names = {
        ref["trajectory_path"]
        for r in value["steps"][1]["observation"]["results"]
        for ref in r["subagent_trajectory_ref"]
    }
    assert names < export.files().keys()
    assert len(export.documents) == 4


def test_a_call_id_that_is_no_text_joins_nothing() -> None:
    odd: Any = {"a": 1}
    told = trajectory(says("go"), calls(("b", "x"), ("c", "y"), gave=(ToolResult("b", "done"),)))
    for item in told.output:
        if item.get("call_id") == "b":
            item["call_id"] = odd
    step = written(atif_of(told, rollout_id="0-0"))["steps"][1]
    assert [each["tool_call_id"] for each in step["tool_calls"]] == ["call-1", "c"]
    [found] = step["observation"]["results"]
    assert (found.get("source_call_id"), found["extra"]["tool_call_id"]) == (None, odd)


def test_equal_call_ids_in_a_step_are_told_apart_and_the_mapping_is_kept_r086() -> None:
    step = calls(
        ("call_0", "a"), ("call_0", "b"), (None, "c"), gave=(ToolResult("call_0", "A"), ToolResult("call_0", "B"))
    )
    stray = ToolResult("call_9", "?")
    step.results.append(stray)
    value = written(atif_of(trajectory(says("go"), step), rollout_id="0-0"))
    made = value["steps"][1]
    assert [each["tool_call_id"] for each in made["tool_calls"]] == ["call_0", "call_0-2", "call-1"]
    assert made["extra"]["tool_call_ids"] == {"call_0-2": "call_0", "call-1": None}
    found = [(each.get("source_call_id"), each["content"]) for each in made["observation"]["results"]]
    assert found == [("call_0", "A"), ("call_0-2", "B"), (None, "?")]
    assert made["observation"]["results"][2]["extra"]["tool_call_id"] == "call_9"


def test_tokens_and_log_probabilities_where_they_were_captured() -> None:
    extra = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5], "cost_usd": 0.1}
    usage = TokenStats(tokens_in=2, tokens_out=1, tokens_reasoning=1, tokens_total=3, cached_tokens=0)
    value = written(atif_of(trajectory(says("go"), answers(usage=usage, extra=extra)), rollout_id="0-0"))
    assert value["steps"][1]["metrics"] == {
        "prompt_tokens": 2,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "cost_usd": 0.1,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3],
        "logprobs": [-0.5],
        "extra": {"reasoning_tokens": 1, "total_tokens": 3},
    }
    assert "extra" not in value["steps"][1]


def test_log_probabilities_of_other_tokens_are_not_written() -> None:
    extra = {"completion_token_ids": [3, 4], "logprobs": [-0.5]}
    value = written(atif_of(trajectory(says("go"), answers(extra=extra)), rollout_id="0-0"))
    assert value["steps"][1]["metrics"] == {"completion_token_ids": [3, 4]}


def test_media_lie_in_files_and_never_in_the_document() -> None:
    parts: list[Item] = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {"type": "input_image", "image_url": "https://example.invalid/a.jpg?x=1"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_image", "image_url": "data:image/png;base64,%%%"},
    ]
    export = atif_of(trajectory(says_parts(parts), answers()), rollout_id="0-0")
    value = written(export)
    [path] = export.media
    assert path.startswith("images/") and path.endswith(".png")
    assert export.media[path] == base64.b64decode(PIXEL)
    assert [part.get("source", part.get("text")) for part in value["steps"][0]["message"]] == [
        "look",
        {"media_type": "image/png", "path": path},
        {"media_type": "image/jpeg", "path": "https://example.invalid/a.jpg?x=1"},
        "[input_image]",
        "[input_image]",
    ]
    assert PIXEL not in json.dumps(value)
    assert value["schema_version"] == "ATIF-v1.7"


def says_parts(parts: list[Item]) -> UserMessage:
    return UserMessage(message_item("user", parts))


def test_audio_makes_it_1_8() -> None:
    part = {"type": "input_audio", "input_audio": {"format": "wav", "data": base64.b64encode(b"RIFF").decode()}}
    value = written(atif_of(trajectory(says_parts([part]), answers()), rollout_id="0-0"))
    assert value["schema_version"] == "ATIF-v1.8"
    assert value["steps"][0]["message"][0]["source"]["media_type"] == "audio/wav"


def test_1_8_is_written_when_asked_for_and_older_ones_are_not() -> None:
    assert written(atif_of(built(), rollout_id="0-0", version="ATIF-v1.8"))["schema_version"] == "ATIF-v1.8"
    with pytest.raises(ValueError, match=r"ATIF-v1\.4 is not written"):
        atif_of(built(), rollout_id="0-0", version="ATIF-v1.4")  # type: ignore[arg-type]


def test_arguments_that_are_no_object_are_given_as_they_came() -> None:
    items = [
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": '{"p": '},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "*** Begin"},
        {"type": "web_search_call", "id": "ws_1"},
        reasoning_item("hm"),
    ]
    value = written(atif_of(trajectory(says("go"), AgentStep(items=items)), rollout_id="0-0"))
    first, second = value["steps"][1]["tool_calls"]
    assert (first["arguments"], first["extra"]) == ({}, {"raw_arguments": '{"p": '})
    assert second["arguments"] == {"input": "*** Begin"}
    assert value["steps"][1]["extra"]["other_items"] == [{"type": "web_search_call", "id": "ws_1"}]


def test_a_plain_responses_payload_is_one_answer_a_step() -> None:
    output: list[Any] = [
        message_item("user", "go"),
        reasoning_item("hm"),
        function_call_item("a", "ls", {}),
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        message_item("assistant", "done"),
    ]
    value = written(atif_of(Trajectory.model_validate({"output": output}), rollout_id="0-0"))
    assert [step["source"] for step in value["steps"]] == ["user", "agent", "agent"]
    assert value["steps"][1]["observation"] == {"results": [{"source_call_id": "a", "content": "x"}]}
    assert "llm_call_count" not in value["steps"][1]


def test_times_never_go_back_and_texts_are_well_formed() -> None:
    told = trajectory(says("a \ud800 b"), answers(started_at=iso(5)), answers(started_at=iso(3)))
    value = written(atif_of(told, rollout_id="0-0"))
    assert [step.get("timestamp") for step in value["steps"]] == [None, iso(5), None]
    assert value["steps"][2]["extra"]["started_at"] == iso(3)
    assert value["steps"][0]["message"] == "a \ufffd b"


def test_what_the_harness_says_of_the_cost_is_the_total_where_no_step_says_its_own() -> None:
    value = written(atif_of(trajectory(says("go"), answers(), total_cost_usd=0.5), rollout_id="0-0"))
    assert value["final_metrics"]["total_cost_usd"] == 0.5


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(valid_documents())
def test_what_was_imported_is_written_as_a_document_that_is_valid(tmp_path: Path, value: Json) -> None:
    (tmp_path / "trajectory.json").write_text(json.dumps(value))
    [rollout] = read_atif(tmp_path / "trajectory.json")
    for read in trajectories(RolloutSpans(None, "r", stored_spans(rollout))):
        for embeds in (True, False):
            export = atif_of(read, rollout_id="r", embed_subagents=embeds, continue_in_files=True)
            for name in export.documents:
                made = json.loads(export.files()[name])
                atif.Trajectory.model_validate(made)
                assert errors(made) == []


def test_our_own_document_is_read_as_the_trajectory_that_it_was_written_from(tmp_path: Path) -> None:
    boundary = ContextBoundary([message_item("user", "sum")], trigger="auto", tokens_before=9, keeps_instructions=False)
    ran = ToolResult("c", "x", iso(2), iso(3), 1000.0, error_message="no", error_data={"code": 1})
    step = calls(("c", "a"), gave=(ran,))
    step.started_at, step.ended_at = iso(1), iso(2)
    step.stop_reason, step.response_id, step.request_id = "tool_use", "r", "q"
    killed = AgentStep(started_at=iso(5), is_unfinished=True)
    told = trajectory(
        says("go"), step, boundary, AgentStep(error="timeout", started_at=iso(4), ended_at=iso(5)), killed
    )
    for path, content in atif_of(told, rollout_id="0-0", reward=0.5).files().items():
        (tmp_path / path).write_bytes(content)
    [rollout] = read_atif(tmp_path)
    spans = stored_spans(rollout)
    [again] = trajectories(RolloutSpans(None, rollout.identity_id, spans))
    assert again.items()[:4] == told.items()[:4]
    names = {"stop_reason", "response_id", "request_id", "started_at", "ended_at", "error", "unfinished"}
    assert [each.model_dump(include=names) for each in again.generations] == [
        each.model_dump(include=names) for each in told.generations
    ]
    assert again.complete is False
    assert spans[0].attributes["gym.reward"] == 0.5


def test_a_step_of_tools_alone_claims_no_model_call() -> None:
    alone = AgentStep(items=[function_call_item("c", "ls", {})], results=[ToolResult("c", "ok")])
    first, second = written(atif_of(trajectory(alone, answers()), rollout_id="0-0"))["steps"]
    assert "llm_call_count" not in first
    assert second["llm_call_count"] == 1
