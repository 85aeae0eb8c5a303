"""Responses streams: the last envelope, or the output rebuilt from events where none came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.wire import ParsedExchange

ReadStream = Callable[..., ParsedExchange]
CREATED = {
    "type": "response.created",
    "response": {"id": "r1", "object": "response", "status": "in_progress", "output": []},
}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def envelope(kind: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {"id": "r1", "object": "response", "status": kind, "output": [{"type": "message"}], **fields}
    return event(kind, response=response)


def output(read_stream: ReadStream, *events: dict[str, Any]) -> list[dict[str, Any]]:
    parsed = read_stream("responses", [CREATED, *events])
    assert (parsed.error_category, parsed.stream_truncated) == ("stream_truncated", True)
    assert parsed.response is not None
    assert parsed.response["id"] == "r1"
    items: list[dict[str, Any]] = parsed.response["output"]
    return items


def text_delta(delta: str, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=delta, **fields)


@pytest.mark.parametrize(
    ("kind", "category"), [("completed", None), ("incomplete", "incomplete"), ("failed", "upstream_error")]
)
def test_terminal_envelope_is_the_answer(read_stream: ReadStream, kind: str, category: str | None) -> None:
    last = envelope(kind, usage={"input_tokens": 1})
    parsed = read_stream("responses", [CREATED, text_delta("ignored"), last])
    assert parsed.response == last["response"]
    assert (parsed.error_category, parsed.terminal_event) == (category, f"response.{kind}")


CALL = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "weather", "arguments": "{}"}
SAID = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}


@pytest.mark.parametrize("listed", [{"output": []}, {"output": None}, {}])
@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_text_and_tool_calls_were_lost_where_the_terminal_envelope_lists_no_output(
    read_stream: ReadStream, listed: dict[str, Any], kind: str
) -> None:
    last = {"id": "r1", "object": "response", "status": kind, "usage": {"input_tokens": 1}, **listed}
    unfinished = {"type": "message", "id": "m2", "role": "assistant", "content": []}
    events = [
        event("output_item.added", output_index=1, item={**CALL, "arguments": ""}),
        event("function_call_arguments.delta", item_id="f1", output_index=1, delta="{}"),
        event("output_item.done", output_index=1, item=CALL),
        event("output_item.done", output_index=0, item=SAID),
        event("output_item.added", output_index=2, item=unfinished),
    ]
    parsed = read_stream("responses", [CREATED, *events, event(kind, response=last)])
    assert parsed.response == {**last, "output": [SAID, CALL]}


def test_an_empty_answer_stays_empty(read_stream: ReadStream) -> None:
    last = envelope(output=[])
    parsed = read_stream("responses", [CREATED, text_delta("never ended"), last])
    assert parsed.response == last["response"]


def test_first_terminal_event_sets_the_category_and_the_last_envelope_the_answer(read_stream: ReadStream) -> None:
    parsed = read_stream("responses", [envelope("failed"), envelope("completed", id="r2")])
    assert parsed.response is not None
    assert (parsed.error_category, parsed.response["id"]) == ("upstream_error", "r2")


def test_failed_response_names_the_error(read_stream: ReadStream) -> None:
    error = {"code": "server_error", "message": "boom"}
    assert read_stream("responses", [CREATED, envelope("failed", error=error)]).error == error


def test_error_event_without_name_line_is_an_error(read_stream: ReadStream) -> None:
    parsed = read_stream(
        "responses", [CREATED, {"type": "error", "sequence_number": 1, "code": "e", "message": "boom"}]
    )
    assert parsed.error_category == "upstream_error"
    assert parsed.error == {"code": "e", "message": "boom"}
    assert parsed.response == CREATED["response"]


def test_done_marker_ends_no_responses_stream(read_stream: ReadStream) -> None:
    assert read_stream("responses", [CREATED, "[DONE]"]).error_category == "stream_truncated"


def test_terminal_event_without_envelope_leaves_the_rebuilt_output(read_stream: ReadStream) -> None:
    parsed = read_stream("responses", [CREATED, text_delta("4"), event("completed", response=None)])
    assert parsed.error_category is None
    assert parsed.response is not None
    assert parsed.response["output"][0]["content"][0]["text"] == "4"


def test_cut_stream_keeps_text_reasoning_and_calls(read_stream: ReadStream) -> None:
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "only in done"}]}
    items = output(
        read_stream,
        event("output_item.done", output_index=0, item=reasoning),
        event("output_item.added", output_index=1, item={"id": "msg_1", "type": "message", "content": []}),
        event(
            "content_part.added",
            item_id="msg_1",
            content_index=0,
            part={"type": "output_text", "text": "", "annotations": []},
        ),
        event("output_text.delta", item_id="msg_1", output_index=1, content_index=0, delta="Hel", logprobs=[{"t": 1}]),
        event("output_text.delta", item_id="msg_1", output_index=1, content_index=0, delta="lo", logprobs=[{"t": 2}]),
        event("output_text.annotation.added", item_id="msg_1", content_index=0, annotation={"url": "u"}),
        event(
            "output_item.added",
            output_index=2,
            item={"id": "fc_1", "type": "function_call", "call_id": "c1", "arguments": ""},
        ),
        event("function_call_arguments.delta", item_id="fc_1", output_index=2, delta='{"a":'),
    )
    text = {"type": "output_text", "text": "Hello", "annotations": [{"url": "u"}], "logprobs": [{"t": 1}, {"t": 2}]}
    assert items == [
        reasoning,
        {"id": "msg_1", "type": "message", "content": [text]},
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "arguments": '{"a":'},
    ]


def test_deltas_alone_make_an_item(read_stream: ReadStream) -> None:
    text = {"type": "output_text", "text": "4!", "annotations": []}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    assert output(read_stream, text_delta("4"), text_delta("!")) == [whole]
    assert read_stream("responses", [text_delta("4!")]).response == {"object": "response", "output": [whole]}


@pytest.mark.parametrize(
    ("item", "kind", "key"),
    [
        ("function_call", "function_call_arguments", "arguments"),
        ("custom_tool_call", "custom_tool_call_input", "input"),
        ("mcp_call", "mcp_call_arguments", "arguments"),
        ("code_interpreter_call", "code_interpreter_call_code", "code"),
    ],
)
def test_calls_of_every_kind_grow_by_deltas_until_done(read_stream: ReadStream, item: str, kind: str, key: str) -> None:
    place = {"item_id": "i", "output_index": 0}
    deltas = [event(f"{kind}.delta", **place, delta="a"), event(f"{kind}.delta", **place, delta="b")]
    assert output(read_stream, *deltas) == [{"id": "i", "type": item, key: "ab"}]
    assert output(read_stream, *deltas, event(f"{kind}.done", **place, **{key: "abc"}))[0][key] == "abc"


@pytest.mark.parametrize(
    ("kind", "holder", "part"),
    [
        ("reasoning_summary_text", "summary", {"type": "summary_text", "text": "ab"}),
        ("reasoning_text", "content", {"type": "reasoning_text", "text": "ab"}),
    ],
)
def test_reasoning_grows_by_deltas(read_stream: ReadStream, kind: str, holder: str, part: dict[str, Any]) -> None:
    place = {"item_id": "rs", "output_index": 0, "summary_index": 0, "content_index": 0}
    items = output(read_stream, *(event(f"{kind}.delta", **place, delta=text) for text in "ab"))
    assert items == [{"id": "rs", "type": "reasoning", holder: [part]}]


def test_several_summary_parts_stay_apart(read_stream: ReadStream) -> None:
    def at(index: int) -> dict[str, Any]:
        return {"item_id": "rs", "output_index": 0, "summary_index": index}

    items = output(
        read_stream,
        event("output_item.added", output_index=0, item={"id": "rs", "type": "reasoning", "summary": []}),
        event("reasoning_summary_part.added", **at(0), part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", **at(0), delta="one"),
        event("reasoning_summary_part.added", **at(1), part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.done", **at(1), text="two"),
    )
    assert [part["text"] for part in items[0]["summary"]] == ["one", "two"]


def test_refusal_grows_by_deltas(read_stream: ReadStream) -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    items = output(read_stream, *(event("refusal.delta", **place, delta=text) for text in ("No", "pe")))
    assert items[0]["content"] == [{"type": "refusal", "refusal": "Nope"}]


def test_finished_item_is_not_changed_by_what_comes_after(read_stream: ReadStream) -> None:
    done = {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    items = output(
        read_stream, text_delta("Hel"), event("output_item.done", output_index=0, item=done), text_delta("x")
    )
    assert items == [done]


def test_items_that_all_have_index_zero_stay_apart(read_stream: ReadStream) -> None:
    items = output(
        read_stream,
        *(
            event(kind, output_index=0, item={"id": name, "type": "function_call", "call_id": name})
            for name in ("a", "b")
            for kind in ("output_item.added", "output_item.done")
        ),
    )
    assert [item["id"] for item in items] == ["a", "b"]


def test_delta_of_a_new_item_on_a_used_index_is_kept(read_stream: ReadStream) -> None:
    done = {"id": "a", "type": "reasoning", "summary": []}
    items = output(read_stream, event("output_item.done", output_index=0, item=done), text_delta("x"))
    assert [item["id"] for item in items] == ["a", "msg_1"]


def test_item_whose_id_changes_at_its_end_is_one_item(read_stream: ReadStream) -> None:
    items = output(
        read_stream,
        event("output_item.added", output_index=0, item={"id": "a", "type": "message", "content": []}),
        event("output_item.done", output_index=0, item={"id": "b", "type": "message", "content": []}),
    )
    assert [item["id"] for item in items] == ["b"]


@pytest.mark.parametrize(
    ("payload", "is_content"),
    [
        (CREATED, False),
        (event("output_item.added", item={"type": "message", "content": []}), False),
        (event("output_item.added", item={"type": "reasoning", "summary": []}), False),
        (event("content_part.added", part={"type": "output_text", "text": ""}), False),
        (text_delta(""), False),
        (event("web_search_call.in_progress", output_index=0), False),
        ({"type": "error", "message": "x"}, False),
        (envelope("failed", output=[]), False),
        (text_delta("x"), True),
        (event("output_item.added", item={"type": "function_call"}), True),
        (event("output_item.done", item={"type": "reasoning", "summary": []}), True),
        (event("reasoning_summary_text.delta", delta="x"), True),
        (event("function_call_arguments.delta", delta="{"), True),
        (event("refusal.delta", delta="x"), True),
        (envelope("completed"), True),
    ],
)
def test_first_content(read_stream: ReadStream, payload: dict[str, Any], is_content: bool) -> None:
    assert read_stream("responses", [CREATED, payload]).first_content_ns == (20 if is_content else None)


@pytest.mark.parametrize("value", [None, 0, "x", [], {}, [{}], {"type": []}])
@pytest.mark.parametrize(
    "key", ["type", "response", "item", "item_id", "output_index", "content_index", "delta", "part", "logprobs", "text"]
)
def test_any_type_in_any_place_raises_nothing(read_stream: ReadStream, key: str, value: Any) -> None:
    part = {"type": "output_text", "text": ""}
    for good in (
        event("output_item.added", output_index=0, item={"id": "i", "type": "message", "content": [1, {}]}),
        event("content_part.added", item_id="i", output_index=0, content_index=0, part=part),
        text_delta("x", logprobs=[]),
        event("output_text.done", item_id="i", text="x"),
        event("output_text.annotation.added", item_id="i", annotation={}),
    ):
        assert read_stream("responses", [CREATED, {**good, key: value}, text_delta("x")]).response is not None
