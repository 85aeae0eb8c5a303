"""For any answer and any chunks: a stream and its plain twin are one object; no bytes raise."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.wire import DIALECTS, DialectName, Exchange, SseFramer, parse_exchange

few = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

Payload = dict[str, Any]

texts = st.text(st.characters(codec="utf-8") | st.sampled_from('\r\n\u2028\u0085北😀\\"'), min_size=1, max_size=12)
names = st.text("abc_1", min_size=1, max_size=6)
counts = st.integers(0, 10**6)
arguments = st.dictionaries(names, texts | counts | st.none(), max_size=3)
dialects = st.sampled_from(sorted(DIALECTS))


def pieces(text: str) -> Iterator[str]:
    """A text in fragments of one to three characters."""
    place = 0
    while place < len(text):
        size = 1 + place % 3
        yield text[place : place + size]
        place += size


# Chat


@st.composite
def chat_answers(draw: st.DrawFn) -> Payload:
    def choice(index: int) -> Payload:
        message: Payload = {"role": "assistant", "content": draw(texts | st.none())}
        for key in draw(st.sets(st.sampled_from(["refusal", "reasoning", "reasoning_content"]))):
            message[key] = draw(texts)
        if "reasoning" in message and "reasoning_content" in message:
            message["reasoning"] = message["reasoning_content"]
        calls = [
            {
                "id": f"call_{index}_{number}",
                "type": "function",
                "function": {"name": draw(names), "arguments": json.dumps(draw(arguments))},
            }
            for number in range(draw(st.integers(0, 3)))
        ]
        if calls:
            message["tool_calls"] = calls
        if message["content"] is None and len(message) == 2:
            message["content"] = ""
        whole = {"index": index, "message": message, "finish_reason": draw(st.sampled_from(["stop", "length"]))}
        if draw(st.booleans()):
            whole["logprobs"] = {
                "content": [{"token": token} for token in pieces(message["content"] or "")],
                "refusal": None,
            }
            whole["token_ids"] = draw(st.lists(counts, max_size=4))
        return whole

    answer = {
        "id": draw(names),
        "object": "chat.completion",
        "created": draw(st.integers(1, 2**40)),
        "model": draw(names),
        "choices": [choice(index) for index in range(draw(st.integers(1, 3)))],
    }
    if draw(st.booleans()):
        answer["usage"] = {
            "prompt_tokens": draw(counts),
            "completion_tokens_details": {"reasoning_tokens": draw(counts)},
        }
    return answer


def chat_events(answer: Payload) -> Iterator[Payload]:
    head = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk", "usage": None}

    def chunk(index: int, delta: Payload, **more: Any) -> Payload:
        return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None, **more}]}

    for choice in answer["choices"]:
        index, message = choice["index"], choice["message"]
        yield chunk(index, {"role": message["role"], "content": ""})
        reasoning_names = [key for key in ("reasoning", "reasoning_content") if key in message]
        for piece in pieces(message[reasoning_names[0]]) if reasoning_names else ():
            yield chunk(index, dict.fromkeys(reasoning_names, piece))
        for key in ("refusal", "content"):
            for piece in pieces(message.get(key) or ""):
                beside = {"logprobs": {"content": [{"token": piece}], "refusal": None}} if key == "content" else {}
                yield chunk(index, {key: piece}, **(beside if "logprobs" in choice else {}))
        for place, call in enumerate(message.get("tool_calls", ())):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield chunk(index, {"tool_calls": [{**call, "index": place, "function": function}]})
            for piece in pieces(call["function"]["arguments"]):
                yield chunk(index, {"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        if "logprobs" in choice:
            yield chunk(index, {}, logprobs={"content": [], "refusal": None}, token_ids=[])
        for token_id in choice.get("token_ids", ()):
            yield chunk(index, {}, token_ids=[token_id])
    for choice in answer["choices"]:
        yield {**head, "choices": [{"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if "usage" in answer:
        yield {**head, "choices": [], "usage": answer["usage"]}


# Messages


@st.composite
def message_blocks(draw: st.DrawFn) -> Payload:
    kind = draw(st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "result"]))
    if kind == "text":
        citations = draw(st.lists(st.fixed_dictionaries({"cited_text": texts}), max_size=2))
        return {"type": "text", "text": draw(texts), "citations": citations or None}
    if kind == "thinking":
        return {"type": "thinking", "thinking": draw(texts), "signature": draw(names)}
    if kind == "redacted_thinking":
        return {"type": kind, "data": draw(names)}
    if kind == "result":
        return {"type": "web_search_tool_result", "tool_use_id": draw(names), "content": [{"url": draw(texts)}]}
    return {"type": kind, "id": draw(names), "name": draw(names), "input": draw(arguments)}


@st.composite
def messages_answers(draw: st.DrawFn) -> Payload:
    return {
        "id": draw(names),
        "type": "message",
        "role": "assistant",
        "model": draw(names),
        "content": draw(st.lists(message_blocks(), max_size=4)),
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", "stop_sequence"])),
        "stop_sequence": draw(names | st.none()),
        "usage": {"input_tokens": draw(counts), "cache_read_input_tokens": draw(counts), "output_tokens": draw(counts)},
    }


def messages_events(answer: Payload) -> Iterator[Payload]:
    usage = {**answer["usage"], "output_tokens": 1}
    start = {**answer, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(answer["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _emptied(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    said = {key: answer[key] for key in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": said, "usage": {"output_tokens": answer["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def _emptied(block: Payload) -> Payload:
    empty = {"text": "", "thinking": "", "signature": "", "input": {}, "citations": None}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: Payload) -> Iterator[Payload]:
    for citation in block.get("citations") or ():
        yield {"type": "citations_delta", "citation": citation}
    for key in ("text", "thinking"):
        for piece in pieces(block.get(key, "")):
            yield {"type": f"{key}_delta", key: piece}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}
    if "input" in block:
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in pieces(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}


# Responses


@st.composite
def output_items(draw: st.DrawFn) -> Payload:
    kind = draw(st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call"]))
    if kind == "message":
        parts: list[Payload] = [{"type": "output_text", "text": draw(texts), "annotations": []}]
        if draw(st.booleans()):
            parts.append({"type": "refusal", "refusal": draw(texts)})
        return {"type": kind, "role": "assistant", "content": parts}
    if kind == "reasoning":
        return {
            "type": kind,
            "summary": [{"type": "summary_text", "text": text} for text in draw(st.lists(texts, max_size=2))],
        }
    key = "arguments" if kind == "function_call" else "input"
    return {"type": kind, "call_id": draw(names), "name": draw(names), key: draw(texts)}


@st.composite
def responses_answers(draw: st.DrawFn) -> Payload:
    output = [{"id": f"item_{place}", **item} for place, item in enumerate(draw(st.lists(output_items(), max_size=4)))]
    usage = {"input_tokens": draw(counts), "output_tokens_details": {"reasoning_tokens": draw(counts)}}
    return {"id": draw(names), "object": "response", "status": "completed", "output": output, "usage": usage}


def responses_events(answer: Payload) -> Iterator[Payload]:
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield from item_events(answer)
    yield {"type": "response.completed", "response": answer}


def item_events(answer: Payload) -> Iterator[Payload]:
    for index, item in enumerate(answer["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {"arguments": "", "input": "", "content": [], "summary": []}
        head = {key: empty.get(key, value) for key, value in item.items()}
        yield {"type": "response.output_item.added", "output_index": index, "item": head}
        for key, kind in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
            for piece in pieces(item.get(key, "")):
                yield {"type": f"response.{kind}.delta", **place, "delta": piece}
        yield from _part_events(item, place)


def _part_events(item: Payload, place: Payload) -> Iterator[Payload]:
    kinds = {"output_text": "output_text", "refusal": "refusal", "summary_text": "reasoning_summary_text"}
    for holder, at, added in (
        ("content", "content_index", "content_part"),
        ("summary", "summary_index", "reasoning_summary_part"),
    ):
        for number, part in enumerate(item.get(holder, ())):
            key = "refusal" if part["type"] == "refusal" else "text"
            yield {"type": f"response.{added}.added", **place, at: number, "part": {**part, key: ""}}
            for piece in pieces(part[key]):
                yield {"type": f"response.{kinds[part['type']]}.delta", **place, at: number, "delta": piece}


ANSWERS = {"chat": chat_answers(), "messages": messages_answers(), "responses": responses_answers()}
EVENTS = {"chat": chat_events, "messages": messages_events, "responses": responses_events}


@st.composite
def answers(draw: st.DrawFn) -> tuple[DialectName, Payload]:
    dialect: DialectName = draw(dialects)
    return dialect, draw(ANSWERS[dialect])


def as_stream(
    dialect: DialectName, events: Iterator[Payload], line_end: str, *, ascii_only: bool, named: bool
) -> bytes:
    lines: list[str] = []
    for event in events:
        if named and "type" in event:
            lines.append(f"event: {event['type']}")
        lines += [f"data: {json.dumps(event, ensure_ascii=ascii_only)}", ""]
    if dialect == "chat":
        lines += ["data: [DONE]", ""]
    return line_end.join([*lines, ""]).encode()


def cut(body: bytes, places: list[int]) -> list[tuple[int, bytes]]:
    bounds = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [(end, body[start:end]) for start, end in itertools.pairwise(bounds)]


def exchange(dialect: DialectName, chunks: list[tuple[int, bytes]], **fields: Any) -> Exchange:
    given = {"response_content_type": "text/event-stream", "status_code": 200, **fields}
    return Exchange(dialect=dialect, model_call_id="call", started_unix_nano=0, chunks=chunks, **given)


places = st.lists(st.integers(0, 10**6), max_size=40)
line_ends = st.sampled_from(["\n", "\r\n", "\r"])


@few
@given(answers(), places, line_ends, st.booleans(), st.booleans(), st.sampled_from([None, "gzip"]))
def test_stream_and_plain_twin_are_one_object(
    answer: tuple[DialectName, Payload],
    cuts: list[int],
    line_end: str,
    ascii_only: bool,
    named: bool,
    coding: str | None,
) -> None:
    dialect, plain = answer
    body = as_stream(dialect, EVENTS[dialect](plain), line_end, ascii_only=ascii_only, named=named)
    sent = gzip.compress(body) if coding else body
    streamed = parse_exchange(exchange(dialect, cut(sent, cuts), response_content_encoding=coding))
    twin = exchange(dialect, [(1, json.dumps(plain).encode())], response_content_type="application/json")
    assert streamed.response == parse_exchange(twin).response == plain
    assert streamed.error_category is None
    assert streamed.response_raw == body.decode()


@few
@given(responses_answers())
def test_output_rebuilt_from_events_is_the_output_of_the_envelope(answer: Payload) -> None:
    events = [{"type": "response.created", "response": {**answer, "output": []}}, *item_events(answer)]
    body = as_stream("responses", iter(events), "\n", ascii_only=True, named=True)
    rebuilt = parse_exchange(exchange("responses", [(1, body)]))
    assert rebuilt.response == answer
    assert rebuilt.error_category == "stream_truncated"


@few
@given(answers(), st.integers(0, 10**6))
def test_stream_cut_anywhere_is_marked_and_parsed(answer: tuple[DialectName, Payload], place: int) -> None:
    dialect, plain = answer
    body = as_stream(dialect, EVENTS[dialect](plain), "\n", ascii_only=False, named=True)
    parsed = parse_exchange(exchange(dialect, [(1, body[: place % len(body)])]))
    assert parsed.stream_truncated
    assert parsed.error_category == "stream_truncated"


@few
@given(
    st.binary(max_size=300) | st.lists(st.sampled_from([b"data:", b"event:", b"\r", b"\n", b" ", b"x"])).map(b"".join),
    places,
)
def test_events_do_not_depend_on_the_chunks(body: bytes, cuts: list[int]) -> None:
    whole, cut_up = SseFramer(), SseFramer()
    expected = whole.feed(body) + whole.close()
    found = [event for _, chunk in cut(body, cuts) for event in cut_up.feed(chunk)] + cut_up.close()
    assert [(event.name, event.data, event.complete) for event in found] == [
        (event.name, event.data, event.complete) for event in expected
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "error", "text_delta"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["index", "id", "type", "text"]), inner)
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    ["choices", "message", "index", "delta", "content_block", "item", "part", "response", "usage", "error"]
)
kinds = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.completed",
        "error",
    ]
)


@few
@given(dialects, st.lists(st.tuples(kinds, st.dictionaries(keys, json_values)), max_size=6))
def test_any_json_in_any_place_raises_nothing(dialect: DialectName, payloads: list[tuple[str, Payload]]) -> None:
    events = [{"type": kind, **payload} for kind, payload in payloads]
    body = as_stream(dialect, iter(events), "\n", ascii_only=True, named=False)
    json.dumps(parse_exchange(exchange(dialect, [(1, body)])).response)


@few
@given(
    dialects,
    st.binary(max_size=200),
    places,
    st.sampled_from([None, "gzip", "deflate", "br", "zstd", "gzip, br"]),
    st.sampled_from(["text/event-stream", None]),
)
def test_any_bytes_raise_nothing(
    dialect: DialectName, body: bytes, cuts: list[int], coding: str | None, content_type: str | None
) -> None:
    chunks = cut(body, cuts)
    fields = {"response_content_encoding": coding, "request_body": body, "request_content_encoding": coding}
    parse_exchange(exchange(dialect, chunks, response_content_type=content_type, **fields))
