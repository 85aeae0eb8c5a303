"""Content codings and JSON: what came is read, what cannot be read is said, nothing raises."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import brotli
import pytest
import zstandard

from otel_gym.wire.bodies import BodyDecoder, decode_body, load_json_object

TEXT = ("北京 " * 40).encode()


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


CODINGS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding_is_undone_whole_and_bytewise(coding: str) -> None:
    sent = CODINGS[coding](TEXT)
    assert decode_body(sent, coding).content == TEXT
    decoder = BodyDecoder(coding)
    assert b"".join(decoder.feed(sent[place : place + 1]) for place in range(len(sent))) == TEXT
    assert decoder.failed is None


def test_deflate_without_its_zlib_header_is_read() -> None:
    assert decode_body(raw_deflate(TEXT), "deflate").content == TEXT


def test_codings_are_undone_in_reverse_order() -> None:
    assert decode_body(brotli.compress(gzip.compress(TEXT)), "gzip, br").content == TEXT
    assert decode_body(gzip.compress(TEXT), "identity, gzip").content == TEXT


def test_gzip_members_are_read_one_after_another() -> None:
    sent = gzip.compress(TEXT) + gzip.compress(b"more") + b"\0\0\0"
    assert decode_body(sent, "gzip").content == TEXT + b"more"
    decoder = BodyDecoder("gzip")
    assert b"".join(decoder.feed(sent[place : place + 1]) for place in range(len(sent))) == TEXT + b"more"


def test_zstd_frames_are_read_one_after_another() -> None:
    compress = zstandard.ZstdCompressor().compress
    assert decode_body(compress(TEXT) + compress(b"more"), "zstd").content == TEXT + b"more"


def test_cut_body_yields_what_had_come() -> None:
    sent = gzip.compress(TEXT * 50, 1)
    decoded = decode_body(sent[: len(sent) // 2], "gzip")
    assert decoded.content
    assert (TEXT * 50).startswith(decoded.content)


@pytest.mark.parametrize("coding", CODINGS)
def test_cut_body_is_said_to_be_cut(coding: str) -> None:
    sent = CODINGS[coding](TEXT)
    for end in (1, 5, len(sent) // 2, len(sent) - 1):
        assert decode_body(sent[:end], coding).failed == "the body ends before its compressed data does"
    decoder = BodyDecoder(coding)
    assert decoder.finish() is None
    decoder.feed(sent[:5])
    assert decoder.failed is None
    assert decoder.finish() is not None


def test_whole_body_of_several_members_or_codings_is_not_cut() -> None:
    compress = zstandard.ZstdCompressor().compress
    for sent, coding in (
        (compress(TEXT) + compress(b"more"), "zstd"),
        (gzip.compress(TEXT) + gzip.compress(b"more") + b"\0\0", "gzip"),
        (raw_deflate(TEXT), "deflate"),
        (brotli.compress(gzip.compress(TEXT)), "gzip, br"),
    ):
        assert decode_body(sent, coding).failed is None
    assert decode_body(gzip.compress(brotli.compress(TEXT)[:-3]), "br, gzip").failed is not None


def test_damage_after_some_output_keeps_that_output() -> None:
    first, second = gzip.compress(TEXT), b"\x1f\x8b\x08\x00damaged beyond repair"
    decoder = BodyDecoder("gzip")
    assert decoder.feed(first) == TEXT
    assert decoder.feed(second) == b""
    assert decoder.failed is not None
    assert decoder.feed(b"more") == b""


def test_body_that_was_decoded_already_is_taken_as_it_is() -> None:
    decoded = decode_body(b'{"a": 1}', "gzip")
    assert decoded.content == b'{"a": 1}'
    assert decoded.failed is not None


def test_unknown_coding_is_said_and_raises_nothing() -> None:
    decoded = decode_body(b"abc", "sdch")
    assert (decoded.content, decoded.failed) == (b"abc", "unknown content coding 'sdch'")


@pytest.mark.parametrize("module", ["brotli", "zstandard"])
def test_missing_decoder_is_said_and_raises_nothing(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    decoded = decode_body(b"abc", {"brotli": "br", "zstandard": "zstd"}[module])
    assert decoded.content == b"abc"
    assert decoded.failed is not None
    assert "is installed" in decoded.failed


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_bomb_stops_at_the_size_bound(coding: str) -> None:
    sent = CODINGS[coding](b"\0" * 3_000_000)
    decoded = decode_body(sent, coding, limit=500_000)
    assert decoded.failed == "too large when decoded"
    assert len(decoded.content) <= 500_000


def test_json_is_read_as_gym_reads_it() -> None:
    assert load_json_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert load_json_object('{"a": 1}'.encode("utf-16")) == {"a": 1}
    assert load_json_object('{"a": 1, "a": 18446744073709551616}') == {"a": 2**64}
    assert str(load_json_object('{"a": NaN}')) == "{'a': nan}"
    assert load_json_object('{"a": "\\ud83e"}') == {"a": "\ud83e"}


@pytest.mark.parametrize(
    "text", ["", " ", "[1]", "5", "null", '{"a":', '{"a":}', "{} {}", '{"a":1}x', "[" * 100_000, '{"a":' * 100_000]
)
def test_anything_but_one_object_is_none(text: str) -> None:
    assert load_json_object(text) is None
    assert load_json_object(text.encode()) is None


@pytest.mark.parametrize("text", ['\t\r\n {"a" : [1, {"b": null}]} \n', '{"a":1}\u00a0', '\ufeff{"a":1}', "{}\x00"])
def test_text_is_read_like_json_loads(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    assert load_json_object(text) == expected
