from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.store.times import unix_nanoseconds


def test_no_nanosecond_is_lost_on_the_way() -> None:
    """R060: int(1777312801500.25 * 1e6) is off by 112 ns."""
    assert unix_nanoseconds("1777312801500.25", "ms") == 1777312801500250000
    assert unix_nanoseconds("1777312801.123456789") == 1777312801123456789
    assert unix_nanoseconds(1777312801500.25, "ms") == 1777312801500250000


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_written_as_seconds_come_back(time: int) -> None:
    sign, whole, rest = "-" if time < 0 else "", *divmod(abs(time), 10**9)
    assert unix_nanoseconds(f"{sign}{whole}.{rest:09d}") == time
    assert unix_nanoseconds(time, "ns") == time


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        unix_nanoseconds(text)
