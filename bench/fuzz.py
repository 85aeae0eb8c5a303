"""Fuzz the wire: random damage to small streams, and hostile input of one megabyte.

    python bench/fuzz.py [--mutations 200000] [--seed N]

Every mutation goes through the framer, the assemblers and, where it exists, the record builder; any
exception is printed with the bytes that caused it and fails the run. Hostile inputs are timed:
none may take a second of CPU time. The last line is ``N figures, N short``; the exit code is 1 if any is short.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from otel_gym.wire import DialectName, Exchange, Execution, Raised, parse_exchange
from table import Figure, print_table

MEGABYTE = 1_000_000


def _events(*payloads: Any, named: bool = False, end: str = "") -> bytes:
    lines = []
    for payload in payloads:
        name = f"event: {payload['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(payload, separators=(',', ':'))}\n\n")
    return ("".join(lines) + end).encode()


def _chunk(delta: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "created": 1, "choices": [{"index": 0, "delta": delta, **more}]}


def _call(fragment: Any) -> dict[str, Any]:
    return _chunk({"tool_calls": [fragment]})


SEEDS: dict[DialectName, list[bytes]] = {
    "chat": [
        _events(
            _chunk({"role": "assistant", "content": ""}),
            _chunk({"content": "Wörter 北京"}, logprobs={"content": [{"token": "a", "logprob": -1}]}, token_ids=[0]),
            _chunk({"reasoning_content": "r", "reasoning": "r", "reasoning_details": [{"type": "t", "text": "x"}]}),
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 2}}},
            _chunk({}, finish_reason="stop"),
            end="data: [DONE]\n\n",
        ),
        _events(
            _call({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}),
            _call({"index": 0, "function": {"name": "f", "arguments": "}"}}),
            _call({"id": "b", "type": "custom", "custom": {"name": "g", "input": "ls"}}),
            {"error": {"message": "x", "type": "y"}},
        ),
        b'{"id":"c","choices":[{"index":0,"message":{"content":"a","tool_calls":[]}}],"usage":{"prompt_tokens":3}}',
    ],
    "messages": [
        _events(
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "t"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "i", "input": {}}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
            named=True,
        ),
        _events(
            {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "x"}},
            {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"a": 1}}},
            {"type": "error", "error": {"type": "overloaded_error"}},
        ),
        b'{"id":"m","type":"message","content":[{"type":"text","text":"a"}],"usage":{"input_tokens":3}}',
    ],
    "responses": [
        _events(
            {"type": "response.created", "response": {"id": "r", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {"id": "a", "type": "message"}},
            {
                "type": "response.content_part.added",
                "item_id": "a",
                "content_index": 0,
                "part": {"type": "output_text"},
            },
            {"type": "response.output_text.delta", "item_id": "a", "content_index": 0, "delta": "x", "logprobs": [1]},
            {"type": "response.output_text.annotation.added", "item_id": "a", "annotation": {"type": "t"}},
            {"type": "response.reasoning_summary_text.delta", "output_index": 1, "summary_index": 0, "delta": "y"},
            {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
            {"type": "response.output_item.done", "output_index": 2, "item": {"type": "function_call", "call_id": "c"}},
            named=True,
        ),
        _events(
            {"type": "response.completed", "response": {"id": "r", "output": [{"type": "message"}], "usage": {"a": 1}}},
            {"type": "error", "message": "x"},
        ),
        b'{"id":"r","object":"response","output":[{"type":"reasoning","summary":[]}],"usage":{"input_tokens":3}}',
    ],
}

_JUNK = [
    b"\n", b"\r", b"\r\n", b"\n\n", b":", b"data:", b"data: ", b"event: error\n", b"id: 1\n", b"data: [DONE]\n\n",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xff", b"\x00", b"null", b"[]", b"{}", b'""', b"-1", b"1e999", b"NaN", b"true",
    b'"\\ud800"', b"[[[[[[", b'{"a":', b'"index":', b'"id":', b'"type":', b'"delta":', b'"content":', b'"tool_calls":',
    b'"usage":', b'"error":', b'"response":',
]  # fmt: skip
_SWAPS: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], {}, [None], {"a": 1}, [[]], 10**30, float("nan"), "\ud800"]


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, 60)]


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice(_JUNK)


def _duplicate(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randint(1, 200)]
    place = rng.randrange(len(data) + 1)
    data[place:place] = piece


def _swap_json(data: bytearray, rng: random.Random) -> None:
    lines = bytes(data).split(b"\n")
    places = [place for place, line in enumerate(lines) if line.startswith((b"data: {", b"{"))]
    if not places:
        return
    place = rng.choice(places)
    prefix = b"data: " if lines[place].startswith(b"data") else b""
    try:
        value = json.loads(lines[place][len(prefix) :])
    except ValueError:
        return
    _swap_one(value, rng)
    lines[place] = prefix + json.dumps(value).encode()
    data[:] = b"\n".join(lines)


def _swap_one(value: Any, rng: random.Random) -> None:
    """Replace, drop or rename one value somewhere inside."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.75:
            value = value[key]
            continue
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = rng.choice(_SWAPS)
        return


_MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    _flip, _cut, _truncate, _insert, _duplicate, _swap_json, _swap_json, _swap_json,
]  # fmt: skip


def mutate(seed: bytes, rng: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randint(1, 3)):
        if data:
            rng.choice(_MUTATIONS)(data, rng)
    return bytes(data)


def random_exchange(dialect: DialectName, body: bytes, rng: random.Random) -> Exchange:
    """An exchange around a body: mostly a stream in random chunks, sometimes compressed, cut or failed."""
    encoding = rng.choice([None] * 8 + ["gzip", "deflate", "br", "zstd, gzip", "nonsense"])
    if encoding == "gzip":
        body = gzip.compress(body, 1)[: rng.choice([None, None, 40])]
    elif encoding == "deflate":
        body = zlib.compress(body, 1)
    cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randint(0, 5)))
    bounds = zip([0, *cuts], [*cuts, len(body)], strict=True)
    failed = rng.random() < 0.1
    return Exchange(
        dialect=dialect,
        model_call_id="fuzz",
        started_unix_nano=1_800_000_000_000_000_000,
        request_body=body[:200] if rng.random() < 0.2 else b"{}",
        request_content_encoding=encoding,
        status_code=rng.choice([200, 200, 200, 200, None, 429, 500]),
        response_content_type=rng.choice(["text/event-stream"] * 5 + ["application/json", None]),
        response_content_encoding=encoding,
        chunks=[(start, body[start:end]) for start, end in bounds],
        last_byte_ns=len(body),
        returned_ns=len(body),
        raised=Raised("X", rng.choice(["cancelled", "exception"]), None, b"{}") if failed else None,
        execution=Execution(True, "upstream") if rng.random() < 0.05 else None,
        live=rng.random() < 0.9,
    )


def record_builder() -> Callable[[Exchange], object]:
    """``build_model_call_record`` where it exists; else nothing is built."""
    try:
        from otel_gym.records.model_call import build_model_call_record
    except ImportError:
        print("otel_gym.records.model_call does not import: records are not built")
        return lambda exchange: None
    return lambda exchange: build_model_call_record(exchange, 0)


def run_mutations(count: int, seed: int) -> int:
    """The number of mutations that raised."""
    rng = random.Random(seed)
    build_record = record_builder()
    cases = [(dialect, stream) for dialect, streams in SEEDS.items() for stream in streams]
    raised = 0
    for number in range(count):
        dialect, stream = cases[number % len(cases)]
        body = mutate(stream, rng)
        exchange = random_exchange(dialect, body, rng)
        try:
            # The builder parses; without one, and now and then beside it, the parser is called alone.
            if build_record(exchange) is None or number % 8 == 0:
                json.dumps(parse_exchange(exchange).response)
        except Exception:
            raised += 1
            if raised <= 5:
                print(f"mutation {number} of seed {seed}, {dialect}, {exchange!r}", file=sys.stderr)
                traceback.print_exc()
    return raised


def _repeat(piece: bytes) -> bytes:
    return piece * (MEGABYTE // len(piece) + 1)


def _numbered(template: str) -> bytes:
    """Events of ``template`` with a running number for ``%d``, up to a megabyte."""
    count = MEGABYTE // (len(template) + 4)
    return "".join(f"data: {template}\n\n".replace("%d", str(number)) for number in range(count)).encode()


def _text_event(piece: str) -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{piece}"}}}}]}}\n\n'.encode()


def _tool(fragment: str) -> str:
    return '{"choices":[{"delta":{"tool_calls":[' + fragment + "]}}]}"


HOSTILE: dict[str, tuple[DialectName, bytes, int]] = {
    "one line": ("chat", _text_event("x" * MEGABYTE), MEGABYTE),
    "one line, 1-byte chunks": ("chat", _text_event("x" * MEGABYTE), 1),
    "no line end, 1-byte chunks": ("chat", b"d" * MEGABYTE, 1),
    "small events, 1-byte chunks": ("chat", _repeat(_text_event("x")), 1),
    "carriage returns": ("chat", b"\r" * MEGABYTE, MEGABYTE),
    "carriage returns, 1-byte chunks": ("chat", b"\r" * MEGABYTE, 1),
    "empty data lines": ("chat", _repeat(b"data:\n"), MEGABYTE),
    "empty events": ("chat", _repeat(b"data:\n\n"), MEGABYTE),
    "named empty events": ("messages", _repeat(b"event:x\n\n"), MEGABYTE),
    "comments": ("responses", _repeat(b":\n\n"), MEGABYTE),
    "tiny payloads": ("chat", _repeat(b"data:{}\n\n"), MEGABYTE),
    "not JSON": ("chat", _repeat(b"data:[{\n\n"), MEGABYTE),
    "tiny text deltas": ("chat", _repeat(_text_event("x")), MEGABYTE),
    "choices": ("chat", _numbered('{"choices":[{"index":%d,"delta":{"content":"x"}}]}'), MEGABYTE),
    "choices in one chunk": ("chat", b'data: {"choices":[' + _repeat(b'{"index":1},')[:-1] + b"]}\n\n", MEGABYTE),
    "list content": ("chat", _repeat(b'data:{"choices":[{"delta":{"content":[1]}}]}\n\n'), MEGABYTE),
    "log probabilities": ("chat", _repeat(b'data:{"choices":[{"logprobs":{"content":[1]}}]}\n\n'), MEGABYTE),
    "tool-call ids": ("chat", _numbered(_tool('{"id":"%d"}')), MEGABYTE),
    "tool-call indexes": ("chat", _numbered(_tool('{"index":%d,"id":"x","function":{"name":"f"}}')), MEGABYTE),
    "tool calls, one index": ("chat", _numbered(_tool('{"index":0,"id":"%d"}')), MEGABYTE),
    "tool calls, no id or index": ("chat", _numbered(_tool('{"function":{"name":"f","arguments":"{}"}}')), MEGABYTE),
    "tool-call name fragments": ("chat", _numbered(_tool('{"index":0,"function":{"name":"%d"}}')), MEGABYTE),
    "tool-call arguments": ("chat", _numbered(_tool('{"index":0,"function":{"arguments":"x"}}')), MEGABYTE),
    "deep nesting": ("chat", b"data: " + b'{"a":' * 150_000 + b"1" + b"}" * 150_000 + b"\n\n", MEGABYTE),
    "nesting of 900": (
        "chat",
        _repeat(b'data: {"id":"x","u":' + b'{"a":' * 900 + b"1" + b"}" * 901 + b"\n\n"),
        MEGABYTE,
    ),
    "deep nesting, plain": ("chat", b"[" * MEGABYTE, MEGABYTE),
    "long integers": ("chat", b'data: {"id":' + b"9" * MEGABYTE + b"}\n\n", MEGABYTE),
    "blocks": (
        "messages",
        _numbered('{"type":"content_block_start","index":%d,"content_block":{"type":"text"}}'),
        MEGABYTE,
    ),
    "blocks without index": ("messages", _numbered('{"type":"content_block_start","content_block":{}}'), MEGABYTE),
    "input fragments": (
        "messages",
        _numbered('{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"["}}'),
        MEGABYTE,
    ),
    "citations": (
        "messages",
        _numbered('{"type":"content_block_delta","delta":{"type":"citations_delta","citation":%d}}'),
        MEGABYTE,
    ),
    "usage fields": ("messages", _numbered('{"type":"message_delta","usage":{"%d":1}}'), MEGABYTE),
    "message starts": ("messages", _numbered('{"type":"message_start","message":{"content":[{},{}]}}'), MEGABYTE),
    "items": ("responses", _numbered('{"type":"response.output_item.added","item":{"id":"%d"}}'), MEGABYTE),
    "items without id": ("responses", _numbered('{"type":"response.output_item.done","item":{"type":"x"}}'), MEGABYTE),
    "parts": (
        "responses",
        _numbered('{"type":"response.content_part.added","item_id":"a","content_index":%d,"part":{}}'),
        MEGABYTE,
    ),
    "parts without index": (
        "responses",
        _numbered('{"type":"response.output_text.delta","item_id":"a","delta":"x","logprobs":[1]}'),
        MEGABYTE,
    ),
    "envelopes": ("responses", _numbered('{"type":"response.in_progress","response":{"id":"%d"}}'), MEGABYTE),
    "annotations": (
        "responses",
        _numbered('{"type":"response.output_text.annotation.added","item_id":"a","annotation":%d}'),
        MEGABYTE,
    ),
}


def _compressed() -> Iterator[tuple[str, str, bytes]]:
    yield "gzip of one megabyte, 1-byte chunks", "gzip", gzip.compress(_repeat(_text_event("x")))
    yield "gzip members", "gzip", _repeat(gzip.compress(b""))
    yield "gzip bomb", "gzip", gzip.compress(b"\0" * (64 * MEGABYTE))
    yield "deflate garbage", "deflate", _repeat(b"\x00\xff")


def hostile_exchanges() -> Iterator[tuple[str, Exchange]]:
    for name, (dialect, body, chunk_bytes) in HOSTILE.items():
        yield name, _exchange(dialect, body, chunk_bytes)
    for name, encoding, body in _compressed():
        yield name, _exchange("chat", body, 1 if "1-byte" in name else MEGABYTE, encoding)


def _exchange(dialect: DialectName, body: bytes, chunk_bytes: int, encoding: str | None = None) -> Exchange:
    chunks = [(start, body[start : start + chunk_bytes]) for start in range(0, len(body), chunk_bytes)]
    return Exchange(
        dialect=dialect,
        model_call_id="hostile",
        started_unix_nano=0,
        status_code=200,
        response_content_type="application/json" if body.startswith(b"[") else "text/event-stream",
        response_content_encoding=encoding,
        chunks=chunks,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=20261130)
    options = parser.parse_args()

    figures = list(hostile_figures(record_builder()))
    started = time.process_time()
    raised = run_mutations(options.mutations, options.seed)
    seconds = time.process_time() - started
    limit = 240 * max(options.mutations / 200_000, 0.05)
    figures.append(Figure(f"exceptions in {options.mutations} mutations", str(raised), "0", raised == 0))
    figures.append(Figure("mutations, CPU s", f"{seconds:.1f}", f"< {limit:.0f}", seconds < limit))
    return print_table(figures)


def hostile_figures(build_record: Callable[[Exchange], object]) -> Iterator[Figure]:
    for name, exchange in hostile_exchanges():
        for what, function in (("parse", parse_exchange), ("record", build_record)):
            seconds = min(_cpu_seconds(function, exchange) for _ in range(2))
            yield Figure(f"1 MB of {name}: {what}, CPU s", f"{seconds:.3f}", "< 1", seconds < 1)


def _cpu_seconds(function: Callable[[Exchange], object], exchange: Exchange) -> float:
    started = time.process_time()
    function(exchange)
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
