"""Tool calls and reasoning as the record lists them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.wire.reasoning import reasoning_content
from otel_gym.wire.tool_calls import RequestedToolCall, tool_arguments, tool_calls
from tests.records.test_usage import json_values


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("", {}),
        (None, {}),
        ("null", {}),
        ({"a": 1}, {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ('{"a":', {"_raw": '{"a":'}),
        ("[1,2]", {"_raw": "[1,2]"}),
        ('"x"', {"_raw": '"x"'}),
        ("5", {"_raw": "5"}),
        ([1], {"_raw": "[1]"}),
        (5, {"_raw": "5"}),
    ],
)
def test_arguments_are_always_an_object_and_never_a_silent_one(sent, kept):
    assert tool_arguments(sent) == kept


def test_arguments_nested_without_end_are_kept_as_text():
    hostile = "[" * 200_000
    assert tool_arguments(hostile) == {"_raw": hostile}


def test_a_nan_in_arguments_is_null():
    assert tool_arguments('{"x": NaN}') == {"x": None}


def test_one_call_gives_the_same_in_all_three_dialects():
    call = RequestedToolCall("c1", "ls", {"p": "/"})
    responses = {"output": [{"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"p":"/"}'}]}
    function = {"name": "ls", "arguments": '{"p":"/"}'}
    chat = {"choices": [{"message": {"tool_calls": [{"id": "c1", "function": function}]}}]}
    messages = {"content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"p": "/"}}]}
    assert tool_calls(responses) == tool_calls(chat) == tool_calls(messages) == [call]


def test_tool_calls_of_every_choice_are_listed():
    choices = [{"message": {"tool_calls": [{"id": name, "function": {"name": "f"}}]}} for name in ("a", "b")]
    assert [call.call_id for call in tool_calls({"choices": choices})] == ["a", "b"]


def test_a_custom_tool_of_a_chat_answer_is_listed_without_name():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "exec", "input": "ls"}}
    assert tool_calls({"choices": [{"message": {"tool_calls": [custom]}}]}) == [RequestedToolCall("c1", None, {})]


def test_hosted_and_custom_tools_of_a_responses_answer_are_left_out():
    output = [{"type": "web_search_call", "id": "ws"}, {"type": "custom_tool_call", "call_id": "c", "name": "x"}]
    assert tool_calls({"output": output}) == []


def test_an_empty_output_list_still_decides_the_dialect():
    assert tool_calls({"output": [], "content": [{"type": "tool_use", "id": "t"}]}) == []


def test_a_responses_call_without_call_id_is_known_by_its_id():
    assert tool_calls({"output": [{"type": "function_call", "id": "fc", "name": "f"}]})[0].call_id == "fc"


def test_entries_that_are_no_objects_are_passed_over():
    message = {"tool_calls": ["x", None, {"id": "c2", "function": {"name": "b"}}]}
    assert [call.call_id for call in tool_calls({"choices": ["x", {"message": message}]})] == ["c2"]


def test_reasoning_that_a_model_sends_only_as_content_is_not_lost():
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "inner"}]}
    assert reasoning_content({"output": [item]}) == "inner"


def test_a_summary_goes_before_content():
    item = {"type": "reasoning", "summary": [{"text": "short"}], "content": [{"text": "long"}]}
    assert reasoning_content({"output": [item]}) == "short"


def test_both_names_of_chat_reasoning_give_it_once():
    for message in ({"reasoning": "t"}, {"reasoning_content": "t"}, {"reasoning": "t", "reasoning_content": "t"}):
        assert reasoning_content({"choices": [{"message": message}]}) == "t"


def test_a_reasoning_object_is_no_reasoning_text():
    assert reasoning_content({"choices": [{"message": {"reasoning": {"text": "x"}}}]}) is None


def test_thinking_blocks_are_joined_by_line_feeds():
    blocks = [
        {"type": "thinking", "thinking": "a"},
        {"type": "text", "text": "-"},
        {"type": "thinking", "thinking": "b"},
    ]
    assert reasoning_content({"content": blocks}) == "a\nb"


response_names = st.sampled_from(
    ["output", "choices", "content", "message", "tool_calls", "function", "arguments", "type", "summary", "id", "name"]
)
response_types = st.sampled_from(["function_call", "tool_use", "reasoning", "thinking", "redacted_thinking"])
responses = st.recursive(
    json_values | response_types,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(response_names, inner, max_size=5),
    max_leaves=25,
)


@given(responses)
def test_no_json_value_makes_reading_raise(response):
    assert all(isinstance(call.arguments, dict) for call in tool_calls(response))
    assert reasoning_content(response) is None or isinstance(reasoning_content(response), str)
