"""Which requests and tools a rollout has for a replay, and what is said of those that cannot be replayed."""

import json

import pytest

from otel_gym.records.replay_hashes import sequence_hashes
from otel_gym.views.mooncake.export import mooncake_trace
from otel_gym.views.mooncake.reading import Wanted
from otel_gym.views.mooncake.requests import MooncakeError
from tests.mooncake.spans import by_id, request, rollout, rows_of, span, tool

REPLAY = "gym__dynamo__replay__"
REFUSED = {
    "no hashes and no tokens": (
        {REPLAY + name: None for name in ("trace_block_size", "input_length", "input_sequence_hashes")},
        "neither the token ids of its prompt nor replay hashes",
    ),
    "block of 0": ({REPLAY + "trace_block_size": 0}, "trace_block_size is no size"),
    "too few hashes": ({REPLAY + "input_length": 9}, "9 tokens in blocks of 2 need 5 replay hashes, there are 1"),
    "too many hashes": ({REPLAY + "input_sequence_hashes": ["1", "2"]}, "need 1 replay hashes, there are 2"),
    "hash that is none": ({REPLAY + "input_sequence_hashes": ["x"]}, "none that can be read"),
    "no output": ({"gen_ai__usage__output_tokens": None}, "how many tokens it made is not known"),
    "another block size": (
        {REPLAY + "trace_block_size": 4, REPLAY + "input_length": 4},
        "blocks of 4 tokens, and those of good of 2",
    ),
    "no times": (
        {"gym__dynamo__request_received_ms": None, "gym__dynamo__event_time_unix_ms": None},
        "neither request_received_ms nor event_time_unix_ms",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_record_that_cannot_be_replayed_is_named_with_its_cure(case):
    attributes, problem = REFUSED[case]
    spans = [request("good", "a", 0, 1), request("bad", "b", 5, 6, **attributes)]
    with pytest.raises(MooncakeError) as refused:
        rows_of(*spans)
    assert str(refused.value).startswith("rollout r, request bad (span 0000000000000002): ")
    assert problem in str(refused.value) and str(refused.value).endswith("with --lenient")
    trace = mooncake_trace([rollout(*spans)], Wanted(True), lenient=True)
    assert len(trace) == 1 and len(trace.left_out) == 1 and problem in trace.left_out[0]


def test_request_id_twice_is_refused():
    spans = [request("r", "a", 0, 1), request("r", "a", 5, 6)]
    with pytest.raises(MooncakeError, match=r"request r \(span 0*2\): its request id is that of span 0*1 of rollout r"):
        rows_of(*spans)
    assert [row["timestamp"] for row in rows_of(*spans, lenient=True)] == [0.0]


def test_request_without_agent_is_no_agentic_row():
    spans = [request("with", "a", 0, 1), request("without", None, 5, 6)]
    with pytest.raises(MooncakeError, match=r"request without .*no agent_context"):
        rows_of(*spans)
    assert len(rows_of(*spans, agentic=False)) == 2


def test_newer_traces_must_say_when_a_request_was_received():
    def of(**options):
        return rows_of(request("r", "a", 1000, 1100, gym__dynamo__request_received_ms=None, **options))

    assert of()[0]["timestamp"] == 0.0
    with pytest.raises(MooncakeError, match="no request_received_ms"):
        of(sessions=True)


def test_plain_rows_refuse_a_prompt_without_tokens():
    spans = [request("r", "a", 0, 1), request("empty", "a", 2, 3, [])]
    assert rows_of(*spans)[1]["input_length"] == 0
    with pytest.raises(MooncakeError, match=r"request empty .*input_length is 0; dynamo\.replay refuses"):
        rows_of(*spans, agentic=False)


def test_nothing_that_can_be_replayed_is_said_also_when_lenient():
    with pytest.raises(MooncakeError, match="no request that can be replayed"):
        rows_of(span("rollout", 0, 1), lenient=True)


def test_half_milliseconds_are_rounded_as_dynamo_rounds_them():
    first = request("r1", "a", 1000, 0, gym__dynamo__total_time_ms=2.5)
    second = request("r2", "a", 1010, 1011)
    assert rows_of(first, second)[1]["delay"] == 7.0
    first.attributes["gym.dynamo.total_time_ms"] = 0.49999999999999994
    assert rows_of(first, second)[1]["delay"] == 10.0
    first.attributes["gym.dynamo.total_time_ms"] = -3.0
    assert rows_of(first, second)[1]["delay"] == 10.0


def test_tool_without_times_of_its_own_ended_with_its_record():
    timeless = {"gym__dynamo__tool__started_at_unix_ms": None, "gym__dynamo__tool__ended_at_unix_ms": None}
    tools = [
        tool("a", "lasted", 0, 1050, event="tool_error", gym__dynamo__tool__duration_ms=20.4, **timeless),
        tool("a", "started", 0, 1060, event="tool_start", **timeless),
        tool("a", "backwards", 1070, 1060),
    ]
    row = rows_of(request("r1", "a", 1000, 1010), request("r2", "a", 1100, 1110), *tools)[1]
    assert row["tool_events"] == [
        {
            "tool_call_id": "lasted",
            "tool_class": "ls",
            "started_at_unix_ms": 1030,
            "ended_at_unix_ms": 1050,
            "duration_ms": 20.4,
            "status": "error",
        }
    ]


def call(span_id, start, end, prompt, *, parent=None, output=3, failed=False, **attributes):
    """A call that nobody but its rollout recorded."""
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": f"answer-{span_id}",
        "gym.token_ids.prompt": prompt,
        "gen_ai.usage.output_tokens": output,
        **attributes,
    }
    said = {name: value for name, value in said.items() if value is not None}
    return span("chat m", start, end, said, span_id=span_id, parent=parent, failed=failed)


def agent(span_id, name, start, end, parent=None):
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(f"invoke_agent {name}", start, end, said, span_id=span_id, parent=parent)


def own_rollout():
    """A planner whose tool is a subagent."""
    done = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask", "gen_ai.tool.call.id": "call-1"}
    return [
        span("rollout", 0, 100, span_id="root"),
        agent("planner", "planner", 0, 100, "root"),
        call("p1", 1, 10.7, [1, 2, 3], parent="planner"),
        span("execute_tool ask", 11, 60, done, span_id="tool", parent="planner"),
        agent("helper", "helper", 12, 59, "tool"),
        call("h1", 20, 30, [9, 9], parent="helper"),
        call("p2", 70, 80, [1, 2, 3, 4, 5], parent="planner"),
    ]


def test_rollout_that_never_touched_dynamo_is_replayed_from_its_token_ids():
    rows = rows_of(*own_rollout(), rules="2026-08", block_size=2)
    assert [row["session_id"] for row in rows] == ["r:planner", "r:planner/helper:call-1", "r:planner"]
    assert [row["input_length"] for row in rows] == [3, 2, 5]
    assert [row["hash_ids"] for row in rows] == [[0, 1], [2], [0, 3, 4]]
    first, helper, last = rows
    assert helper["wait_for"] == [first["request_id"]] and helper["request_kind"] == "agent"
    assert last["wait_for"] == [first["request_id"], helper["request_id"]]
    assert first["branches"] == [helper["request_id"]]
    assert last["tool_wait_ms"] == 30.0 and last["delay"] == 10.0
    assert [event["tool_class"] for event in last["tool_events"]] == ["ask"]


def test_token_ids_need_the_size_of_a_block():
    with pytest.raises(MooncakeError, match="--trace-block-size N"):
        rows_of(*own_rollout())


def test_hashes_from_token_ids_are_those_that_dynamo_records():
    tokens = list(range(10))
    dynamo = request("d", "a", 50, 60, sequence_hashes(tokens, 4), size=4, gym__dynamo__replay__input_length=10)
    rows = rows_of(dynamo, call("c", 0, 10, tokens), block_size=4)
    assert rows[0]["hash_ids"] == rows[1]["hash_ids"] == [0, 1, 2]


def test_hashes_of_another_size_than_asked_for_are_made_anew_from_token_ids_or_refused():
    with pytest.raises(MooncakeError, match=r"its hashes are of blocks of 2 tokens.*--trace-block-size 2"):
        rows_of(request("d", "a", 0, 1), block_size=4)
    (row,) = rows_of(request("d", "a", 0, 1, gym__token_ids__prompt=[1, 2, 3, 4, 5]), block_size=4)
    assert row["hash_ids"] == [0, 1] and row["input_length"] == 5


def test_failed_call_is_no_request_and_is_counted():
    refused = call(
        "f", 12, 13, None, parent="planner", output=None, failed=True, **{"gym.error_category": "rate_limit"}
    )
    refused.attributes.pop("gen_ai.response.id")
    trace = mooncake_trace([rollout(*own_rollout(), refused)], Wanted(True, 2))
    assert len(trace) == 3 and trace.failed == 1 and not trace.left_out


def test_call_that_never_ended_is_named():
    spans = [*own_rollout(), call("open", 85, None, [1], parent="planner")]
    with pytest.raises(MooncakeError, match=r"span open\): when it began and ended is not known"):
        rows_of(*spans, block_size=2)


def test_tokens_of_the_answers_body_are_read():
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "token_ids": [7, 8, 9, 10]}
    body = {"id": "c", "object": "chat.completion", "model": "m", "prompt_token_ids": [1, 2, 3], "choices": [choice]}
    captured = {
        "gym.model_call.id": "call-0",
        "gym.dialect": "chat",
        "http.response.status_code": 200,
        "gym.response.content_type": "application/json",
        "gym.response.body": json.dumps(body),
        "gym.request.body": '{"model": "m", "messages": []}',
    }
    rows = by_id(rows_of(call("c", 0, 10, None, output=None, **captured), block_size=2))
    assert rows["call-0"]["input_length"] == 3 and rows["call-0"]["output_length"] == 4


def test_context_that_a_harness_said_names_the_session_of_calls_and_of_tools():
    said = {"gym.agent_context.session_id": "run-7"}
    spans = own_rollout()
    for each in (spans[2], spans[6]):
        each.attributes.update(said)
    rows = rows_of(*spans, rules="2026-08", block_size=2)
    assert [row["session_id"] for row in rows] == ["run-7", "r:planner/helper:call-1", "run-7"]
    assert rows[1]["wait_for"] and rows[2]["tool_wait_ms"] == 30.0
