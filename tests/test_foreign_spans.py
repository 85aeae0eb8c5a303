"""Spans of real foreign instrumentations (tests/fixtures/foreign, made by bench/foreign_samples.py) in every view."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_gym.store.foreign import DIALECTS, as_gym_spans
from otel_gym.store.reader import RolloutSpans, Store, open_store
from otel_gym.store.span import SpanEvent, StoredSpan
from otel_gym.views.agent_tree import is_tool
from otel_gym.views.layers import doubtful_calls
from otel_gym.views.model_calls import model_call_records, model_calls
from otel_gym.views.summary import summarize_rollout
from otel_gym.views.trajectory import trajectories
from tests.cli.conftest import Invoke, invoke  # noqa: F401
from tests.store.lines import encoded, live_file, write

FIXTURES = Path(__file__).parent / "fixtures" / "foreign"
BENCH = Path(__file__).parent.parent / "bench"
SAMPLES = sorted(path.name.removesuffix(".jsonl.gz") for path in FIXTURES.glob("*.jsonl.gz"))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("foreign_spans")


def rollout_of(sample: str) -> RolloutSpans:
    [rollout] = list(open_store(FIXTURES / f"{sample}.jsonl.gz").rollouts())
    return rollout


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_field_is_other_than_on_the_wire(bench: ModuleType, sample: str) -> None:
    verdict = bench.judge(sample)
    assert verdict.wrong == []
    assert verdict.calls > 0 and verdict.counts["right"] > verdict.counts["null"]


def test_every_dialect_has_a_sample(bench: ModuleType) -> None:
    read = {name for sample in SAMPLES for name in bench.judge(sample).dialect.split(", ")}
    assert read >= {dialect.name for dialect in DIALECTS}


@pytest.mark.parametrize("sample", ["two-on-openai", "three-on-anthropic"])
def test_a_client_under_several_instrumentations_doubled_its_tokens(bench: ModuleType, sample: str) -> None:
    rollout, truth = rollout_of(sample), bench.truth_of(sample)
    records = model_call_records(rollout)
    assert len(records) == len(truth) < len(rollout.spans)
    assert sum(record.tokens_in or 0 for record in records) == sum(row["tokens_in"] or 0 for row in truth)
    assert doubtful_calls(rollout) == []


def test_what_does_not_count_is_kept_and_linked() -> None:
    rollout = rollout_of("three-on-anthropic")
    for call in model_calls(rollout):
        linked = {link.span_id for link in call.span.links if link.attributes.get("gym.same_call")}
        assert len(linked) == 2 and linked < {span.span_id for span in rollout.spans}


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name not in ("anthropic-client", "codex", "dynamo")])
def test_a_trajectory_is_made_of_them(sample: str) -> None:
    [trajectory] = trajectories(rollout_of(sample))
    kinds = [item["type"] for item in trajectory.output]
    roles = [item.get("role") for item in trajectory.output if item.get("role") != "system"]
    assert kinds[0] == "message" and roles[0] == "user"
    assert ("function_call" in kinds and "function_call_output" in kinds) or sample == "openllmetry-openai"


def test_claude_codes_subagent_stands_below_its_tool() -> None:
    [trajectory] = trajectories(rollout_of("claude-code"))
    assert [item["name"] for item in trajectory.output if item["type"] == "function_call"] == ["Bash", "Bash", "Agent"]
    [subagent] = trajectory.subagents
    assert subagent.spawned_by == trajectory.output[-1]["call_id"]
    assert [item["name"] for item in subagent.output if item["type"] == "function_call"] == ["Bash"]
    gaps = [(gap.code, gap.detail) for gap in (*trajectory.gaps, *subagent.gaps)]
    # It keeps no answers.
    assert gaps == [("content_not_recorded", "3 of 3 answers"), ("content_not_recorded", "2 of 2 answers")]


def test_claude_codes_request_id_was_taken_for_an_answers() -> None:
    calls = list(model_calls(rollout_of("claude-code")))
    assert {call.record.response_id for call in calls} == {None}
    assert all(call.span.attributes["gym.request.id"].startswith("req_") for call in calls)


def test_codex_steps_hold_its_tools() -> None:
    rollout = rollout_of("codex")
    assert [span.attributes["gen_ai.tool.call.id"] for span in rollout.spans if is_tool(span)] == [
        "call_fake000003",
        "call_fake000004",
    ]
    [trajectory] = trajectories(rollout)
    assert [item["agent_step_no"] for item in trajectory.output] == [1, 1]


def test_a_tool_that_a_model_asked_for_was_taken_for_its_run() -> None:
    """AgentOps makes a span of each tool call in an answer."""
    rollout = rollout_of("agent-lightning")
    assert not any(map(is_tool, rollout.spans))
    asked_for = [record.tool_calls for record in model_call_records(rollout)]
    assert [calls and len(calls) for calls in asked_for] == [2, [], [], [], 2, None]  # the last one was refused
    assert summarize_rollout(rollout).reward == 0.5


def test_spans_of_openai_v2_are_records() -> None:
    """opentelemetry-instrumentation-openai-v2 2.4b0: streams tell no usage, and refused calls no answer."""
    path = FIXTURES.parent / "semconv" / "openai-v2.jsonl.gz"
    records = [record for rollout in open_store(path).rollouts() for record in model_call_records(rollout)]
    assert len(records) == 17
    told = [record for record in records if record.tokens_in is not None]
    assert {(record.tokens_in, record.tokens_out, record.tokens_total) for record in told} == {(21, 9, 30)}
    assert [record.error_category for record in records if record.error_category] == ["rate_limit", "client_error"]
    tools = [(record.finish_reason, record.tool_calls[0].name) for record in records if record.tool_calls]
    assert tools == [("tool_calls", "get_weather")] * 2


COMMANDS = (
    "ls",
    "stats",
    "show ROLLOUT",
    "tail --once",
    "doctor",
    "export model-calls --all -o calls.jsonl",
    "export model-calls --all -o calls.parquet",
    "export trajectory ROLLOUT -o trajectory.jsonl",
    "export generations ROLLOUT -o generations.jsonl",
    "export atif ROLLOUT -o atif",
    "export perfetto ROLLOUT -o trace.pftrace",
)


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_command_reads_a_store_of_nothing_else(
    sample: str,
    invoke: Invoke,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = FIXTURES / f"{sample}.jsonl.gz"
    rollout_id = rollout_of(sample).rollout_id
    for command in COMMANDS:
        result = invoke(*command.replace("ROLLOUT", rollout_id).split(), "--dir", file)
        assert result.exit_code in (0, 1) and "Traceback" not in result.output, (command, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
    records = [json.loads(line) for line in Path("calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(records) == len(model_call_records(rollout_of(sample)))


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_stored_stays_as_it_came(sample: str) -> None:
    file = FIXTURES / f"{sample}.jsonl.gz"
    stored = {
        span["spanId"]: {each["key"] for each in span["attributes"]}
        for line in gzip.decompress(file.read_bytes()).splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    }
    store = Store(file)
    for rollout_id in store.rollout_ids():
        assert all(set(span.attributes) == stored[span.span_id] for span in store.spans(rollout_id))


def test_reading_again_changes_nothing() -> None:
    for sample in SAMPLES:
        spans = rollout_of(sample).spans
        read_again = as_gym_spans(spans)
        assert [span.attributes for span in read_again] == [span.attributes for span in spans], sample


def records(tmp_path: Path, **attributes: Any) -> list[Any]:
    write(live_file(tmp_path), encoded("1", "call", **attributes))
    [rollout] = open_store(tmp_path).rollouts()
    return model_call_records(rollout)


OLD = {"prompt_tokens": 3, "completion_tokens": 1, "cache_read_input_tokens": 2}
MIDDLE = {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 2}
NEW = {"input_tokens": 3, "output_tokens": 1, "cache_read.input_tokens": 2}


def test_names_of_three_generations_of_the_conventions_give_equal_records(tmp_path: Path) -> None:
    """R041."""
    found = []
    for number, (provider, usage) in enumerate([("system", OLD), ("system", MIDDLE), ("provider.name", NEW)]):
        said = {f"gen_ai.usage.{name}": count for name, count in usage.items()} | {f"gen_ai.{provider}": "OpenAI"}
        found += records(tmp_path / str(number), gen_ai__request__model="m", **said)
    assert [(each.tokens_in, each.tokens_out, each.cached_tokens, each.model) for each in found] == [(3, 1, 2, "m")] * 3


def test_counts_as_texts_and_doubles_and_a_prompt_without_its_cache(tmp_path: Path) -> None:
    [record] = records(
        tmp_path,
        gen_ai__operation__name="chat",
        gen_ai__system="anthropic",
        gen_ai__usage__prompt_tokens="5",
        gen_ai__usage__completion_tokens=7.0,
        gen_ai__usage__cache_read_input_tokens="130208",
        gen_ai__response__stop_reason="end_turn",
    )
    assert (record.tokens_in, record.tokens_out, record.cached_tokens) == (130213, 7, 130208)
    assert record.finish_reason == "end_turn"


def test_an_embedding_is_no_call_of_a_model(tmp_path: Path) -> None:
    embedding = {"gen_ai__request__model": "e", "gen_ai__usage__prompt_tokens": 3}
    assert records(tmp_path / "old", gen_ai__system="openai", **embedding) == []
    assert records(tmp_path / "typed", llm__request__type="embedding", **embedding) == []


def test_messages_as_events_of_the_span() -> None:
    events = [
        SpanEvent("gen_ai.user.message", 1, {"content": "q"}),
        SpanEvent("gen_ai.tool.message", 1, {"id": "c1", "content": "r"}),
        SpanEvent(
            "gen_ai.choice",
            2,
            {
                "finish_reason": "tool_calls",
                "message": json.dumps({"content": "a", "tool_calls": [{"id": "c2", "function": {"name": "t"}}]}),
            },
        ),
    ]
    span = StoredSpan("a" * 32, "b" * 16, None, "chat", 3, 1, 2, {"gen_ai.operation.name": "chat"}, events)
    [read] = as_gym_spans([span])
    assert json.loads(read.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "q"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "r"}]},
    ]
    [answer] = json.loads(read.attributes["gen_ai.output.messages"])
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
    assert read.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]


@pytest.mark.parametrize("name", ["gym.rollout.id", "nemo.gym.rollout.id", "agentlightning.rollout_id"])
def test_the_resource_names_the_rollout(tmp_path: Path, name: str) -> None:
    write(live_file(tmp_path, "unassigned"), encoded("1", rollout=None, resource={name: "7-0"}))
    write(tmp_path / "flat.jsonl", encoded("1", rollout=None, resource={name: "7-0"}))
    assert open_store(tmp_path / "flat.jsonl").rollout_ids() == ["7-0"]
