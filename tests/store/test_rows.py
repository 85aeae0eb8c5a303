from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_gym.store.otlp_json import spans_of_line
from otel_gym.store.rows import AT, COLUMNS, LineRows, row_of_span, span_of_row
from otel_gym.store.schema import SCHEMA, batch_of_rows, rows_of_batch
from otel_gym.store.span import SpanEvent, SpanLink, StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.tokens import tokens_of
from otel_gym.store.whole_requests import RequestsInOrder
from tests.store.stores import span

NAMES = [column.attribute for column in COLUMNS if column.attribute]
texts = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
attributes = st.dictionaries(st.sampled_from([*NAMES, "gym.run.id", "nemo.gym.rollout.id", "other", ""]), values)
spans = st.builds(
    StoredSpan,
    trace_id=st.just("a" * 32),
    span_id=st.just("b" * 16),
    parent_span_id=st.none() | st.just("c" * 16),
    name=texts,
    kind=st.integers(0, 9),
    start_ns=st.integers(0, 2**64 - 1),
    end_ns=st.none() | st.integers(1, 2**64 - 1),
    attributes=attributes,
    events=st.lists(st.builds(SpanEvent, texts, st.integers(0, 2**64 - 1), attributes), max_size=2),
    links=st.lists(st.builds(SpanLink, st.just("d" * 32), st.just("e" * 16), attributes), max_size=2),
    status=st.integers(0, 5),
    status_message=st.none() | texts,
    resource=attributes,
    scope_name=st.none() | texts,
    dropped=st.integers(0, 2**31),
)


def cells(row: list[Any]) -> dict[str, Any]:
    return {column.name: row[AT[column.name]] for column in COLUMNS}


def same(one: StoredSpan, other: StoredSpan) -> bool:
    return repr(one) == repr(other) or one == other  # a NaN equals no other


def without_order(span: StoredSpan) -> StoredSpan:
    span.attributes = dict(sorted(span.attributes.items()))
    return span


@given(spans)
@example(span(1, attributes={"gym.reward": math.nan}))
@example(span(1, attributes={"other": [b"x", -math.inf, 2**70]}))
def test_any_span_comes_back_from_its_row_through_arrow(stored):
    (row,) = rows_of_batch(batch_of_rows([row_of_span(stored, "1-0")]))
    (expected,) = spans_of_line(line_of_span(stored))  # as it would be read from its line
    assert same(without_order(span_of_row(row)), without_order(expected))


@given(spans)
def test_the_quick_way_from_a_line_gives_the_row_that_the_slow_one_gives(stored):
    line = line_of_span(stored)
    (expected,) = spans_of_line(line)
    (row,) = LineRows().rows(line, "1-0")
    assert repr(row) == repr(row_of_span(expected, "1-0"))


def test_hot_attributes_are_columns_and_the_rest_is_json_text():
    row = cells(
        row_of_span(
            span(
                1,
                attributes={"gen_ai.usage.input_tokens": 7, "gen_ai.response.finish_reasons": ["stop"], "x": [1, "a"]},
            ),
            "1-0",
        )
    )
    assert (row["run_id"], row["rollout_id"], row["kind"], row["operation"]) == ("r", "1-0", "CLIENT", "chat")
    assert (row["input_tokens"], row["finish_reasons"], row["request_body"]) == (7, ["stop"], "body 1 é")
    assert json.loads(row["attributes"])["x"] == [1, "a"]
    assert row["exact"] is None


def test_a_value_of_another_type_is_in_the_column_as_far_as_it_goes_and_comes_back_as_it_was():
    stored = span(
        1, attributes={"gym.reward": 1, "gen_ai.usage.input_tokens": "7", "gen_ai.tool.call.result": {"a": {}}}
    )
    row = row_of_span(stored, "1-0")
    assert (cells(row)["reward"], cells(row)["input_tokens"], cells(row)["tool_result"]) == (1.0, None, None)
    assert span_of_row(row) == stored
    assert type(span_of_row(row).attributes["gym.reward"]) is int


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_stays_real_in_its_column(number):
    row = row_of_span(span(1, attributes={"gym.reward": number}), "1-0")
    assert repr(cells(row)["reward"]) == repr(number)
    assert cells(row)["exact"] is None


def test_the_schema_has_no_unsigned_column_no_nanosecond_timestamp_and_nothing_nested_but_lists():
    kinds = {field.type.value_type if pa.types.is_list(field.type) else field.type for field in SCHEMA}
    assert kinds == {pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC")}


def test_a_span_is_filed_under_its_folder_and_keeps_the_id_that_it_names():
    stored = span(1, "../x")
    row = row_of_span(stored, "unassigned")
    assert (cells(row)["rollout_id"], span_of_row(row)) == ("unassigned", stored)


def test_a_run_id_of_the_resource_counts():
    stored = span(1, run_id=None, resource={"gym.run.id": "from-resource"})
    for row in (row_of_span(stored, "1-0"), *LineRows().rows(line_of_span(stored), "1-0")):
        assert cells(row)["run_id"] == "from-resource"


def test_a_request_that_says_only_what_is_new_in_it_is_made_whole():
    rows = LineRows(RequestsInOrder())
    whole, grown = "a" * 600, "a" * 600 + "b"
    kept = {".base": span(1).span_id, ".kept_head": 600, ".kept_tail": 0, ".characters": 601}
    said = {f"gym.request.body{part}": value for part, value in kept.items()}
    said["gym.request.body.sha256"] = hashlib.sha256(grown.encode()).hexdigest()
    lines = [
        line_of_span(span(1, attributes={"gym.request.body": whole})),
        line_of_span(span(2, attributes=said | {"gym.request.body": "b"})),
    ]
    (first,), (second,) = (rows.rows(line, "1-0") for line in lines)
    assert (cells(first)["request_body"], cells(second)["request_body"]) == (whole, grown)
    assert "gym.request.body" not in cells(second)["attributes"]


STREAM = (
    'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[{"token":"Hi","logprob":-0.25}]},'
    '"token_ids":[13347]}],"prompt_token_ids":[1,2,3]}\n\n'
    'data: {"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop",'
    '"logprobs":{"content":[{"token":"!","logprob":-Infinity}]},"token_ids":[0]}]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(
    ("body", "content_type", "tokens"),
    [
        (STREAM, "text/event-stream", ([1, 2, 3], [13347, 0], [-0.25, -math.inf])),
        (
            '{"output":[{"prompt_token_ids":[1],"generation_token_ids":[2],"generation_log_probs":[-0.5]}]}',
            None,
            ([1], [2], [-0.5]),
        ),
        (
            '{"choices":[{"logprobs":{"content":[{"logprob":-Infinity},{"logprob":null}]}}]}',
            None,
            (None, None, [-math.inf, None]),
        ),
        ('{"choices":[{"token_ids":[1]},{"token_ids":[2]}]}', None, (None, None, None)),
        ('{"choices":[{"token_ids":[1,2],"logprobs":{"content":[{"logprob":-1}]}}]}', None, (None, None, None)),
        ('{"choices":[{"token_ids":[4294967296]}]}', None, (None, None, None)),
        ('{"choices":[{"token_ids":"x","logprobs":[]}], "token_ids', None, (None, None, None)),
        ("no tokens here", None, (None, None, None)),
    ],
)
def test_token_ids_and_log_probabilities_are_copied_out_of_the_answer(body, content_type, tokens):
    said = {"gym.dialect": "chat"} | ({"gym.response.content_type": content_type} if content_type else {})
    assert tuple(tokens_of(said, body)) == tokens
    stored = span(1, attributes=said | {"gym.response.body": body})
    for row in (row_of_span(stored, "1-0"), *LineRows().rows(line_of_span(stored), "1-0")):
        (back,) = rows_of_batch(batch_of_rows([row]))
        assert tuple(back[AT["prompt_token_ids"] : AT["prompt_token_ids"] + 3]) == tokens
        assert back[AT["response_body"]] == body
