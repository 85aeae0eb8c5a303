from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.store.text_delta import Block, TextDelta, common_head, common_tail, rebuilt, text_delta

texts = st.text(st.characters(codec="utf-8"), max_size=40)
words = st.lists(st.sampled_from(["a", "ab" * 200, "\U0001f600", "é" * 300, "tool" * 100, ",", "x\ny"]), max_size=12)


def noise(seed: str, length: int) -> str:
    """Text that repeats nowhere."""
    import hashlib

    return "".join(hashlib.sha256(f"{seed}{n}".encode()).hexdigest() for n in range(length // 64 + 1))[:length]


@given(texts, texts)
def test_ends_are_the_longest_that_both_have(a, b):
    head = common_head(a, b)
    assert a[:head] == b[:head] and (head == min(len(a), len(b)) or a[head] != b[head])
    tail = common_tail(a, b)
    assert a[len(a) - tail :] == b[len(b) - tail :]
    assert tail == min(len(a), len(b)) or a[-tail - 1] != b[-tail - 1]


@given(words, words, texts)
def test_any_text_comes_back_from_any_base(base_words, text_words, between):
    base, text = "".join(base_words), between.join(text_words)
    delta = text_delta(base, text)
    assert rebuilt(base, delta) == text
    assert delta.characters == len(text)


def test_a_block_that_moved_between_two_changes_is_kept():
    tools = noise("tools", 20_000)
    base = json.dumps({"input": [noise("a", 3000)], "tools": tools, "id": "1", "turn": noise("t1", 40)})
    text = json.dumps(
        {"input": [noise("a", 3000), noise("b", 4000)], "tools": tools, "id": "2", "turn": noise("t2", 40)}
    )
    delta = text_delta(base, text)
    assert rebuilt(base, delta) == text
    assert len(delta.new) < 4_300


def test_a_change_at_the_front_leaves_the_rest_kept():
    history = noise("history", 200_000)
    base, text = f"hash={noise('1', 50)}{history}]", f"hash={noise('2', 50)}{history}{noise('more', 1000)}]{'x' * 9}"
    delta = text_delta(base, text)
    assert rebuilt(base, delta) == text
    assert len(delta.new) < 1_200


@pytest.mark.parametrize(
    "delta",
    [
        TextDelta(3, 2, (), ""),
        TextDelta(-1, 0, (), ""),
        TextDelta(0, 0, (Block(0, 3, 9),), ""),
        TextDelta(0, 0, (Block(1, 0, 1),), ""),
        TextDelta(0, 0, (Block(2, 0, 1), Block(1, 0, 1)), "abc"),
    ],
)
def test_a_delta_of_more_than_its_base_is_refused(delta):
    with pytest.raises(ValueError, match="kept"):
        rebuilt("abcd", delta)
