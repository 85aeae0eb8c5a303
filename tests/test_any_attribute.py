"""Attributes of any type, from files of another's making: every view of them comes to an end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.content import safe_json
from otel_gym.conventions import GYM_ATTRIBUTES
from otel_gym.store.foreign import DIALECTS
from otel_gym.store.reader import open_store
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.health import examine
from otel_gym.views.json_lines import json_line
from otel_gym.views.model_calls_export import write_parquet
from otel_gym.views.span_tree import span_tree
from otel_gym.views.summary import mark_superseded, run_statistics, summarize_rollout
from otel_gym.views.tail_rows import tail_row
from otel_gym.views.trajectory_rows import generation_rows, trajectory_rows
from tests.store.lines import encoded, live_file, write

SPANS: dict[str, dict[str, Any]] = {
    "rollout": {},
    "invoke_agent a": {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.agent.id": "1",
        "gen_ai.conversation.id": "c",
    },
    "agent_step": {"gym.step.index": 1},
    "chat m": {
        "gen_ai.operation.name": "chat",
        "gym.model_call.id": "m1",
        "gym.dialect": "responses",
        "gym.request.body": '{"model":"m","messages":[]}',
        "gym.response.body": '{"id":"i","choices":[]}',
        "gen_ai.request.stream": True,
    },
    "chat told": {
        "gen_ai.operation.name": "chat",
        "gym.source": "transcript",
        "gen_ai.response.id": "i",
        "gen_ai.response.model": "m",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.output.messages": "[]",
    },
    "execute_tool t": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "t",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": "{}",
        "gen_ai.tool.call.result": "x",
        "error.type": "E",
        "http.response.status_code": 200,
    },
}
NAMES = sorted({name for own in SPANS.values() for name in own} | {each.name for each in GYM_ATTRIBUTES})
ODD: dict[str, Any] = {
    "text": "x",
    "empty": "",
    "number": 5,
    "negative": -(2**62),
    "fraction": 1.5,
    "nan": float("nan"),
    "infinite": float("-inf"),
    "flag": True,
    "list": ["a", 5],
    "lists": [[1], {"a": None}],
    "map": {"a": [1]},
    "bytes": b"x",
    "none": None,
    "json object": '{"message":5,"data":[],"type":[],"execution":5,"role":"user","content":[5,{"text":[]}]}',
    "answer": '{"output":[5,{"type":[]},{"type":"function_call","call_id":{},"execution":5,"agent_step_no":[]}]}',
    "json list": '[5,null,{"type":"function_call","call_id":[5],"role":{}},{"type":{},"execution":1}]',
}


def lines(name: str, value: Any) -> Iterator[bytes]:
    for number, (span, own) in enumerate(SPANS.items(), 1):
        parent = None if number == 1 else str(min(number - 1, 3))
        end = None if span == "chat m" and value == "x" else 20 * 10**9
        attributes = {"gym.run.id": "r", **own, name: value}
        yield encoded(str(number), span, parent=parent, start=number * 10**9, end=end, **attributes)


def look_at_everything(directory: Path) -> None:
    store = open_store(directory)
    rollouts = list(store.rollouts())
    summaries = mark_superseded(map(summarize_rollout, rollouts))
    run_statistics(summaries)
    examine(store)
    for rollout in rollouts:
        span_tree(rollout)
        for span in rollout.spans:
            tail_row("1-0", span)
    for rows in (trajectory_rows, generation_rows):
        for row in rows(rollouts):
            safe_json(row)
    calls = list(counted_calls(rollouts, LaterAttempts(store), every=True))
    for row in model_call_rows(calls):
        json_line(row)
    write_parquet(model_call_rows(calls), directory / "calls.parquet")


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_attribute_of_another_type_ended_a_view_with_a_traceback(tmp_path: Path, value: Any) -> None:
    for name in NAMES:
        directory = tmp_path / name
        write(live_file(directory), *lines(name, value))
        try:
            look_at_everything(directory)
        except Exception as error:
            raise AssertionError(f"{name} = {value!r}") from error


def foreign_spans() -> Iterator[tuple[str, dict[str, Any]]]:
    """A span of each foreign dialect that has all the names which it reads, with what makes it a model call."""
    for dialect in DIALECTS:
        theirs = {name: "x" for names in dialect.renamed.values() for name in names}
        for scope, span, marks in FOREIGN[dialect.name]:
            yield scope, {"name": span, **theirs, **marks}


FOREIGN: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "Dynamo": [
        ("opentelemetry-otlp", "http-request", {"uri": "/v1/chat/completions", "model": "m", "request.outcome": "ok"}),
        ("opentelemetry-otlp", "kv_router.route_request", {"overlap_blocks": 3}),
    ],
    "Claude Code": [
        ("com.anthropic.claude_code.tracing", "claude_code.llm_request", {"agent_id": "a", "first_content_ms": 3}),
        ("com.anthropic.claude_code.tracing", "claude_code.interaction", {"user_prompt": "go"}),
        ("com.anthropic.claude_code.tracing", "claude_code.tool.execution", {"success": False}),
    ],
    "Codex": [
        ("codex", "codex.sampling", {"code.module.name": "codex_core", "gen_ai.usage.input_tokens": 3}),
        ("codex", "run_sampling_request", {"code.module.name": "codex_core", "model": "m"}),
        ("codex", "exec", {"code.module.name": "codex_core", "codex.tool.phase": "dispatch", "call_id": "c"}),
    ],
    "Anthropic client": [("com.anthropic.sdk.python", "anthropic.messages.create", {"gen_ai.operation.name": "chat"})],
    "agent-lightning": [
        ("agentops", "openai.chat.completion", {"gen_ai.request.type": "chat", "gen_ai.completion.0.role": "a"}),
        ("agentops", "tool_call.t", {"agentops.span.kind": "tool", "tool.parameters": "{}"}),
        ("agentlightning", "agentlightning.annotation", {"agentlightning.reward.0.value": 0.5}),
    ],
    "NeMo Relay": [
        ("x", "llm", {"nemo_relay.scope_type": "llm", "nemo_relay.end.output.choices": "[{}]"}),
        ("x", "t", {"nemo_relay.scope_type": "tool", "nemo_relay.start.input.city": "Oslo"}),
    ],
    "OpenInference": [
        (
            "x",
            "ChatCompletion",
            {
                "openinference.span.kind": "LLM",
                "input.value": "{}",
                "output.value": '{"choices":[{}]}',
                "llm.invocation_parameters": "{}",
                "llm.input_messages.0.message.role": "user",
                "llm.output_messages.0.message.contents.0.message_content.text": "t",
                "llm.tools.0.tool.json_schema": "{}",
            },
        ),
        ("x", "t", {"openinference.span.kind": "TOOL"}),
    ],
    "OpenTelemetry GenAI": [
        ("opentelemetry.instrumentation.genai.openai", "chat m", {"gen_ai.operation.name": "chat"}),
    ],
    "OpenLLMetry": [
        (
            "x",
            "openai.chat",
            {
                "llm.request.type": "chat",
                "gen_ai.prompt.0.content": "q",
                "gen_ai.completion.0.tool_calls.0.name": "t",
                "gen_ai.output.messages": "[]",
                "gen_ai.usage.prompt_tokens": 3,
                "llm.request.functions.0.name": "t",
            },
        ),
        ("x", "t.tool", {"traceloop.span.kind": "tool", "traceloop.entity.input": "{}"}),
    ],
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_a_foreign_attribute_of_another_type_ends_no_view(tmp_path: Path, value: Any) -> None:
    for number, (scope, own) in enumerate(foreign_spans()):
        span = own.pop("name")
        for place, name in enumerate(own):
            one = {"rollout": f"{place}-0", "scope": scope, **own, name: value}
            write(
                live_file(tmp_path / str(number), f"{place}-0"),
                encoded("1", "rollout", rollout=f"{place}-0", end=20 * 10**9),
                encoded("2", span, parent="1", start=10**9, end=2 * 10**9, **one),
                encoded("3", span, parent="2", start=10**9, end=2 * 10**9, **one),
            )
        try:
            look_at_everything(tmp_path / str(number))
        except Exception as error:
            raise AssertionError(f"{span} with one of {[*own]} = {value!r}") from error
