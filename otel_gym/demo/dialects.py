"""The three dialects of the scripted model server: a request read, a reply written, plain or as a stream of events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from otel_gym.demo.script import Conversation, Fault, Reply, Usage

Json = dict[str, Any]
PIECES = 4


@dataclass(frozen=True, slots=True)
class Dialect:
    """``events`` are the bytes of a stream, one event each; ``error`` is the body of a failed call."""

    read: Callable[[Json], Conversation]
    plain: Callable[[Conversation, Reply, Usage], Json]
    events: Callable[[Conversation, Reply, Usage], Iterator[bytes]]
    error: Callable[[Fault], Json]
    request_id_header: bytes


def new_id(prefix: str) -> str:
    return f"{prefix}_{os.urandom(12).hex()}"


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _size(*values: Any) -> int:
    return sum(len(json.dumps(value, ensure_ascii=False)) for value in values if value is not None)


def _text(content: Any) -> str:
    """A message's text, given as such or as parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def _event(content: Json) -> bytes:
    return f"event: {content['type']}\ndata: {json.dumps(content)}\n\n".encode()


def _data(content: Json) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


# --- Chat Completions


def _read_chat(body: Json) -> Conversation:
    messages = body["messages"]
    return _conversation(body, messages, [message.get("role") == "assistant" for message in messages])


def _conversation(body: Json, items: list[Json], by_model: list[bool]) -> Conversation:
    """``by_model`` says of each item whether the model made it; a turn is an unbroken row of those."""
    starts = [at for at, made in enumerate(by_model) if made and not (at and by_model[at - 1])]
    fixed = _size(body.get("tools"), body.get("system"), body.get("instructions"))
    task = next((_text(item.get("content")) for item in items if item.get("role") == "user"), "")
    return Conversation(
        model=str(body.get("model")),
        task=task,
        turn=len(starts),
        size=fixed + _size(*items),
        size_before_last_turn=fixed + _size(*items[: starts[-1]]) if starts else 0,
        stream=bool(body.get("stream")),
        wants_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def _plain_chat(conversation: Conversation, reply: Reply, usage: Usage) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tools:
        message["tool_calls"] = _chat_tools(reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _chat_finish(reply)}
    return {**_chat_head("chat.completion", conversation), "choices": [choice], "usage": _chat_usage(usage)}


def _chat_events(conversation: Conversation, reply: Reply, usage: Usage) -> Iterator[bytes]:
    head = _chat_head("chat.completion.chunk", conversation)

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        return _data({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reply.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(_chat_tools(reply)):
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _chat_finish(reply))
    if conversation.wants_usage:
        yield _data({**head, "choices": [], "usage": _chat_usage(usage)})
    yield b"data: [DONE]\n\n"


def _chat_head(kind: str, conversation: Conversation) -> Json:
    return {
        "id": new_id("chatcmpl"),
        "object": kind,
        "created": int(time.time()),
        "model": conversation.model,
        "system_fingerprint": "fp_scripted",
    }


def _chat_tools(reply: Reply) -> list[Json]:
    return [
        {
            "id": new_id("call"),
            "type": "function",
            "function": {"name": tool.name, "arguments": json.dumps(tool.arguments)},
        }
        for tool in reply.tools
    ]


def _chat_finish(reply: Reply) -> str:
    return "tool_calls" if reply.tools else "stop"


def _chat_usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _openai_error(fault: Fault) -> Json:
    return {"error": {"message": fault.message, "type": fault.kind, "param": None, "code": None}}


# --- Responses

_MODEL_ITEMS = frozenset({"reasoning", "function_call"})


def _read_responses(body: Json) -> Conversation:
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    by_model = [item.get("type") in _MODEL_ITEMS or item.get("role") == "assistant" for item in items]
    return _conversation(body, items, by_model)


def _plain_responses(conversation: Conversation, reply: Reply, usage: Usage) -> Json:
    return _response(conversation, new_id("resp"), "completed", _output_items(reply), usage)


def _responses_events(conversation: Conversation, reply: Reply, usage: Usage) -> Iterator[bytes]:
    response_id, items = new_id("resp"), _output_items(reply)
    started = _response(conversation, response_id, "in_progress", [], None)
    number = -1

    def event(kind: str, **content: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number, **content})

    yield event("response.created", response=started)
    yield event("response.in_progress", response=started)
    for index, item in enumerate(items):
        yield from _ITEM_EVENTS[item["type"]](event, index, item)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=_response(conversation, response_id, "completed", items, usage))


Event = Callable[..., bytes]


def _reasoning_events(event: Event, index: int, item: Json) -> Iterator[bytes]:
    part = item["summary"][0]
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    yield event("response.output_item.added", output_index=index, item={**item, "summary": []})
    yield event("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
    for piece in _pieces(part["text"]):
        yield event("response.reasoning_summary_text.delta", **place, delta=piece)
    yield event("response.reasoning_summary_text.done", **place, text=part["text"])
    yield event("response.reasoning_summary_part.done", **place, part=part)


def _message_events(event: Event, index: int, item: Json) -> Iterator[bytes]:
    part = item["content"][0]
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    yield event("response.output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []})
    yield event("response.content_part.added", **place, part={**part, "text": ""})
    for piece in _pieces(part["text"]):
        yield event("response.output_text.delta", **place, delta=piece, logprobs=[])
    yield event("response.output_text.done", **place, text=part["text"], logprobs=[])
    yield event("response.content_part.done", **place, part=part)


def _function_call_events(event: Event, index: int, item: Json) -> Iterator[bytes]:
    place = {"item_id": item["id"], "output_index": index}
    yield event(
        "response.output_item.added", output_index=index, item={**item, "status": "in_progress", "arguments": ""}
    )
    for piece in _pieces(item["arguments"]):
        yield event("response.function_call_arguments.delta", **place, delta=piece)
    yield event("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])


_ITEM_EVENTS: dict[str, Callable[[Event, int, Json], Iterator[bytes]]] = {
    "reasoning": _reasoning_events,
    "message": _message_events,
    "function_call": _function_call_events,
}


def _output_items(reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"id": new_id("rs"), "type": "reasoning", "summary": summary})
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        items.append({"id": new_id("msg"), **message})
    for tool in reply.tools:
        call = {
            "type": "function_call",
            "status": "completed",
            "name": tool.name,
            "arguments": json.dumps(tool.arguments),
        }
        items.append({"id": new_id("fc"), "call_id": new_id("call"), **call})
    return items


def _response(
    conversation: Conversation, response_id: str, status: str, output: list[Json], usage: Usage | None
) -> Json:
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": conversation.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None if usage is None else _responses_usage(usage),
    }


def _responses_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


# --- Anthropic Messages


def _plain_messages(conversation: Conversation, reply: Reply, usage: Usage) -> Json:
    head = _messages_head(conversation, _messages_usage(usage))
    return {**head, "content": _content_blocks(reply), "stop_reason": _stop_reason(reply)}


def _messages_events(conversation: Conversation, reply: Reply, usage: Usage) -> Iterator[bytes]:
    counts = _messages_usage(usage)
    yield _event({"type": "message_start", "message": _messages_head(conversation, {**counts, "output_tokens": 1})})
    for index, block in enumerate(_content_blocks(reply)):
        empty, deltas = _BLOCK_DELTAS[block["type"]](block)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stop, "usage": counts})
    yield _event({"type": "message_stop"})


def _thinking_deltas(block: Json) -> tuple[Json, list[Json]]:
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
    deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {**block, "thinking": "", "signature": ""}, deltas


def _text_deltas(block: Json) -> tuple[Json, list[Json]]:
    return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]


def _tool_use_deltas(block: Json) -> tuple[Json, list[Json]]:
    pieces = _pieces(json.dumps(block["input"]))
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


_BLOCK_DELTAS: dict[str, Callable[[Json], tuple[Json, list[Json]]]] = {
    "thinking": _thinking_deltas,
    "text": _text_deltas,
    "tool_use": _tool_use_deltas,
}


def _messages_head(conversation: Conversation, usage: Json) -> Json:
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _content_blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2NyaXB0ZWQ="})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for tool in reply.tools:
        blocks.append({"type": "tool_use", "id": new_id("toolu"), "name": tool.name, "input": tool.arguments})
    return blocks


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.tools else "end_turn"


def _messages_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt - usage.cached - usage.newly_cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.newly_cached,
        "output_tokens": usage.completion,
    }


def _anthropic_error(fault: Fault) -> Json:
    return {"type": "error", "error": {"type": fault.kind, "message": fault.message}}


DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": Dialect(_read_chat, _plain_chat, _chat_events, _openai_error, b"x-request-id"),
    "/v1/responses": Dialect(_read_responses, _plain_responses, _responses_events, _openai_error, b"x-request-id"),
    "/v1/messages": Dialect(_read_chat, _plain_messages, _messages_events, _anthropic_error, b"request-id"),
}
