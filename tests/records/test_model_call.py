"""ModelCallRecord: what users see of one exchange."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from otel_gym.records import ModelCallRecord, aggregate_model_call_records, build_model_call_record
from otel_gym.records.well_formed import well_formed
from otel_gym.wire.exchange import Exchange, Execution, Raised

STREAMS = Path(__file__).resolve().parent.parent / "fixtures" / "streams"
MILLISECOND = 10**6
EXCEPT_FOR_A_STREAM = {"latency_total_ms", "latency_ttft_ms", "response_raw", "request", "error_category"}


def exchange(dialect="chat", body=b"", *, at_ms=20.0, content_type="application/json", **fields):
    at_ns = round(at_ms * MILLISECOND)
    return Exchange(
        dialect=dialect,
        model_call_id="call",
        started_unix_nano=1_800_000_000 * 10**9,
        response_content_type=content_type,
        chunks=[(at_ns, body)] if body else [],
        **{"status_code": 200, "last_byte_ns": at_ns, "returned_ns": at_ns, **fields},
    )


def streamed(dialect, name):
    return exchange(dialect, (STREAMS / name).read_bytes(), content_type="text/event-stream")


def record(*args, **kwargs):
    return build_model_call_record(exchange(*args, **kwargs), 0)


def test_the_fields_are_those_that_readers_of_nemo_gym_know():
    fields = """
        model_call_id response_id client_session_id client_assistant_message_id call_index model_ref model dialect
        status_code response_status finish_reason upstream_attempted upstream_status_code response_source
        local_response_reason started_at completed_at latency_total_ms latency_ttft_ms tokens_in tokens_out
        tokens_reasoning tokens_total cached_tokens cache_creation_tokens cache_hit tool_calls reasoning_content
        error_category failure_report model_operations request request_raw response response_raw
    """
    assert set(ModelCallRecord.model_fields) == set(fields.split())


def test_background_work_of_the_server_is_not_latency():
    called = record(body=b"{}", at_ms=1000, returned_ns=9000 * MILLISECOND)
    assert called.latency_total_ms == 1000.0
    assert called.completed_at == 1800000009.0


def test_a_call_that_never_sent_its_last_byte_lasts_until_the_exception():
    raised = Raised("ConnectionResetError", "connection")
    lost = record(status_code=None, last_byte_ns=None, returned_ns=round(77.777 * MILLISECOND), raised=raised)
    assert (lost.latency_total_ms, lost.latency_ttft_ms, lost.error_category) == (77.78, None, "connection")
    assert (lost.status_code, lost.response, lost.tool_calls) == (None, None, [])


def test_the_status_of_an_exception_counts_where_no_answer_began():
    raised = Raised("UpstreamStatusError", "exception", 429, b"slow")
    refused = record(status_code=None, last_byte_ns=None, raised=raised)
    assert (refused.status_code, refused.error_category, refused.response_raw) == (429, "rate_limit", "slow")


def test_times_are_exact_to_the_last_place():
    called = build_model_call_record(
        Exchange("chat", "call", started_unix_nano=1_800_000_000_123_456_789, returned_ns=1), 0
    )
    assert called.started_at == 1_800_000_000_123_456_789 / 10**9
    assert called.completed_at == 1_800_000_000_123_456_790 / 10**9


@pytest.mark.parametrize(
    ("values", "session"),
    [([], None), (["s"], "s"), (["s", "s", ""], "s"), (["s", "t"], None), ([""], None)],
)
def test_a_session_id_counts_only_if_the_client_sent_exactly_one(values, session):
    assert record(request_headers={"x-session-id": values}).client_session_id == session


def test_a_prompt_that_was_too_long_is_said_so_whatever_the_status():
    said = Execution(False, "local", 400, "context_length_exceeded")
    called = record(body=b"{}", status_code=500, execution=said)
    assert called.error_category == "context_length_exceeded"
    assert (called.upstream_attempted, called.response_source, called.upstream_status_code) == (False, "local", 400)


def test_the_model_that_was_asked_for_is_named_where_the_answer_names_none():
    asked = record(body=b'{"id": 5}', request_body=b'{"model": "policy"}')
    assert (asked.model, asked.response_id) == ("policy", None)


def test_a_model_that_is_no_text_is_unknown():
    assert record(body=b'{"model": 5}', request_body=b'{"model": "policy"}').model is None


def test_a_half_emoji_of_a_bad_upstream_does_not_break_the_record():
    body = b'{"id":"r","choices":[{"message":{"content":"hi \\ud83e","tool_calls":[{"id":"c","function":'
    body += b'{"name":"t\\ud83e","arguments":"{\\"k\\": \\"\\\\ud83e\\"}"}}]}}]}'
    kept = json.loads(record(body=body).model_dump_json())
    assert kept["response"]["choices"][0]["message"]["content"] == "hi \ufffd"
    assert kept["tool_calls"] == [{"call_id": "c", "name": "t\ufffd", "arguments": {"k": "\ufffd"}}]


def test_minus_infinity_of_constrained_decoding_is_null_and_the_record_strict_json():
    kept = record(body=b'{"id":"r","logprobs":[-Infinity, NaN, 1e999, 0.5]}')
    assert kept.response["logprobs"] == [None, None, None, 0.5]


def test_integers_beyond_64_bit_are_kept():
    kept = record(body=b'{"id":"r","seed":123456789012345678901234567890}')
    assert json.loads(kept.model_dump_json())["response"]["seed"] == 123456789012345678901234567890


def test_an_answer_nested_deeper_than_other_readers_go_is_kept():
    body = b'{"id":"r","n":' + b"[" * 400 + b"]" * 400 + b"}"
    assert record(body=body).response["id"] == "r"
    assert json.loads(record(body=body).to_json())["response_raw"] is None


def test_a_streamed_call_without_a_usage_chunk_knows_no_tokens():
    stream = (STREAMS / "usage_last.sse").read_text("utf-8")
    cut = "\n\n".join(block for block in stream.split("\n\n") if '"usage"' not in block)
    called = build_model_call_record(exchange("chat", cut.encode(), content_type="text/event-stream"), 0)
    assert (called.tokens_in, called.tokens_total, called.cache_hit) == (None, None, None)


def test_the_finish_reason_of_several_choices_is_the_first_ones():
    called = build_model_call_record(streamed("chat", "two_choices.sse"), 0)
    assert called.finish_reason == "stop"
    assert [choice["message"]["content"] for choice in called.response["choices"]] == ["AB", "XY"]


@pytest.mark.parametrize(
    ("dialect", "stream"),
    [
        ("chat", "usage_last.sse"),
        ("chat", "two_choices.sse"),
        ("chat", "tools_same_index.sse"),
        ("messages", "messages_cache.sse"),
        ("responses", "responses_incomplete.sse"),
    ],
)
def test_a_streamed_call_and_its_plain_twin_give_one_record(dialect, stream):
    called = build_model_call_record(streamed(dialect, stream), 0)
    twin = record(dialect, json.dumps(called.response).encode())
    assert called.response is not None
    assert called.model_dump(exclude=EXCEPT_FOR_A_STREAM) == twin.model_dump(exclude=EXCEPT_FOR_A_STREAM)


CAPTURE_LINE = {
    "model_call_id": "b4b5",
    "dialect": "chat",
    "model_ref": {"type": "responses_api_models", "name": "policy_model"},
    "started_at": 1800000000.0,
    "completed_at": 1800000000.04,
    "latency_ms": 40.0,
    "latency_ttft_ms": 20.5,
    "status_code": 200,
    "error_category": None,
    "request": {"model": "policy"},
    "response": {
        "id": "c",
        "choices": [{"finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    },
    "client_session_id": "s",
    "unknown_key": 1,
}


def test_a_line_of_a_nemo_gym_capture_file_gives_the_same_record():
    called = build_model_call_record(CAPTURE_LINE, 7)
    assert (called.call_index, called.model_call_id, called.client_session_id) == (7, "b4b5", "s")
    assert (called.latency_total_ms, called.latency_ttft_ms) == (40.0, 20.5)
    assert (called.tokens_in, called.tokens_total, called.finish_reason) == (3, 4, "stop")
    assert called.model_ref is not None
    assert called.model_ref.name == "policy_model"


def test_fields_that_only_newer_capture_lines_carry_are_taken_over():
    newer = {"failure_report": {"kind": "x"}, "model_operations": [1], "client_assistant_message_id": "m"}
    called = build_model_call_record({**CAPTURE_LINE, **newer}, 0)
    assert called.model_dump(include=set(newer)) == newer
    assert build_model_call_record(CAPTURE_LINE, 0).failure_report is None


def test_a_capture_line_is_read_as_leniently_as_nemo_gym_reads_it():
    assert build_model_call_record({**CAPTURE_LINE, "status_code": "200"}, 0).status_code == 200
    odd = {**CAPTURE_LINE, "request": [1], "response": "x", "request_raw": 5, "client_session_id": 5}
    called = build_model_call_record(odd, 0)
    assert (called.request, called.response, called.request_raw, called.client_session_id) == (None, None, None, None)


@pytest.mark.parametrize("bad", [{"status_code": 200.5}, {"model_ref": {"type": "x", "name": "y"}}, {"dialect": 5}])
def test_a_bad_value_in_a_capture_line_is_refused(bad):
    with pytest.raises(ValidationError):
        build_model_call_record({**CAPTURE_LINE, **bad}, 0)


def test_a_call_whose_tokens_are_unknown_does_not_make_the_sum_unknown():
    calls = [ModelCallRecord(call_index=0, tokens_in=3), ModelCallRecord(call_index=1)]
    totals = aggregate_model_call_records(calls)
    assert (totals["tokens_in"], totals["tokens_out"], totals["num_calls"]) == (3, None, 2)


counts = st.none() | st.integers(0, 10**6)


@given(st.lists(st.tuples(counts, counts, counts)))
def test_sums_are_over_what_is_known_and_null_if_nothing_is(columns):
    names = ("tokens_in", "tokens_out", "cached_tokens")
    calls = [ModelCallRecord(call_index=0, **dict(zip(names, values, strict=True))) for values in columns]
    totals = aggregate_model_call_records(calls)
    for place, name in enumerate(names):
        known = [values[place] for values in columns if values[place] is not None]
        assert totals[name] == (sum(known) if known else None)
    assert totals["num_calls"] == len(calls)


texts = st.text(st.characters(exclude_categories=()), max_size=5)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(anything)
def test_what_is_derived_is_strict_json_and_nothing_else_changes(value):
    before = repr(value)
    kept = well_formed(value)
    json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
    assert repr(value) == before
    assert well_formed(kept) is kept
