"""Attributes as OTLP/JSON, of spans that look alike and are not."""

from __future__ import annotations

import json
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.store import otlp_json
from otel_gym.store.otlp_json import attributes_of, encode_attributes


class Name(str, Enum):  # noqa: UP042 (a StrEnum says its value, this one its member)
    MODEL = "gen_ai.request.model"
    TOKENS = "gen_ai.usage.input_tokens"


def read_back(attributes: dict) -> dict:
    return attributes_of(json.loads(encode_attributes(attributes)))


def test_an_enumeration_as_an_attributes_name_renames_no_attribute_of_other_spans():
    named = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
    assert read_back({Name.MODEL: "m", Name.TOKENS: 7}) == named
    assert read_back(named) == named


def test_spans_with_thousands_of_names_leave_nothing_in_memory():
    otlp_json._templates.clear()
    assert len(read_back({f"llm.input_messages.{number}": number for number in range(2000)})) == 2000
    assert not otlp_json._templates


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1])
def test_an_integer_that_fits_no_64_bits_is_kept_as_its_digits(number):
    expected = number if -(2**63) <= number < 2**63 else str(number)
    assert read_back({"small": 1, "n": number}) == {"small": 1, "n": expected}


_VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b%s", 'c"', "d\n", "é"]), _VALUES), max_size=5))
def test_what_is_encoded_comes_back_whatever_was_encoded_before(spans):
    for attributes in spans:
        assert read_back(attributes) == attributes
