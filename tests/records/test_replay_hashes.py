"""Replay hashes are those that Dynamo computes."""

from __future__ import annotations

import sys

import pytest

from otel_gym.records.replay_hashes import ReplayHashError, sequence_hashes


@pytest.mark.parametrize(
    ("tokens", "block_size", "hashes"),
    [
        ([1, 2, 3, 4], 2, [10773075109927122010, 5890102321129957602]),
        ([1, 2, 3, 4, 5, 6], 4, [14643705804678351452, 15850496887946224198]),
        (range(128), 64, [3480597578098033343, 2575318956255022795]),
        ([], 16, []),
    ],
    ids=["two-blocks", "a-partial-block", "blocks-of-64", "no-tokens"],
)
def test_hashes_are_those_of_dynamo(tokens, block_size, hashes):
    assert sequence_hashes(tokens, block_size) == hashes


def test_prompts_that_share_whole_blocks_share_their_first_hashes():
    shared = list(range(40))
    one, other = (sequence_hashes([*shared, *rest], 16) for rest in ([7, 8, 9], [1, 2]))
    assert one[:2] == other[:2] and one[2] != other[2]


def test_a_prompt_of_a_hundred_thousand_tokens_has_a_hash_a_block():
    assert len(sequence_hashes(list(range(100_001)), 16)) == 6_251


@pytest.mark.parametrize(
    ("tokens", "said"), [([1, -1], "token 1 is -1"), ([2**32], "token 0 is 4294967296"), ([1, "a"], "token 1 is 'a'")]
)
def test_what_is_no_token_id_is_named(tokens, said):
    with pytest.raises(ReplayHashError, match=said):
        sequence_hashes(tokens, 4)


def test_a_block_without_tokens_is_refused():
    with pytest.raises(ReplayHashError, match="at least 1 token, not 0"):
        sequence_hashes([1], 0)


def test_without_xxhash_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(ReplayHashError, match=r"pip install 'otel_gym\[dynamo\]'"):
        sequence_hashes([1], 4)
