from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.content import KeptBody, body_of_text, body_text, safe_json, safe_text


@given(st.binary(), st.none() | st.just("gzip"))
def test_a_body_comes_back_byte_for_byte(content, coding):
    assert body_of_text(*body_text(KeptBody(content, coding))) == KeptBody(content, coding)


@given(st.text(st.characters(codec=None)))
def test_safe_text_can_always_be_written(text):
    assert safe_text(safe_text(text)) == safe_text(text)
    safe_text(text).encode("utf-8")


def test_half_an_emoji_becomes_a_replacement_character():
    assert safe_text("a\ud83eb") == "a\ufffdb"
    assert safe_text("a😀b") == "a😀b"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError


def cyclic() -> dict:
    value: dict = {}
    value["self"] = value
    return value


def deep() -> list:
    value: list = []
    for _ in range(10_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [cyclic(), deep(), Broken(), {1: b"x", (2, 3): Broken()}, {"a": float("nan")}, 2**200]
)
def test_whatever_a_value_holds_strict_json_comes_out(value):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(safe_json(value), parse_constant=refuse)


def test_a_nan_is_null_and_what_surrounds_it_stays():
    assert safe_json({"a": float("-inf"), "b": [1.5, None, True, "x"]}) == '{"a":null,"b":[1.5,null,true,"x"]}'
