"""Messages streams: the object is what the plain call would have returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.wire import ParsedExchange

ReadStream = Callable[..., ParsedExchange]
STOP = {"type": "message_stop"}
ENVELOPE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "stop_reason": None,
    "stop_sequence": None,
}


def start(**fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    return {"type": "message_start", "message": {**ENVELOPE, "content": [], "usage": usage, **fields}}


def block(index: int | None, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_start", "content_block": fields}
    return event if index is None else {**event, "index": index}


def delta(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": kind, **fields}}
    return event if index is None else {**event, "index": index}


def ended(stop_reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    usage = {"output_tokens": 16}
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage, **fields}


def content(read_stream: ReadStream, *events: dict[str, Any]) -> list[dict[str, Any]]:
    response = read_stream("messages", [start(), *events, ended(), STOP]).response
    assert response is not None
    blocks: list[dict[str, Any]] = response["content"]
    return blocks


def test_stream_becomes_the_plain_object(read_stream: ReadStream) -> None:
    events = [
        start(),
        {"type": "ping"},
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="SIG"),
        {"type": "content_block_stop", "index": 0},
        block(1, type="redacted_thinking", data="zz"),
        block(2, type="text", text=""),
        delta(2, "text_delta", text="Hel"),
        delta(2, "text_delta", text="lo"),
        block(3, type="tool_use", id="t1", name="f", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"a":'),
        delta(3, "input_json_delta", partial_json="1}"),
        ended("tool_use"),
        STOP,
    ]
    parsed = read_stream("messages", events)
    assert parsed.response == {
        **ENVELOPE,
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "SIG"},
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 16},
    }
    assert (parsed.terminal_event, parsed.error_category, parsed.first_content_ns) == ("message_stop", None, 40)


def test_cumulative_usage_is_not_added(read_stream: ReadStream) -> None:
    first = {
        "input_tokens": 9,
        "cache_read_input_tokens": 100,
        "cache_creation": {"5m": 1, "1h": 2},
        "output_tokens": 1,
    }
    last = {"input_tokens": 9, "cache_read_input_tokens": 100, "cache_creation": {"1h": 3}, "output_tokens": 16}
    response = read_stream("messages", [start(usage=first), ended(usage=last), STOP]).response
    assert response is not None
    assert response["usage"] == {**last, "cache_creation": {"5m": 1, "1h": 3}}


def test_null_in_the_last_usage_does_not_wipe_the_first(read_stream: ReadStream) -> None:
    response = read_stream(
        "messages", [start(), ended(usage={"input_tokens": None, "output_tokens": 16}), STOP]
    ).response
    assert response is not None
    assert response["usage"] == {"input_tokens": 9, "output_tokens": 16}


def test_citations_are_appended(read_stream: ReadStream) -> None:
    blocks = content(
        read_stream,
        block(0, type="text", text="", citations=[]),
        delta(0, "citations_delta", citation={"n": 1}),
        delta(0, "text_delta", text="a"),
        delta(0, "citations_delta", citation={"n": 2}),
        block(1, type="text", text="", citations=None),
        delta(1, "citations_delta", citation={"n": 3}),
    )
    assert [found["citations"] for found in blocks] == [[{"n": 1}, {"n": 2}], [{"n": 3}]]


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use"])
def test_input_of_every_kind_of_tool_is_put_together(read_stream: ReadStream, kind: str) -> None:
    blocks = content(
        read_stream, block(0, type=kind, input={}), delta(0, "input_json_delta", partial_json='{"q": "x"}')
    )
    assert blocks == [{"type": kind, "input": {"q": "x"}}]


@pytest.mark.parametrize(
    ("prefilled", "fragments", "expected"),
    [
        ({"a": 1}, [], {"a": 1}),
        ({"a": 1}, [""], {"a": 1}),
        ({}, [], {}),
        ({"a": 1}, ['{"b"', ": 2}"], {"b": 2}),
        ({}, ['{"a":'], {"_raw": '{"a":'}),
        ({}, ["[" * 100_000], {"_raw": "[" * 100_000}),
    ],
)
def test_input_deltas_win_over_what_was_prefilled(
    read_stream: ReadStream, prefilled: dict[str, Any], fragments: list[str], expected: dict[str, Any]
) -> None:
    deltas = [delta(0, "input_json_delta", partial_json=fragment) for fragment in fragments]
    assert content(read_stream, block(0, type="tool_use", input=prefilled), *deltas)[0]["input"] == expected


def test_tool_result_blocks_come_whole(read_stream: ReadStream) -> None:
    whole = {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [{"type": "web_search_result", "url": "u"}],
    }
    assert content(read_stream, block(0, **whole)) == [whole]


def test_compaction_block(read_stream: ReadStream) -> None:
    blocks = content(
        read_stream,
        block(0, type="compaction", content=None),
        delta(0, "compaction_delta", content="summary", encrypted_content="zz"),
    )
    assert blocks == [{"type": "compaction", "content": "summary", "encrypted_content": "zz"}]


def test_model_that_took_over_is_the_one_named(read_stream: ReadStream) -> None:
    events = [start(), block(0, type="fallback", to={"model": "d"}), ended(), STOP]
    response = read_stream("messages", events).response
    assert response is not None
    assert response["model"] == "d"


def test_what_message_delta_says_is_on_the_message(read_stream: ReadStream) -> None:
    said = {
        "stop_reason": "refusal",
        "stop_sequence": None,
        "stop_details": {"type": "refusal"},
        "container": {"id": "k"},
    }
    event = {"type": "message_delta", "delta": said, "context_management": {"applied_edits": []}}
    response = read_stream("messages", [start(container=None), event, STOP]).response
    assert response is not None
    assert {key: response[key] for key in said} == said
    assert response["context_management"] == {"applied_edits": []}


def test_message_without_message_start_keeps_what_came(read_stream: ReadStream) -> None:
    parsed = read_stream("messages", [delta(0, "text_delta", text="x"), ended(), STOP])
    assert parsed.response == {
        "type": "message",
        "content": [{"type": "text", "text": "x"}],
        "stop_reason": "end_turn",
        "usage": {"output_tokens": 16},
    }


def test_blocks_without_start_get_the_type_of_their_deltas(read_stream: ReadStream) -> None:
    blocks = content(read_stream, delta(0, "thinking_delta", thinking="t"), delta(1, "text_delta", text="x"))
    assert blocks == [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}]


def test_blocks_are_sorted_by_index_and_gaps_are_closed(read_stream: ReadStream) -> None:
    blocks = content(read_stream, block(2, type="text", text="second"), block(0, type="text", text="first"))
    assert [found["text"] for found in blocks] == ["first", "second"]


def test_blocks_and_deltas_without_index_belong_to_the_one_being_streamed(read_stream: ReadStream) -> None:
    blocks = content(
        read_stream,
        block(None, type="text", text=""),
        delta(None, "text_delta", text="a"),
        block(None, type="text", text=""),
        delta(None, "text_delta", text="b"),
    )
    assert [found["text"] for found in blocks] == ["a", "b"]


def test_second_message_replaces_the_envelope_and_keeps_the_blocks(read_stream: ReadStream) -> None:
    events = [start(), block(0, type="text", text="Hello"), ended(), start(id="m2"), STOP]
    response = read_stream("messages", events).response
    assert response is not None
    assert (response["id"], response["stop_reason"]) == ("m2", None)
    assert response["content"] == [{"type": "text", "text": "Hello"}]
    assert response["usage"] == {"input_tokens": 9, "output_tokens": 1}


def test_error_in_mid_stream_keeps_what_had_come(read_stream: ReadStream) -> None:
    error = {"type": "overloaded_error", "message": "x"}
    events = [start(), delta(0, "text_delta", text="Hel"), {"type": "error", "error": error}]
    parsed = read_stream("messages", events)
    assert (parsed.error_category, parsed.terminal_event, parsed.error) == ("upstream_error", "error", error)
    assert parsed.response is not None
    assert parsed.response["content"] == [{"type": "text", "text": "Hel"}]


def test_only_an_error_is_no_message(read_stream: ReadStream) -> None:
    parsed = read_stream("messages", [{"type": "ping"}, {"type": "error", "error": {"type": "rate_limit_error"}}])
    assert (parsed.response, parsed.error) == (None, {"type": "rate_limit_error"})


def test_only_a_ping_is_a_parse_error(read_stream: ReadStream) -> None:
    assert read_stream("messages", [{"type": "ping"}, STOP]).error_category == "capture_parse_error"


def test_stop_by_event_name_alone_ends_the_stream(read_stream: ReadStream) -> None:
    assert read_stream("messages", 'data: {"type":"message_start"}\n\nevent: message_stop\n\n').error_category is None


@pytest.mark.parametrize(
    ("event", "is_content"),
    [
        ({"type": "ping"}, False),
        (block(0, type="text", text=""), False),
        (block(0, type="thinking", thinking="", signature=""), False),
        (delta(0, "signature_delta", signature="S"), False),
        (delta(0, "new_delta", text="1"), False),
        (delta(0, "compaction_delta", content="sum"), True),
        (delta(0, "text_delta", text=""), False),
        (delta(0, "citations_delta", citation={}), False),
        (ended(), False),
        (block(0, type="text", text="x"), True),
        (block(0, type="tool_use", input={}), True),
        (block(0, type="redacted_thinking", data="z"), True),
        (delta(0, "thinking_delta", thinking="x"), True),
        (delta(0, "input_json_delta", partial_json="{"), True),
    ],
)
def test_first_content(read_stream: ReadStream, event: dict[str, Any], is_content: bool) -> None:
    assert read_stream("messages", [start(), event, STOP]).first_content_ns == (20 if is_content else None)


@pytest.mark.parametrize("value", [None, 0, "x", [], {}, [{}], {"type": []}])
@pytest.mark.parametrize("key", ["type", "message", "index", "content_block", "delta", "usage"])
def test_any_type_in_any_place_raises_nothing(read_stream: ReadStream, key: str, value: Any) -> None:
    for event in (start(), block(0, type="text", text=""), delta(0, "text_delta", text="x"), ended()):
        parsed = read_stream("messages", [start(), {**event, key: value}, STOP])
        assert parsed.response is not None


def test_empty_stop_reason_does_not_wipe_the_known_one(read_stream: ReadStream) -> None:
    def said(reason: Any) -> dict[str, Any]:
        return {"type": "message_delta", "delta": {"stop_reason": reason}}

    response = read_stream("messages", [start(), said("end_turn"), said(""), STOP]).response
    assert response is not None
    assert response["stop_reason"] == "end_turn"
