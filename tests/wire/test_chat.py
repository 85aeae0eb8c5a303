"""Chat streams: the object is what the plain call would have returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.wire import ParsedExchange

ReadStream = Callable[..., ParsedExchange]
DONE = "[DONE]"


def chunk(delta: Any = None, *, index: Any = 0, finish: str | None = None, **choice: Any) -> dict[str, Any]:
    entry = {"index": index, "delta": delta or {}, "finish_reason": finish, **choice}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [entry]}


def call(fragment: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": [fragment, *more]})


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    given = {"name": name, "arguments": arguments}
    return {"function": {key: value for key, value in given.items() if value is not None}}


def tool_calls(read_stream: ReadStream, *events: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    response = read_stream("chat", [*events, DONE]).response
    assert response is not None
    calls = response["choices"][0]["message"]["tool_calls"]
    return [(entry["id"], entry["function"]["name"], entry["function"]["arguments"]) for entry in calls]


def message(read_stream: ReadStream, *deltas: dict[str, Any]) -> dict[str, Any]:
    response = read_stream("chat", [*map(chunk, deltas), DONE]).response
    assert response is not None
    found: dict[str, Any] = response["choices"][0]["message"]
    return found


def test_stream_becomes_the_plain_object(read_stream: ReadStream) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    events = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        {"id": "c1", "choices": [], "usage": usage, "service_tier": "default", "system_fingerprint": "fp"},
        DONE,
    ]
    parsed = read_stream("chat", events)
    assert parsed.response == {
        "id": "c1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": usage,
        "service_tier": "default",
        "system_fingerprint": "fp",
    }
    assert (parsed.terminal_event, parsed.stream_truncated, parsed.error_category) == (DONE, False, None)
    assert parsed.first_content_ns == 20


def test_azure_filter_chunks_never_overwrite_id_and_model(read_stream: ReadStream) -> None:
    empty = {"id": "", "object": "", "created": 0, "model": ""}
    events = [
        {**empty, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        chunk({"content": "ok"}, content_filter_results={"hate": {"filtered": False}}),
        chunk(finish="stop"),
        {**empty, "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 1}}]},
        DONE,
    ]
    response = read_stream("chat", events).response
    assert response is not None
    assert (response["id"], response["model"], response["created"]) == ("c1", "m", 7)
    assert response["prompt_filter_results"] == [{"prompt_index": 0}]
    assert response["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "ok"},
        "finish_reason": "stop",
        "content_filter_results": {"hate": {"filtered": False}},
        "content_filter_offsets": {"check_offset": 1},
    }


def test_choices_are_kept_apart(read_stream: ReadStream) -> None:
    events = [
        chunk({"content": "X"}, index=1),
        chunk({"content": "A"}),
        chunk({"content": "Y"}, index=1, finish="length"),
        chunk({"content": "B"}, finish="stop"),
        DONE,
    ]
    response = read_stream("chat", events).response
    assert response is not None
    found = [(entry["index"], entry["message"]["content"], entry["finish_reason"]) for entry in response["choices"]]
    assert found == [(0, "AB", "stop"), (1, "XY", "length")]


def test_null_usage_after_usage_wipes_nothing(read_stream: ReadStream) -> None:
    events = [{**chunk({"content": "x"}), "usage": {"prompt_tokens": 1}}, {"choices": [], "usage": None}, DONE]
    response = read_stream("chat", events).response
    assert response is not None
    assert response["usage"] == {"prompt_tokens": 1}


def test_nulls_of_a_later_usage_do_not_wipe_known_counts(read_stream: ReadStream) -> None:
    known = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}, "cost": 1}
    later = {"prompt_tokens": None, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}, "x": None}
    events = [{**chunk({"content": "x"}), "usage": known}, {**chunk(finish="stop"), "usage": later}, DONE]
    response = read_stream("chat", events).response
    assert response is not None
    filled = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}, "x": None}
    assert response["usage"] == filled


def test_another_dialects_events_are_no_chat_answer(read_stream: ReadStream) -> None:
    events = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 16}},
        {"type": "response.created", "response": {"id": "r"}, "id": "x"},
    ]
    parsed = read_stream("chat", events)
    assert (parsed.response, parsed.error_category) == (None, "stream_truncated")


def test_done_on_a_line_of_an_event_that_was_not_closed_ends_the_stream(read_stream: ReadStream) -> None:
    assert read_stream("chat", "data: x\ndata: [DONE]\n\n").terminal_event == DONE
    error = read_stream("chat", 'data: x\ndata: {"error":{"type":"y"}}\n\n')
    assert (error.terminal_event, error.error_category) == ("error", "upstream_error")
    assert read_stream("chat", "data: x[DONE]\n\n").terminal_event is None


def test_usage_that_is_always_null_is_unknown(read_stream: ReadStream) -> None:
    response = read_stream("chat", [{**chunk({"content": "x"}), "usage": None}, DONE]).response
    assert response is not None
    assert "usage" not in response


def test_usage_of_each_chunk_replaces_the_one_before(read_stream: ReadStream) -> None:
    events = [{**chunk({"content": "x"}), "usage": {"completion_tokens": n, "a": n}} for n in (1, 2)]
    events.append({"choices": [], "usage": {"completion_tokens": 3}})
    response = read_stream("chat", [*events, DONE]).response
    assert response is not None
    assert response["usage"] == {"completion_tokens": 3}


def test_reasoning_keeps_the_name_it_came_under(read_stream: ReadStream) -> None:
    found = message(
        read_stream, {"reasoning": "a", "reasoning_content": "a"}, {"reasoning": "b", "reasoning_content": "b"}
    )
    assert (found["reasoning"], found["reasoning_content"], found["content"]) == ("ab", "ab", None)


def test_reasoning_whose_name_changes_in_mid_stream_is_whole_under_either_name(read_stream: ReadStream) -> None:
    found = message(read_stream, {"reasoning": "t"}, {"reasoning_content": "u"}, {"reasoning": "v", "content": "a"})
    assert (found["reasoning"], found["reasoning_content"]) == ("tuv", "tuv")
    late = message(read_stream, {"reasoning": "t"}, {"reasoning": "u", "reasoning_content": "u"})
    assert (late["reasoning"], late["reasoning_content"]) == ("tu", "tu")


@pytest.mark.parametrize(
    ("deltas", "content"),
    [
        ([{"role": "assistant", "content": ""}, {}], ""),
        ([{"role": "assistant", "content": None}, {}], None),
        ([{"role": "assistant"}, {}], None),
        ([{"content": ""}, {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}], None),
        ([{"content": ""}, {"refusal": "no"}], None),
        ([{"content": ""}, {"reasoning": "r"}], None),
        ([{"content": ""}, {"content": "a"}, {"content": ""}], "a"),
    ],
)
def test_empty_answer_is_the_empty_text_of_its_plain_twin(
    read_stream: ReadStream, deltas: list[dict[str, Any]], content: str | None
) -> None:
    assert message(read_stream, *deltas)["content"] == content


def test_reasoning_details_are_joined_by_type_and_index(read_stream: ReadStream) -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return {"reasoning_details": [{"type": "reasoning.text", "index": 0, "format": "f", **fields}]}

    secret = {"type": "reasoning.encrypted", "index": 1, "data": "zz"}
    found = message(
        read_stream, detail(text="a"), detail(text="b"), detail(signature="S"), {"reasoning_details": [secret]}
    )
    whole = {"type": "reasoning.text", "index": 0, "format": "f", "text": "ab", "signature": "S"}
    assert found["reasoning_details"] == [whole, secret]


def test_refusal_audio_and_annotations_are_put_together(read_stream: ReadStream) -> None:
    found = message(
        read_stream,
        {"role": "assistant", "refusal": "No"},
        {"refusal": "pe", "annotations": [{"a": 1}], "audio": {"id": "au", "data": "QQ", "transcript": "x"}},
        {"annotations": [{"a": 2}], "audio": {"data": "Qg", "transcript": "y", "expires_at": 9}},
    )
    assert found == {
        "role": "assistant",
        "content": None,
        "refusal": "Nope",
        "annotations": [{"a": 1}, {"a": 2}],
        "audio": {"id": "au", "data": "QQQg", "transcript": "xy", "expires_at": 9},
    }


def test_null_that_the_plain_answer_has_too_is_kept(read_stream: ReadStream) -> None:
    response = read_stream("chat", [chunk({"content": "a", "refusal": None}, logprobs=None), DONE]).response
    assert response is not None
    assert response["choices"][0]["message"]["refusal"] is None
    assert response["choices"][0]["logprobs"] is None


def test_log_probabilities_and_token_ids_of_all_chunks_are_kept(read_stream: ReadStream) -> None:
    events = [
        {**chunk({"role": "assistant"}), "prompt_token_ids": [1, 2, 3]},
        chunk({"content": "Hi"}, logprobs={"content": [{"token": "Hi"}], "refusal": None}, token_ids=[13347]),
        chunk({"content": "!"}, logprobs={"content": [{"token": "!"}], "refusal": None}, token_ids=[0]),
        DONE,
    ]
    response = read_stream("chat", events).response
    assert response is not None
    assert response["prompt_token_ids"] == [1, 2, 3]
    assert response["choices"][0]["token_ids"] == [13347, 0]
    assert response["choices"][0]["logprobs"] == {"content": [{"token": "Hi"}, {"token": "!"}], "refusal": None}


def test_vllm_stop_reason_and_padding(read_stream: ReadStream) -> None:
    events = [{**chunk({"content": "a"}, stop_reason=None), "obfuscation": "xyz"}, chunk(stop_reason="END"), DONE]
    response = read_stream("chat", events).response
    assert response is not None
    assert response["choices"][0]["stop_reason"] == "END"
    assert "obfuscation" not in response


def test_mistrals_thinking_had_a_part_a_chunk(read_stream: ReadStream) -> None:
    def think(*texts: str, **more: Any) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts], **more}

    deltas: list[Any] = ["", [think("Okay")], [think(" so")], [think(".", closed=True)], "H", "i", [think("No")]]
    assert message(read_stream, *({"content": content} for content in deltas))["content"] == [
        think("Okay so.", closed=True),
        {"type": "text", "text": "Hi"},
        think("No"),
    ]


def test_content_as_a_list_of_parts_is_kept(read_stream: ReadStream) -> None:
    found = message(
        read_stream, {"content": [{"type": "text", "text": "a"}]}, {"content": [{"type": "text", "text": "b"}]}
    )
    assert found["content"] == [{"type": "text", "text": "ab"}]
    found = message(read_stream, {"content": "a"}, {"content": [{"type": "image"}]}, {"content": "b"})
    assert found["content"] == [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]


def test_parallel_tool_calls_come_in_index_order(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"index": 1, "id": "c2", **function("b", "{}")}),
        call({"index": 0, "id": "c1", **function("a", '{"x":')}),
        call({"index": 0, **function(arguments="1}")}, {"index": 1, **function(arguments="")}),
    )
    assert found == [("c1", "a", '{"x":1}'), ("c2", "b", "{}")]


def test_tool_calls_without_index_open_with_each_new_id(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"id": "c1", **function("f", "{")}),
        call(function(arguments="}")),
        call({"id": "c2", **function("f", "[")}),
        call({"id": "c2", **function(arguments="]")}),
    )
    assert found == [("c1", "f", "{}"), ("c2", "f", "[]")]


def test_new_id_on_a_used_index_is_a_new_call(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"index": 0, "id": "c1", **function("f", '{"city":"Oslo"}')}),
        call({"index": 0, "id": "c2", **function("f", "")}),
        call({"index": 1, **function(arguments='{"city":')}),
        call({"index": 1, **function(arguments='"Bern"}')}),
    )
    assert found == [("c1", "f", '{"city":"Oslo"}'), ("c2", "f", '{"city":"Bern"}')]


def test_mixed_index_types_are_two_calls(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"index": None, "id": "c1", **function("a", "{}")}),
        call({"index": 0, "id": "c2", **function("b", "{}")}),
    )
    assert found == [("c1", "a", "{}"), ("c2", "b", "{}")]


def test_id_that_comes_late_belongs_to_the_call_on_its_index(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"index": 0, **function("f", "{")}),
        call({"index": 0, "id": "c1", **function(arguments="}")}),
    )
    assert found == [("c1", "f", "{}")]


def test_calls_that_share_one_id_stay_apart_by_index(read_stream: ReadStream) -> None:
    found = tool_calls(
        read_stream,
        call({"index": 0, "id": "x", **function("f", "{}")}),
        call({"index": 1, "id": "x", **function("g", "[")}),
        call({"index": 1, "id": "x", **function(arguments="]")}),
    )
    assert found == [("x", "f", "{}"), ("x", "g", "[]")]


def test_whole_calls_without_ids_stay_apart(read_stream: ReadStream) -> None:
    whole = [call({"index": 0, **function("f", '{"a":1}')}), call({"index": 0, **function("g", '{"b":2}')})]
    assert tool_calls(read_stream, *whole) == [(None, "f", '{"a":1}'), (None, "g", '{"b":2}')]
    indexed = [call({"index": 0, **function("f", "{")}), call({"index": 1, **function("g", "{}")})]
    assert tool_calls(read_stream, *indexed) == [(None, "f", "{"), (None, "g", "{}")]


@pytest.mark.parametrize(
    ("fragments", "name"),
    [(["search_", "web"], "search_web"), (["search_web", "search_web"], "search_web"), (["ab", "cd", ""], "abcd")],
)
def test_tool_name_in_fragments_or_repeated(read_stream: ReadStream, fragments: list[str], name: str) -> None:
    events = [call({"index": 0, "id": "c9", **function(fragments[0], "{")})]
    events += [call({"index": 0, **function(fragment)}) for fragment in fragments[1:]]
    found = tool_calls(read_stream, *events, call({"index": 0, **function(arguments="}")}))
    assert found == [("c9", name, "{}")]


def test_arguments_that_are_an_object_stay_one(read_stream: ReadStream) -> None:
    assert tool_calls(read_stream, call({"id": "c", **function("f", {"a": 1})})) == [("c", "f", {"a": 1})]


def test_custom_tool_call_keeps_its_shape(read_stream: ReadStream) -> None:
    found = message(
        read_stream,
        {"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "exec", "input": ""}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "l"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "s"}}]},
    )
    assert found["tool_calls"] == [{"id": "c1", "type": "custom", "custom": {"name": "exec", "input": "ls"}}]


def test_unknown_fields_of_a_tool_call_are_kept(read_stream: ReadStream) -> None:
    signature = {"google": {"thought_signature": "sig"}}
    found = message(
        read_stream, {"tool_calls": [{"index": 0, "id": "c1", **function("f", "{}"), "extra_content": signature}]}
    )
    assert found["tool_calls"][0]["extra_content"] == signature


def test_legacy_function_call(read_stream: ReadStream) -> None:
    found = message(
        read_stream,
        {"function_call": {"name": "f", "arguments": "{"}},
        {"function_call": {"name": "f", "arguments": "}"}},
    )
    assert found["function_call"] == {"name": "f", "arguments": "{}"}


def test_error_payload_without_event_line_is_an_error_though_done_follows(read_stream: ReadStream) -> None:
    parsed = read_stream("chat", [{"error": {"message": "quota", "type": "insufficient_quota"}}, DONE])
    assert (parsed.response, parsed.error_category, parsed.terminal_event) == (None, "upstream_error", "error")
    assert parsed.error == {"message": "quota", "type": "insufficient_quota"}


def test_error_null_is_none_and_an_empty_error_is_one(read_stream: ReadStream) -> None:
    fine = read_stream("chat", [{**chunk({"content": "a"}), "error": None}, DONE])
    assert (fine.error_category, fine.error) == (None, None)
    assert fine.response is not None
    assert "error" not in fine.response
    assert read_stream("chat", [{**chunk({"content": "a"}), "error": {}}, DONE]).error_category == "upstream_error"


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_error_that_is_false_is_none_and_a_text_is_one(read_stream: ReadStream, dialect: str) -> None:
    for nothing in (False, 0, "", []):
        parsed = read_stream(dialect, [{"error": nothing}])
        assert (parsed.error_category, parsed.error) == ("stream_truncated", None)
    parsed = read_stream(dialect, [{"error": "boom"}])
    assert (parsed.error_category, parsed.error) == ("upstream_error", {"message": "boom"})


def test_error_beside_choices_leaves_the_chunk_a_chunk(read_stream: ReadStream) -> None:
    parsed = read_stream("chat", [{**chunk({"content": "a"}, finish="error"), "error": {"code": 502}}])
    assert (parsed.error_category, parsed.error) == ("upstream_error", {"code": 502})
    assert parsed.response is not None
    assert (parsed.response["id"], parsed.response["model"]) == ("c1", "m")
    assert "error" not in parsed.response


def test_error_that_only_its_object_field_names(read_stream: ReadStream) -> None:
    parsed = read_stream(
        "chat", [{"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, DONE]
    )
    assert (parsed.response, parsed.error_category) == (None, "upstream_error")
    assert parsed.error == {"message": "too long", "type": "BadRequestError", "code": 400}


def test_error_event_whose_data_is_no_json(read_stream: ReadStream) -> None:
    parsed = read_stream("chat", "event: error\ndata: upstream died\n\n")
    assert (parsed.error_category, parsed.error) == ("upstream_error", {"message": "upstream died"})


def test_chunks_without_choices_are_kept(read_stream: ReadStream) -> None:
    parsed = read_stream("chat", [{"id": "c1", "model": "m", "usage": {"prompt_tokens": 1}}, DONE])
    assert parsed.error_category is None
    assert parsed.response == {
        "id": "c1",
        "model": "m",
        "usage": {"prompt_tokens": 1},
        "object": "chat.completion",
        "choices": [],
    }


def test_done_with_blanks_around_ends_the_stream(read_stream: ReadStream) -> None:
    for done in ("data:[DONE]", "data:   [DONE]", "data: [DONE] \t"):
        assert read_stream("chat", f'data: {{"choices":[{{"delta":{{}}}}]}}\n\n{done}\n\n').error_category is None


def test_stream_of_nothing_but_done_is_a_parse_error(read_stream: ReadStream) -> None:
    assert read_stream("chat", [{"type": "ping"}, DONE]).error_category == "capture_parse_error"


@pytest.mark.parametrize(
    ("delta", "is_content"),
    [
        ({"role": "assistant", "content": ""}, False),
        ({"content": None, "tool_calls": []}, False),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, False),
        ({"content": "x"}, True),
        ({"reasoning_content": "x"}, True),
        ({"reasoning": "x"}, True),
        ({"refusal": "x"}, True),
        ({"tool_calls": [{"index": 0, "id": "c1"}]}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, True),
        ({"tool_calls": [{"index": 0, "custom": {"input": "{"}}]}, True),
    ],
)
def test_first_content_is_the_first_text_reasoning_or_call(
    read_stream: ReadStream, delta: dict[str, Any], is_content: bool
) -> None:
    parsed = read_stream("chat", [chunk({"role": "assistant"}), chunk(delta), DONE])
    assert parsed.first_content_ns == (20 if is_content else None)


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": 5},
        {"choices": [None, 1, [], {"delta": 3}]},
        {"choices": [{"index": [], "delta": {"tool_calls": [None, {"index": {}, "id": 3, "function": []}]}}]},
        {"choices": [{"delta": {"content": {"a": 1}, "role": 3, "function_call": "x", "audio": 1}}]},
        {"choices": [{"delta": {"tool_calls": {"a": 1}}}], "id": [], "usage": 7},
        {"choices": [{"message": "x", "logprobs": [1], "token_ids": 3}]},
    ],
)
def test_any_type_in_any_place_raises_nothing(read_stream: ReadStream, payload: dict[str, Any]) -> None:
    good = chunk({"content": "ok", "tool_calls": [{"index": 0, "id": "a", **function("f", "{}")}]})
    for events in ([payload, good, DONE], [good, payload, DONE]):
        assert read_stream("chat", events).error_category is None


@pytest.mark.parametrize("damaged", [{"function": "x"}, {"function": {"arguments": False}}, {"function": {"name": {}}}])
def test_damaged_fragment_leaves_the_call_as_it_was(read_stream: ReadStream, damaged: dict[str, Any]) -> None:
    events = [call({"index": 0, "id": "a", **function("f", "{}")}), call({"index": 0, **damaged})]
    assert tool_calls(read_stream, *events) == [("a", "f", "{}")]


def test_message_that_is_no_object_does_not_replace_the_deltas(read_stream: ReadStream) -> None:
    events = [chunk({"content": "a"}), {"id": 7, "choices": [{"index": 0, "message": 0}]}, DONE]
    response = read_stream("chat", events).response
    assert response is not None
    assert (response["id"], response["choices"][0]["message"]["content"]) == ("c1", "a")


def test_usage_counts_whatever_event_says_it(read_stream: ReadStream) -> None:
    events = [chunk({"content": "a"}), {"type": "summary", "usage": {"prompt_tokens": 3}}, DONE]
    response = read_stream("chat", events).response
    assert response is not None
    assert response["usage"] == {"prompt_tokens": 3}
    assert "type" not in response
