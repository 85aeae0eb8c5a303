from __future__ import annotations

import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.content import (
    KeptBody,
    body_of_text,
    body_text,
    count_unsafe,
    safe_attributes,
    safe_json,
    safe_text,
    safe_value,
)


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


def twice_cyclic() -> dict:
    """Written out it has 2 to the power of its depth parts."""
    value: dict = {}
    value["a"] = value["b"] = {"back": [value, value]}
    return value


def bomb() -> list:
    """60 lists that say 2**60 things."""
    value: list = ["boom"]
    for _ in range(60):
        value = [value, value]
    return value


def deep() -> list:
    value: list = []
    for _ in range(10_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [cyclic(), twice_cyclic(), deep(), Broken(), {1: b"x", (2, 3): Broken()}, {"a": float("nan")}, 2**200],
    ids=["cyclic", "twice cyclic", "deep", "broken", "odd keys", "nan", "big"],
)
def test_whatever_a_value_holds_strict_json_comes_out(value):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(safe_json(value), parse_constant=refuse)


def test_a_nan_is_null_and_what_surrounds_it_stays():
    assert safe_json({"a": float("-inf"), "b": [1.5, None, True, "x"]}) == '{"a":null,"b":[1.5,null,true,"x"]}'


class Colour(enum.IntEnum):
    RED = 3


class Scalar:
    """Like numpy's and torch's."""

    shape = ()

    def item(self) -> float:
        return 0.5


class Failing(dict):
    def items(self):
        raise OSError("the file behind it is gone")


@pytest.mark.parametrize(
    ("value", "safe", "replaced"),
    [
        ("a\ud83eb\ud83e", "a\ufffdb\ufffd", 2),
        ("was \ufffd before", "was \ufffd before", 0),
        (2**63, str(2**63), 0),
        (-(2**63), -(2**63), 0),
        (Colour.RED, 3, 0),
        (Scalar(), 0.5, 0),
        (b"\xff", b"\xff", 0),
        ({1: "x", None: {2}}, {"1": "x", "None": [2]}, 0),
        ({"k\ud800": ("a", None)}, {"k\ufffd": ["a", None]}, 1),
        (Broken(), "<Broken>", 0),
        (cyclic(), {"self": "<refers to itself>"}, 1),
        (Failing(a=1), "<Failing: OSError>", 1),
    ],
)
def test_what_users_put_on_spans_is_made_safe_and_what_is_lost_is_counted(value, safe, replaced):
    assert safe_value(value) == (safe, replaced)


def test_nan_stays_a_number_on_a_span_since_otlp_knows_it():
    value, replaced = safe_value(float("nan"))
    assert math.isnan(value) and replaced == 0


def test_a_value_10_000_deep_is_cut_where_exporters_would_fail():
    value, replaced = safe_value(deep())
    depth = 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    assert (value, depth, replaced) == ("<nested too deep>", 32, 1)


@given(
    st.dictionaries(
        st.text(st.characters(codec=None)) | st.integers() | st.none(), st.text() | st.floats() | st.binary()
    )
)
def test_safe_attributes_have_names_that_are_texts(attributes):
    safe, _ = safe_attributes(attributes)
    for name in safe:
        name.encode("utf-8")


def test_half_characters_and_numbers_beyond_json_are_counted_wherever_they_stand():
    document = json.loads('{"a\\ud83e":["\\ud83e\\ud83e",{"p":[-Infinity,NaN,1.5]},"\\ud83e\\udd14"]}')
    assert count_unsafe((None, document)) == 5
