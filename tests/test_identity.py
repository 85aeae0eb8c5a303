from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.id_rules import InvalidIdError, checked_id, is_valid_id
from otel_gym.identity import (
    Identity,
    baggage_of,
    identity_from_baggage,
    identity_from_baggage_header,
    indices_from_rollout_id,
    rollout_id_from_indices,
    split_url_prefix,
    strip_raw_url_prefix,
    url_path_for_rollout,
)


@pytest.mark.parametrize("text", ["1-0", "12-3-a1", "A", "a.b_c-d", "0" * 200])
def test_ids_that_may_name_a_rollout(text):
    assert checked_id(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", ".x", "-x", "_x", "a/b", "a b", "a\n", "é", "٣-0", "0" * 201, "unassigned", "a\x00"]
)
def test_ids_that_may_not_touch_a_path(text):
    with pytest.raises(InvalidIdError, match="refused"):
        checked_id(text)


@given(st.text())
def test_no_accepted_id_leaves_its_folder(text):
    if is_valid_id(text):
        assert "/" not in text
        assert not text.startswith(".")
        assert text.isascii()


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 99))
def test_indices_and_id_are_one_thing(task, rollout, attempt):
    indices = indices_from_rollout_id(rollout_id_from_indices(task, rollout, attempt))
    assert (indices.task_index, indices.rollout_index, indices.attempt) == (task, rollout, attempt)


@pytest.mark.parametrize("text", ["my-run-a1", "1-2-a0", "1-2-b1", "1-2-3", "x"])
def test_attempts_are_read_from_indices_only(text):
    assert indices_from_rollout_id(text) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ng-rollout/1-0/v1/messages", ("1-0", "/v1/messages")),
        ("/ng-rollout/1-0/training-token-capture/v1/messages", ("1-0", "/v1/messages")),
        ("/ng-rollout/1-0/ng-rollout/2-0/v1/messages", ("1-0", "/ng-rollout/2-0/v1/messages")),
        ("/ng-rollout/1-0", (None, "/ng-rollout/1-0")),
        ("/ng-rollout//v1/messages", (None, "/ng-rollout//v1/messages")),
        ("/v1/messages", (None, "/v1/messages")),
        ("/ng-rollout/1-0/v1/messages\n", (None, "/ng-rollout/1-0/v1/messages\n")),
        ("/ng-rollout/1-0/v1\n/messages", (None, "/ng-rollout/1-0/v1\n/messages")),
    ],
)
def test_the_prefix_is_taken_off_once(path, expected):
    assert split_url_prefix(path) == expected


@pytest.mark.parametrize(
    ("raw_path", "path", "expected"),
    [
        (b"/ng-rollout/1-0/v1/messages", b"/v1/messages", b"/v1/messages"),
        (b"/ng-rollout/1-0/v1/files/a%20b", b"/v1/files/a b", b"/v1/files/a%20b"),
        (b"/ng-rollout/1-0/v1/models/org%2Fname%0A", b"/v1/models/org/name\n", b"/v1/models/org%2Fname%0A"),
        (b"/ng-rollout/a%2Fb/v1/messages", b"/b/v1/messages", b"/b/v1/messages"),
    ],
)
def test_the_raw_path_is_stripped_with_the_path(raw_path, path, expected):
    assert strip_raw_url_prefix(raw_path, path) == expected


def test_a_prefixed_path_leads_back():
    assert split_url_prefix(url_path_for_rollout("4-2", "/v1/responses")) == ("4-2", "/v1/responses")


def test_ids_travel_in_baggage():
    identity = Identity("4-2", "run-1")
    assert identity_from_baggage(baggage_of(identity)) == identity
    assert identity_from_baggage_header("gym.rollout.id=4-2,gym.run.id=run-1,other=x") == identity


def test_refused_ids_in_baggage_are_ignored():
    assert identity_from_baggage_header("gym.rollout.id=..%2F..%2Fetc") is None
    assert identity_from_baggage_header(";;;=,") is None
