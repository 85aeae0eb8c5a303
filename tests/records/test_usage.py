"""Token counts: the prompt is as long as the model saw it, cached tokens counted once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.records import extract_token_stats
from otel_gym.wire.usage import token_stats

CLAUDE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 128955,
    "cache_creation_input_tokens": 1253,
    "output_tokens": 10,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
usage_names = st.sampled_from(
    [
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cached_input_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "output_tokens_details",
        "completion_tokens_details",
        "reasoning_output_tokens",
    ]
)
details = st.dictionaries(st.sampled_from(["cached_tokens", "cached_input_tokens", "reasoning_tokens"]), json_values)


def test_a_claude_prompt_of_130213_tokens_is_not_reported_as_5():
    assert token_stats(CLAUDE).tokens_in == 130213
    assert token_stats(CLAUDE).tokens_total == 130223


def test_a_gateway_that_sends_both_spellings_does_not_double_the_prompt():
    usage = {**CLAUDE, "prompt_tokens": 130213, "completion_tokens": 10}
    assert token_stats(usage).tokens_in == 130213
    assert token_stats(usage).cached_tokens == 128955


def test_cached_tokens_of_openai_are_part_of_the_prompt_and_not_added():
    chat = {"prompt_tokens": 17903, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 17817}}
    responses = {"input_tokens": 17903, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 17817}}
    for usage in (chat, responses):
        stats = token_stats(usage)
        assert (stats.tokens_in, stats.cached_tokens, stats.cache_hit) == (17903, 17817, True)


def test_prompt_tokens_that_is_null_does_not_hide_input_tokens():
    assert token_stats({"prompt_tokens": None, "input_tokens": 4, "cache_read_input_tokens": 6}).tokens_in == 10


def test_unknown_usage_is_null_and_never_zero():
    for usage in (None, [], "x", {}, {"cache_read_input_tokens": 0}):
        assert token_stats(usage).tokens_in is None
        assert token_stats(usage).tokens_total is None


def test_cache_counts_alone_are_a_prompt_but_no_total():
    stats = token_stats({"cache_read_input_tokens": 7})
    assert (stats.tokens_in, stats.tokens_out, stats.tokens_total) == (7, None, None)


@pytest.mark.parametrize("count", [True, -1, 1.0, "5", None, [1]])
def test_only_a_true_non_negative_int_is_a_count(count):
    assert token_stats({"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}).tokens_in is None
    assert token_stats({"completion_tokens": count}).tokens_out is None


def test_a_zero_is_a_count():
    stats = token_stats({"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}})
    assert (stats.tokens_in, stats.tokens_total, stats.cached_tokens, stats.cache_hit) == (0, 0, 0, False)


def test_the_total_that_the_provider_states_is_kept():
    assert token_stats({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 9}).tokens_total == 9


def test_an_invalid_detail_does_not_hide_a_valid_one():
    usage = {"prompt_tokens_details": {"cached_tokens": None}, "input_tokens_details": {"cached_input_tokens": 3}}
    assert token_stats(usage).cached_tokens == 3


def test_reasoning_tokens_are_found_in_all_their_places():
    for usage in (
        {"output_tokens_details": {"reasoning_tokens": 6}},
        {"completion_tokens_details": {"reasoning_tokens": 6}},
        {"reasoning_output_tokens": 6},
    ):
        assert token_stats(usage).tokens_reasoning == 6


@given(st.dictionaries(usage_names, json_values | details))
def test_no_usage_object_raises_and_every_count_is_null_or_a_count(usage):
    for value in extract_token_stats(usage).values():
        assert value is None or (type(value) is int and value >= 0)
