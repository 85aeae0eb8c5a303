"""What is written as Dynamo's trace files reads back as the same spans, and as the same records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.records.dynamo import TOOL_STATUSES, DynamoRecordError, decode_record
from otel_gym.store.dynamo_files import lines_of_trace
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan
from tests.dynamo import program
from tests.dynamo.traced import run

TRACES = Path(__file__).parents[1] / "fixtures" / "dynamo"
# Files whose spans come back whole; the others hold what no record of ours repeats.
WHOLE = ["basic_all_types.jsonl", "legacy_workflow_ids.jsonl", "mooncake_dag.jsonl", "real_agent_trace.jsonl.gz"]
ODD = ["tools_edge.jsonl", "multichoice_cancelled.jsonl", "missing_optional.jsonl", "real_request_trace.jsonl.gz"]

# What only bodies and fields that nobody knows tell, and the older name of a source.
NOT_IN_RECORDS = (
    "gym.dynamo.extra",
    "gym.dynamo.event_source",
    "gym.dynamo.endpoint",
    "gym.dynamo.payload_",
    "gym.request.",
    "gym.response.",
    "gym.dialect",
    "gen_ai.request.",
    "gen_ai.response.",
    "gen_ai.input.",
    "gen_ai.output.",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "openai.",
)


def otel(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code in (0, 1), done.output
    return done.stderr


def copied(trace: Path, folder: Path, schema: str) -> Path:
    """The trace that comes out of a store into which ``trace`` was read; that is beside it, in ``first``."""
    otel("import", "dynamo", trace, "--dir", folder / "first")
    written = folder / "written.jsonl.gz"
    otel("export", "dynamo", "--dir", folder / "first", "--schema", schema, "-o", written)
    return written


def schema_of(name: str) -> str:
    return "request" if "request_trace" in name else "agent"


def spans_in(store: Path) -> dict[str, StoredSpan]:
    return {span.span_id: span for rollout in Store(store).rollouts() for span in rollout.spans}


def records_in(trace: Path) -> list[dict[str, Any]]:
    """In today's names, without payloads and without what stands in a file twice."""
    found: dict[str, dict[str, Any]] = {}
    for _, line in lines_of_trace(trace, lambda damage: None):
        try:
            record = decode_record(line)
        except DynamoRecordError:
            continue
        if record.event_type == "request_payload":
            continue
        plain: dict[str, Any] = msgspec.to_builtins(record)
        if record.context is not None:
            plain["agent_context"] = record.context.as_mapping()
        if record.tool is not None and record.tool.status is not None:
            plain["tool"]["status"] = TOOL_STATUSES.get(record.tool.status, record.tool.status)
        if plain.get("event_source") == "ms_agent":
            plain["event_source"] = "harness"
        found[json.dumps(plain, sort_keys=True)] = plain
    return [found[key] for key in sorted(found)]


@pytest.mark.parametrize("name", WHOLE)
def test_an_imported_trace_comes_back_record_by_record_and_span_by_span(tmp_path, name):
    written = copied(TRACES / name, tmp_path, schema_of(name))
    assert records_in(written) == records_in(TRACES / name)
    otel("import", "dynamo", written, "--dir", tmp_path / "second")
    first, second = spans_in(tmp_path / "first"), spans_in(tmp_path / "second")
    assert first == second and len(first) > 5


@pytest.mark.parametrize("name", ODD)
def test_of_an_odd_trace_everything_comes_back_that_a_record_can_say(tmp_path, name):
    written = copied(TRACES / name, tmp_path, schema_of(name))
    otel("import", "dynamo", written, "--dir", tmp_path / "second")
    first, second = spans_in(tmp_path / "first"), spans_in(tmp_path / "second")
    assert {_told(span) for span in first.values() if _comes_back(span)} <= {_told(span) for span in second.values()}


def _comes_back(span: StoredSpan) -> bool:
    """Not: a payload without its request, and what has no context, which gets one."""
    is_payload = "gym.dynamo.endpoint" in span.attributes and "gym.dynamo.request_received_ms" not in span.attributes
    has_id = "gen_ai.tool.call.id" in span.attributes or not span.name.startswith("execute_tool")
    has_context = bool(span.attributes.get("gym.agent_context.session_id"))
    return has_id and has_context and not is_payload


def _told(span: StoredSpan) -> tuple[Any, ...]:
    attributes = {name: value for name, value in span.attributes.items() if not name.startswith(NOT_IN_RECORDS)}
    return span.name, span.start_ns, span.end_ns, json.dumps(attributes, sort_keys=True)


def test_the_times_of_a_file_are_in_order_and_count_from_its_first(tmp_path):
    written = copied(TRACES / "mooncake_dag.jsonl", tmp_path, "agent")
    lines = [json.loads(line) for _, line in lines_of_trace(written, lambda damage: None)]
    times = [line["event"]["event_time_unix_ms"] for line in lines]
    assert times == sorted(times)
    assert [line["timestamp"] for line in lines] == [time - times[0] for time in times]


def test_an_agent_trace_is_a_request_trace_too_and_the_other_way_round(tmp_path):
    written = copied(TRACES / "basic_all_types.jsonl", tmp_path, "request")
    contexts = {json.dumps(record["agent_context"]) for record in records_in(written)}
    assert contexts == {
        '{"session_id": "run-1:planner", "parent_session_id": "run-1"}',
        '{"session_id": "run-1:searcher", "parent_session_id": "run-1:planner"}',
        '{"session_id": "run-1:reader", "parent_session_id": "run-1:planner"}',
    }
    back = copied(written, tmp_path / "back", "agent")
    assert {json.dumps(record["agent_context"]) for record in records_in(back)} == {
        *(
            json.dumps(
                {
                    "session_id": "run-1",
                    "session_type_id": "rollout",
                    "trajectory_id": f"run-1:{agent}",
                    "parent_trajectory_id": parent,
                }
            )
            for agent, parent in (("planner", "run-1"), ("searcher", "run-1:planner"), ("reader", "run-1:planner"))
        ),
    }


def _as_dynamo_says(span: StoredSpan, agent: str | None) -> tuple[Any, ...]:
    """What a trace can say of a model call or a tool's run: the one definition of equal spans."""
    told = span.attributes
    length_ms = round((span.end_ns or span.start_ns) - span.start_ns, -6) // 10**6
    return (
        span.name,
        agent,
        span.start_ns // 10**6,
        length_ms if span.name.startswith("chat") else (span.end_ns or 0) // 10**6 - span.start_ns // 10**6,
        told.get("gen_ai.request.model"),
        told.get("gen_ai.usage.input_tokens"),
        told.get("gen_ai.usage.output_tokens"),
        told.get("gen_ai.usage.cache_read.input_tokens"),
        tuple(told.get("gen_ai.response.finish_reasons") or ()),
        told.get("gen_ai.tool.name"),
        told.get("gen_ai.tool.call.id"),
        told.get("error.type"),
        span.status,
    )


def _said_of(store: Path) -> list[tuple[Any, ...]]:
    return sorted(map(repr, _calls_and_tools(store)))


def _calls_and_tools(store: Path) -> Iterator[tuple[Any, ...]]:
    for rollout in Store(store).rollouts():
        by_id = {span.span_id: span for span in rollout.spans}
        for span in rollout.spans:
            if span.attributes.get("gen_ai.operation.name") not in ("chat", "execute_tool"):
                continue
            above = by_id.get(span.parent_span_id or "")
            while above is not None and above.attributes.get("gen_ai.operation.name") != "invoke_agent":
                above = by_id.get(above.parent_span_id or "")
            # The id of an agent says where it stands: [RUN/]ROLLOUT:AGENT/SUBAGENT:CALL.
            agent = None if above is None else re.sub(r"^(run-1/)?\d+-0:(.*/)?", "", above.name.split(" ", 1)[1])
            yield _as_dynamo_says(span, agent and agent.split(":")[0])


def test_a_rollout_that_never_touched_dynamo_reads_back_as_equal_spans(live_store, tmp_path):
    for number in range(3):
        program.run(number)
    assert otel_gym.flush(10)
    written = tmp_path / "written.jsonl"
    otel("export", "dynamo", "--dir", live_store.directory, "--trace-block-size", 16, "-o", written)
    otel("import", "dynamo", written, "--dir", tmp_path / "second")
    assert _said_of(tmp_path / "second") == _said_of(live_store.directory)
    assert len(_said_of(tmp_path / "second")) == 12


def test_what_the_live_sink_wrote_reads_back_as_equal_spans(tmp_path):
    run(tmp_path, 3, DYN_AGENT_TRACE_JSONL_GZ_ROLL_LINES="4")
    otel("import", "dynamo", *sorted(tmp_path.glob("t.*.jsonl.gz")), "--dir", tmp_path / "second")
    assert _said_of(tmp_path / "second") == _said_of(tmp_path / "store")
    assert len(_said_of(tmp_path / "second")) == 12


def test_token_ids_without_a_block_size_are_an_error_that_says_what_to_do(live_store, tmp_path):
    program.run(0)
    assert otel_gym.flush(10)
    arguments = ["export", "dynamo", "--dir", str(live_store.directory), "-o", str(tmp_path / "t.jsonl")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "--trace-block-size N" in refused.stderr and "--no-replay-hashes" in refused.stderr
    assert not (tmp_path / "t.jsonl").exists()
    otel(*arguments, "--no-replay-hashes")
    assert all("replay" not in record.get("request", {}) for record in records_in(tmp_path / "t.jsonl"))


def test_a_name_that_dynamo_does_not_read_is_refused(live_store, tmp_path):
    program.run(0)
    assert otel_gym.flush(10)
    done = CliRunner().invoke(app, ["export", "dynamo", "--dir", str(live_store.directory), "-o", "trace.json"])
    assert done.exit_code == 2 and ".jsonl.gz" in done.stderr
