"""ATIF → spans → ATIF: what comes back is what was read, and no attribute holds more than a field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from otel_gym import conventions as names
from otel_gym.content_policy import ContentPolicy
from otel_gym.ingest.atif import AtifError, read_atif
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.spans import stored_spans, write_rollout
from otel_gym.records.atif_fields import Json
from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.store.span import StoredSpan
from otel_gym.views.atif_spans import atif_files_of_spans, atif_of_spans
from otel_gym.views.trajectory import trajectories
from tests.atif.documents import FIXTURES, VALID, agent, call, document, read, results, user, valid_documents


def imported(folder: Path, value: Any, name: str = "trajectory.json") -> ImportedRollout:
    (folder / name).write_text(json.dumps(value))
    [rollout] = read_atif(folder / name)
    return rollout


def spans_of(folder: Path, value: Any) -> list[StoredSpan]:
    return stored_spans(imported(folder, value))


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("path", [*VALID, *sorted((FIXTURES / "reports").glob("*.json"))], ids=lambda path: path.stem)
def test_a_document_comes_back_as_it_was(path: Path) -> None:
    [rollout] = read_atif(path)
    assert same(atif_of_spans(stored_spans(rollout)), read(path))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100, deadline=None
)
@given(valid_documents())
def test_any_valid_document_comes_back_as_it_was(tmp_path: Path, value: Json) -> None:
    assert atif_of_spans(spans_of(tmp_path, value)) == value


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_no_attribute_holds_a_step_or_a_document(path: Path) -> None:
    [rollout] = read_atif(path)
    for span in stored_spans(rollout):
        for attributes in (span.attributes, *(event.attributes for event in span.events)):
            assert not [
                value for value in attributes.values() if "step_id" in str(value) or "schema_version" in str(value)
            ]


def test_it_also_comes_back_from_a_store(tmp_path: Path) -> None:
    path = FIXTURES / "valid" / "02_tool_roundtrip.json"
    [rollout] = read_atif(path)
    assert write_rollout(tmp_path, rollout).new == len(rollout.spans)
    again = write_rollout(tmp_path, read_atif(path)[0])
    assert (again.new, again.changed) == (0, 0)
    assert same(atif_of_spans(open_store(tmp_path).spans(rollout.identity_id)), read(path))


def test_a_step_is_a_span_with_its_model_call_and_its_tools(tmp_path: Path) -> None:
    spans = stored_spans(read_atif(FIXTURES / "valid" / "02_tool_roundtrip.json")[0])
    assert [span.name for span in spans] == [
        "rollout",
        "invoke_agent otel-gym-test",
        "agent_step",
        "chat m-1",
        "execute_tool get_weather",
        "agent_step",
        "chat",
    ]
    chat = spans[3].attributes
    assert chat["gen_ai.usage.input_tokens"] == 120
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 64
    assert chat["gen_ai.usage.reasoning.output_tokens"] == 4
    assert chat["gen_ai.request.reasoning.level"] == "low"
    assert spans[4].attributes["gen_ai.tool.call.result"] == '{"content":"72F, sunny"}'
    assert names.TIME_KNOWN not in spans[3].attributes
    assert spans[5].attributes[names.TIME_KNOWN] is False
    assert spans[0].resource["service.name"] == "otel-gym-test"
    assert {span.attributes[names.SOURCE] for span in spans} == {"atif"}


def test_a_trajectory_is_read_from_the_same_spans(tmp_path: Path) -> None:
    found = results({"source_call_id": "c2", "content": "B"})
    spans = spans_of(
        tmp_path,
        document(
            user("look"),
            agent("", tool_calls=[call("c1"), call("c2")], observation=found),
            agent("done", metrics={"prompt_tokens": 7, "completion_tokens": 2, "cost_usd": 0.5}),
            user("thanks"),
            agent("bye"),
        ),
    )
    [trajectory] = trajectories(RolloutSpans(None, "s", spans))
    assert [(item["type"], item.get("agent_step_no")) for item in trajectory.items()] == [
        ("message", None),
        ("function_call", 1),
        ("function_call", 1),
        ("function_call_output", 1),
        ("message", 2),
        ("message", None),
        ("message", 3),
    ]
    assert trajectory.usage.input_tokens == 7
    assert trajectory.generations[1].extra["cost_usd"] == 0.5
    assert [span.name for span in spans].count("invoke_agent toy") == 2  # a turn each


def test_copied_steps_are_context_and_not_counted(tmp_path: Path) -> None:
    rollout = imported(tmp_path, read(FIXTURES / "reports" / "R087.json"))
    [trajectory] = trajectories(RolloutSpans(None, "s2", stored_spans(rollout)))
    assert (trajectory.usage.input_tokens, trajectory.usage.output_tokens) == (30, 6)
    assert [item["role"] for item in trajectory.items()] == ["user", "assistant", "assistant"]
    assert trajectory.agent_telemetry.num_agent_steps == 1


def test_a_boundary_says_what_was_kept(tmp_path: Path) -> None:
    rollout = imported(tmp_path, read(FIXTURES / "valid" / "06_compaction_boundary.json"))
    [trajectory] = trajectories(RolloutSpans(None, "s", stored_spans(rollout)))
    [boundary] = [item for item in trajectory.items() if item["type"] == "context_boundary"]
    assert (boundary["kind"], boundary["boundary"]) == ("compaction", "replace")
    assert boundary["content"][0]["content"] == [{"type": "input_text", "text": "Summary: ..."}]


def test_a_subagent_stands_below_the_call_that_spawned_it() -> None:
    spans = stored_spans(read_atif(FIXTURES / "valid" / "04_embedded_subagent.json")[0])
    by_id = {span.span_id: span for span in spans}
    [spawned] = [span for span in spans if span.attributes.get(names.SPAWNED_BY) == "t1"]
    assert by_id[spawned.parent_span_id or ""].name == "execute_tool task"
    assert spawned.links[0].span_id == spawned.parent_span_id
    [trajectory] = trajectories(RolloutSpans(None, "r", spans))
    assert [(each.agent_id, each.spawned_by) for each in trajectory.subagents] == [("sub-a", "t1"), ("sub-b", None)]


def test_files_that_go_on_and_those_of_subagents_are_one_rollout(tmp_path: Path) -> None:
    ref = {"subagent_trajectory_ref": [{"trajectory_path": "trajectory.summarization-1-summary.json"}]}
    files = {
        "trajectory.json": document(
            user(),
            agent("a"),
            {"source": "system", "message": "summed up", "observation": results(ref)},
            continued_trajectory_ref="trajectory.cont-1.json",
        ),
        "trajectory.cont-1.json": document(user(is_copied_context=True), agent("b"), session_id="s-cont-1"),
        "trajectory.summarization-1-summary.json": document(user("sum up"), agent("sum"), session_id="s-sum"),
    }
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    (tmp_path / "result.json").write_text('{"reward": 1}')
    [rollout] = read_atif(tmp_path)
    assert (rollout.identity_id, rollout.damage) == ("s", [])
    assert atif_files_of_spans(stored_spans(rollout)) == files
    [trajectory] = trajectories(RolloutSpans(None, "s", stored_spans(rollout)))
    assert [generation.agent_step_no for generation in trajectory.generations] == [1, 2]
    assert len(trajectory.subagents) == 1
    [alone] = read_atif(tmp_path / "trajectory.json")
    assert len(alone.spans) == len(rollout.spans)


def test_a_file_that_is_referred_to_and_missing_is_said() -> None:
    [rollout] = read_atif(FIXTURES / "valid" / "07_continuation.json")
    assert rollout.identity_id == "run-1-cont-1"  # one of several that may continue run-1
    assert "trajectory.cont-2.json" in rollout.damage[0] and "put it there" in rollout.damage[0]


def test_a_wrapper_is_opened_and_a_session_finds_its_subagent_as_before_1_7(tmp_path: Path) -> None:
    child = document(user("sub"), agent("done"), schema_version="ATIF-v1.6", session_id="child")
    ref = {"source_call_id": "c", "subagent_trajectory_ref": [{"session_id": "child"}]}
    parent = document(user(), agent("", tool_calls=[call("c")], observation=results(ref)), schema_version="ATIF-v1.6")
    rollout = imported(tmp_path, {"parent": parent, "child": child}, "both.json")
    assert atif_files_of_spans(stored_spans(rollout)) == {"both.json#parent": parent, "both.json#child": child}
    assert rollout.damage == []


def test_a_reference_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(document(user())))
    (tmp_path / "run").mkdir()
    for name in ("../other.json", str(tmp_path / "other.json"), "a\0b", "x" * 5000):
        rollout = imported(tmp_path / "run", document(user(), continued_trajectory_ref=name))
        assert len(rollout.damage) == 1


def test_times_of_our_own_extra_are_the_times_of_the_spans(tmp_path: Path) -> None:
    extra = {"started_at": "2026-01-02T03:04:05Z", "completed_at": "2026-01-02T03:04:07.500Z"}
    found = results({"source_call_id": "c", "content": "x", "extra": {**extra, "error": {"message": "no"}}})
    spans = spans_of(tmp_path, document(user(), agent("", tool_calls=[call("c")], observation=found)))
    [tool] = [span for span in spans if span.name == "execute_tool ls"]
    assert ((tool.end_ns or 0) - tool.start_ns) / 1e9 == 2.5
    assert tool.attributes[names.TOOL_ERROR] == '{"message":"no"}'
    assert (spans[0].start_ns, spans[0].end_ns) == (tool.start_ns, tool.end_ns)


def test_before_1_2_the_prompt_may_leave_out_what_was_cached(tmp_path: Path) -> None:
    metrics = {"prompt_tokens": 10, "cached_tokens": 90, "completion_tokens": 1}
    value = document(user(), agent(metrics=metrics), schema_version="ATIF-v1.1")
    spans = spans_of(tmp_path, value)
    assert spans[-1].attributes["gen_ai.usage.input_tokens"] == 100
    assert atif_of_spans(spans) == value


def test_two_runs_of_one_session_are_two_rollouts(tmp_path: Path) -> None:
    ids = [imported(tmp_path, document(user(), trajectory_id=f"s:{task}:0")).identity_id for task in range(2)]
    assert [name.rpartition("-")[0] for name in ids] == ["s_0_0", "s_1_0"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": [], "agent": {}}', "[" * 100_000, '"steps"'])
def test_what_is_no_document_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(AtifError, match=r"bad\.json"):
        read_atif(tmp_path / "bad.json")


def test_spans_of_no_document_give_none() -> None:
    with pytest.raises(ValueError, match="no span says"):
        atif_of_spans([])


@pytest.mark.parametrize(("name", "cut"), [("trajectory.json", 5), ("other.json", 60)])
def test_a_cut_document_beside_a_whole_one_is_damage(name: str, cut: int, tmp_path: Path) -> None:
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
    (tmp_path / "1" / "trajectory.json").write_text(json.dumps(document(user())))
    (tmp_path / "2" / name).write_text(json.dumps(document(user()))[:cut])
    (tmp_path / "2" / "config.json").write_text("{")
    [rollout] = read_atif(tmp_path)
    [text] = rollout.damage
    assert text.startswith(f"{tmp_path / '2' / name}: no JSON") and text.endswith("import again once it is whole")


def test_a_file_that_is_refused_costs_no_other_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document(user(reward=1))))
    (tmp_path / "b.json").write_text(json.dumps(document(user())))
    [rollout] = read_atif(tmp_path)
    assert rollout.damage == [
        f"{tmp_path / 'a.json'}: reward: Extra inputs are not permitted in step 1: mend it and import again"
    ]
    (tmp_path / "b.json").unlink()
    with pytest.raises(AtifError, match=r"a\.json: reward"):
        read_atif(tmp_path)


def test_a_file_that_grew_adds_nothing_twice(tmp_path: Path) -> None:
    steps = [
        user(),
        agent("", tool_calls=[call("c")], observation=results({"content": "x"})),
        agent("b"),
        user(),
        agent(),
    ]
    for length in range(1, len(steps) + 1):
        write_rollout(tmp_path / "store", imported(tmp_path, document(*steps[:length])))
    stored = list(open_store(tmp_path / "store").spans("s"))
    assert atif_of_spans(stored) == document(*steps)
    assert len(stored) == len(imported(tmp_path, document(*steps)).spans)


def test_without_content_the_steps_stay_and_what_was_said_does_not(tmp_path: Path) -> None:
    said = "secret words"
    extra = {"extra": {"note": said}}
    found = results({"source_call_id": "c", "content": said, **extra}, {"content": said})
    made = agent(said, reasoning_content=said, tool_calls=[call("c", path=said)], observation=found, **extra)
    managed = {"extra": {"context_management": {"type": "compaction", "boundary": "replace", "why": said}}}
    boundary = {"source": "system", "message": said, "observation": results({"content": said}), **managed}
    value = document(user(said), made, boundary, {**made, "is_copied_context": True}, notes=said, **extra)
    spans = stored_spans(imported(tmp_path, value), policy=ContentPolicy(bodies=False))
    assert said not in repr(spans)
    kept = atif_of_spans(spans)
    assert [step["source"] for step in kept["steps"]] == ["user", "agent", "system", "agent"]
    assert kept["steps"][1]["tool_calls"] == [call("c")]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_span_can_have_is_unknown(time: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(document(user(), agent(timestamp=time))), "utf-8")
    [rollout] = read_atif(tmp_path / "t.json")
    count = len(rollout.spans)
    assert write_rollout(tmp_path / "store", rollout).new == count
    assert write_rollout(tmp_path / "store", rollout).same == count
    spans = list(open_store(tmp_path / "store").spans(rollout.identity_id))
    assert len(spans) == count
    assert {span.attributes.get("gym.time.known") for span in spans} == {False}
