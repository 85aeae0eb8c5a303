"""Exchanges as a whole: what is raw, what is an error, when the first content came."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard

from otel_gym.wire import DIALECTS, Exchange, Execution, ParsedExchange, Raised, dialect_for_path, parse_exchange

CODINGS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
PLAIN = {"id": "c1", "object": "chat.completion", "choices": []}
CHUNK = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STREAM = [(10, b'data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'), (20, CHUNK)]
DONE = (30, b"data: [DONE]\n\n")


def parse(chunks: Any = (), **fields: Any) -> ParsedExchange:
    if isinstance(chunks, bytes):
        chunks = [(10, chunks)]
    given = {"dialect": "chat", "model_call_id": "call", "started_unix_nano": 0, "status_code": 200, **fields}
    return parse_exchange(Exchange(chunks=list(chunks), **given))


def stream(chunks: Any, **fields: Any) -> ParsedExchange:
    return parse(chunks, **{"response_content_type": "text/event-stream; charset=utf-8", **fields})


def test_plain_object() -> None:
    parsed = parse(json.dumps(PLAIN).encode(), request_body=b'{"model": "m"}')
    assert (parsed.request, parsed.request_raw) == ({"model": "m"}, None)
    assert (parsed.response, parsed.response_raw, parsed.error_category) == (PLAIN, None, None)
    assert (parsed.streamed, parsed.stream_truncated, parsed.terminal_event) == (False, False, None)


@pytest.mark.parametrize("body", [b"[1]", b"null", b" ", b"{", b"\xff\xfe{}"])
def test_request_that_is_no_object_is_kept_raw(body: bytes) -> None:
    parsed = parse(request_body=body)
    assert (parsed.request, parsed.request_raw) == (None, body.decode("utf-8", "replace"))


def test_absent_bodies_are_neither_object_nor_raw() -> None:
    parsed = parse()
    assert (parsed.request, parsed.request_raw, parsed.response, parsed.response_raw) == (None, None, None, None)
    assert (parsed.error_category, parsed.first_chunk_ns) == (None, None)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"a":', b'{"a":' * 100_000])
def test_body_that_is_no_object_is_a_parse_error(body: bytes) -> None:
    parsed = parse(body)
    assert (parsed.response, parsed.response_raw) == (None, body.decode())
    assert parsed.error_category == "capture_parse_error"


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None),
        (302, None),
        (400, "client_error"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (429, "rate_limit"),
        (500, "upstream_error"),
        (504, "timeout"),
        (529, "upstream_error"),
    ],
)
def test_category_of_status(status: int, category: str | None) -> None:
    error = {"type": "x", "message": "y"}
    parsed = parse(json.dumps({"error": error}).encode(), status_code=status)
    assert (parsed.error_category, parsed.error) == (category, error)


def test_sse_bytes_under_another_media_type_are_a_parse_error() -> None:
    assert parse(CHUNK, response_content_type="text/plain").error_category == "capture_parse_error"


def test_media_type_counts_in_any_case() -> None:
    assert stream([*STREAM, DONE], response_content_type="Text/Event-Stream").error_category is None


def test_blank_before_the_media_type_is_no_event_stream_as_for_gym() -> None:
    parsed = stream([*STREAM, DONE], response_content_type=" text/event-stream")
    assert (parsed.streamed, parsed.response, parsed.error_category) == (False, None, "capture_parse_error")


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_answer_that_was_cut_is_a_parse_error_and_shows_what_came(coding: str) -> None:
    body = json.dumps({"id": "x", "text": "".join(map(str, range(3000)))}).encode()
    parsed = parse(CODINGS[coding](body)[:-50], response_content_encoding=coding)
    assert (parsed.response, parsed.error_category) == (None, "capture_parse_error")
    assert parsed.response_raw is not None


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_stream_that_was_cut_is_parsed_as_far_as_it_came(coding: str) -> None:
    filler = "".join(f'data: {{"choices":[{{"index":0,"delta":{{"content":"{n} "}}}}]}}\n\n' for n in range(9000))
    sent = CODINGS[coding](filler.encode())
    parsed = stream([(10, sent[: len(sent) * 4 // 5])], response_content_encoding=coding)
    assert parsed.error_category == "stream_truncated"
    assert parsed.response is not None
    assert parsed.response["choices"][0]["message"]["content"].startswith("0 1 2 ")


def test_stream_keeps_its_text() -> None:
    parsed = stream([*STREAM, DONE])
    assert parsed.response_raw == b"".join(chunk for _, chunk in [*STREAM, DONE]).decode()
    assert parsed.streamed


def test_stream_without_terminal_event_is_truncated() -> None:
    parsed = stream(STREAM)
    assert (parsed.error_category, parsed.stream_truncated) == ("stream_truncated", True)
    assert parsed.response is not None


def test_terminal_event_without_its_blank_line_does_not_count() -> None:
    parsed = stream([*STREAM, (30, b"data: [DONE]\n")])
    assert parsed.error_category == "stream_truncated"
    assert stream([(10, CHUNK[:-1])]).response is not None


def test_empty_stream_is_truncated_and_has_no_text() -> None:
    parsed = stream([])
    assert (parsed.error_category, parsed.response_raw) == ("stream_truncated", None)


def test_time_of_first_content_is_that_of_the_chunk_that_completes_it() -> None:
    cut = len(CHUNK) - 1
    assert stream([(5, b": ping\n\n"), *STREAM, DONE]).first_content_ns == 20
    assert stream([STREAM[0], (20, CHUNK[:cut]), (21, b""), (22, CHUNK[cut:]), DONE]).first_content_ns == 22
    assert stream([STREAM[0], (20, CHUNK + b"data: [DONE]\n\n")]).first_content_ns == 20


def test_first_chunk_is_the_first_that_is_not_empty() -> None:
    assert stream([(1, b""), (5, b": keep-alive\n\n"), *STREAM]).first_chunk_ns == 5


def test_first_content_of_a_plain_body_is_no_keep_alive() -> None:
    chunks = [(1, b""), (2, b": keep-alive\n\n"), (3, b'{"a"'), (4, b":1}")]
    assert parse(chunks).first_content_ns == 3


def test_exchange_read_back_keeps_the_time_that_was_measured() -> None:
    body = b"".join(chunk for _, chunk in [*STREAM, DONE])
    assert stream([(0, body)], live=False, first_content_ns=20).first_content_ns == 20
    assert parse(b"{}", live=False, first_content_ns=7).first_content_ns == 7
    assert stream([(0, body)], live=False).first_content_ns is None


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_bodies_are_read(coding: str) -> None:
    sent = CODINGS[coding](json.dumps(PLAIN).encode())
    parsed = parse(sent, response_content_encoding=coding, request_body=sent, request_content_encoding=coding)
    assert (parsed.request, parsed.request_raw) == (PLAIN, None)
    assert (parsed.response, parsed.response_raw, parsed.error_category) == (PLAIN, None, None)


def test_compressed_stream_is_read_and_timed_as_it_came() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    chunks = [(at, compressor.compress(chunk) + compressor.flush(flush)) for at, chunk in [*STREAM, DONE]]
    parsed = stream([*chunks, (40, compressor.flush())], response_content_encoding="zstd")
    assert (parsed.first_content_ns, parsed.error_category) == (20, None)
    assert parsed.response_raw == b"".join(chunk for _, chunk in [*STREAM, DONE]).decode()


def test_compressed_stream_that_broke_keeps_its_beginning() -> None:
    events = b"".join(b'data: {"id":"%d","choices":[{"delta":{"content":"x"}}]}\n\n' % n for n in range(2000))
    sent = gzip.compress(events)
    parsed = stream(sent[: len(sent) // 2], response_content_encoding="gzip")
    assert parsed.error_category == "stream_truncated"
    assert parsed.response is not None


def test_coding_that_cannot_be_undone_keeps_the_bytes_as_text() -> None:
    parsed = parse(b"\x00\xffx", response_content_encoding="sdch")
    assert (parsed.error_category, parsed.response_raw) == ("capture_parse_error", "\x00\ufffdx")


def test_body_decoded_by_a_middleware_that_left_the_header() -> None:
    assert parse(json.dumps(PLAIN).encode(), response_content_encoding="gzip").response == PLAIN
    assert stream([*STREAM, DONE], response_content_encoding="br").error_category is None


def raised(category: str = "exception", name: str = "Boom", **fields: Any) -> Raised:
    return Raised(name, category, **fields)


def test_exception_before_any_answer() -> None:
    parsed = parse(raised=raised("timeout", status_code=429, body=b'{"error": {"type": "slow"}}'), status_code=None)
    assert (parsed.response, parsed.response_raw) == (None, '{"error": {"type": "slow"}}')
    assert (parsed.error_category, parsed.error) == ("rate_limit", {"type": "slow"})
    assert parse(raised=raised("timeout"), status_code=None).error_category == "timeout"
    assert parse(raised=raised(status_code=200), status_code=None).error_category == "exception"


def test_exception_in_mid_body_keeps_the_text_and_no_object() -> None:
    parsed = parse(b'{"a": 1}', raised=raised("connection"))
    assert (parsed.response, parsed.response_raw, parsed.error_category) == (None, '{"a": 1}', "connection")


def test_exception_in_mid_stream_keeps_the_partial_object() -> None:
    parsed = stream(STREAM, raised=raised("cancelled"))
    assert (parsed.error_category, parsed.stream_truncated) == ("cancelled", True)
    assert parsed.response is not None
    assert parsed.response["choices"][0]["message"]["content"] == "hi"


@pytest.mark.parametrize("hang_up", [raised("cancelled", "CancelledError"), raised("connection", "ClientDisconnect")])
def test_client_that_hangs_up_after_the_terminal_event_has_had_all_of_it(hang_up: Raised) -> None:
    assert stream([*STREAM, DONE], raised=hang_up).error_category is None
    assert stream([(9, b'data: {"error":{}}\n\n')], raised=hang_up).error_category == "upstream_error"


def test_failure_of_the_server_after_the_terminal_event_is_a_failure() -> None:
    assert stream([*STREAM, DONE], raised=raised()).error_category == "exception"


def test_context_length_overrides_every_category() -> None:
    execution = Execution(True, "local", 400, "context_length_exceeded")
    assert parse(b"{}", status_code=500, execution=execution).error_category == "context_length_exceeded"
    assert parse(b"{}", execution=Execution(False, "local", None, "empty_assistant")).error_category is None


def test_plain_error_that_is_text() -> None:
    assert parse(b'{"error": "nope"}', status_code=500).error == {"message": "nope"}


def test_dialect_goes_by_the_exact_path() -> None:
    for dialect in DIALECTS.values():
        assert dialect_for_path(dialect.path) is dialect
    for path in ("/v1/messages/", "/v1/messages/count_tokens", "/V1/messages", "/v1/embeddings", ""):
        assert dialect_for_path(path) is None


def test_request_that_was_cut_before_anything_came_out_is_kept_as_its_bytes() -> None:
    parsed = parse(b"{}", request_body=zstandard.ZstdCompressor().compress(b"{}")[:8], request_content_encoding="zstd")
    assert parsed.request is None
    assert parsed.request_raw is not None


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_empty_body_is_empty_and_no_error(coding: str) -> None:
    sent = CODINGS[coding](b"")
    parsed = parse(sent, response_content_encoding=coding, request_body=sent, request_content_encoding=coding)
    assert (parsed.request_raw, parsed.response_raw, parsed.error_category) == (None, None, None)
