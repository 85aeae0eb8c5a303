"""Token counts from the ``usage`` object of any of the three dialects.

Prompt size counts cached tokens exactly once:

- ``prompt_tokens`` includes the cache. It wins whenever it is there and nothing is added to it, also
  beside Anthropic-style ``cache_*`` fields (gateways send both).
- ``input_tokens`` beside a top-level ``cache_read_input_tokens`` or ``cache_creation_input_tokens``
  excludes both, so they are added.
- ``input_tokens`` alone includes the cache.
- ``*_tokens_details`` name subsets and are never added.

A count is a true, non-negative int; a bool, a float, a text or a negative number is "unknown", not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

Number = TypeVar("Number", int, float)

PROMPT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
OUTPUT_DETAILS = ("output_tokens_details", "completion_tokens_details")


class TokenStats(NamedTuple):
    """Tokens of one model call; None where the server did not say.

    ``tokens_in`` is the whole prompt; ``cached_tokens`` (read from the cache) and
    ``cache_creation_tokens`` (written to it) are parts of it. ``tokens_reasoning`` is part of ``tokens_out``.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None

    @property
    def cache_hit(self) -> bool | None:
        return None if self.cached_tokens is None else self.cached_tokens > 0


UNKNOWN = TokenStats()


def token_count(value: Any) -> int | None:
    """The value if it is a true non-negative int (bool is not), else None."""
    return value if type(value) is int and value >= 0 else None


def sum_of_known(values: Iterable[Number | None]) -> Number | None:
    """The sum without what is None; None where nothing is known. Of floats it is rounded once, at the end, as by
    Python's own ``sum`` since 3.12, and so by NeMo Gym: 0.1 + 0.2 + 0.3 are 0.6, and not 0.6000000000000001.
    """
    told = [value for value in values if value is not None]
    if any(type(value) is float for value in told):
        with suppress(OverflowError):
            return math.fsum(told)  # type: ignore[return-value]
    return sum(told) if told else None


def token_stats(usage: Any) -> TokenStats:
    """Token counts of a usage object; all None if it is no object."""
    if not (type(usage) is dict or isinstance(usage, Mapping)):
        return UNKNOWN
    tokens_in = _prompt_size(usage)
    tokens_out = _first_count(usage, ("output_tokens", "completion_tokens"))
    return TokenStats(
        tokens_in,
        tokens_out,
        _reasoning_tokens(usage),
        _total(usage, tokens_in, tokens_out),
        _cached_tokens(usage),
        token_count(usage.get("cache_creation_input_tokens")),
    )


def with_thinking(stats: TokenStats, usage: Any) -> TokenStats:
    """With Anthropic's count of thinking tokens as reasoning tokens, where ``usage`` says no others.

    ``token_stats`` leaves it out as NeMo Gym does, whose record is the same for the same answer.
    """
    if stats.tokens_reasoning is not None or stats is UNKNOWN or not isinstance(usage, Mapping):
        return stats
    thinking = _detail(usage, OUTPUT_DETAILS, ("thinking_tokens",))
    tokens_in, tokens_out, _, total, cached, written = stats
    return TokenStats(tokens_in, tokens_out, thinking, total, cached, written)


def _prompt_size(usage: Mapping[str, Any]) -> int | None:
    whole_prompt = token_count(usage.get("prompt_tokens"))
    if whole_prompt is not None:
        return whole_prompt
    uncached = token_count(usage.get("input_tokens"))
    cache_read = token_count(usage.get("cache_read_input_tokens")) or 0
    cache_written = token_count(usage.get("cache_creation_input_tokens")) or 0
    # A cache field that says 0 does not tell how long the prompt was.
    if uncached is None and cache_read + cache_written == 0:
        return None
    return (uncached or 0) + cache_read + cache_written


def _total(usage: Mapping[str, Any], tokens_in: int | None, tokens_out: int | None) -> int | None:
    stated = token_count(usage.get("total_tokens"))
    if stated is not None:
        return stated
    if tokens_in is None or tokens_out is None:
        return None
    return tokens_in + tokens_out


def _reasoning_tokens(usage: Mapping[str, Any]) -> int | None:
    detailed = _detail(usage, OUTPUT_DETAILS, ("reasoning_tokens",))
    return detailed if detailed is not None else token_count(usage.get("reasoning_output_tokens"))


def _cached_tokens(usage: Mapping[str, Any]) -> int | None:
    detailed = _detail(usage, PROMPT_DETAILS, ("cached_tokens", "cached_input_tokens"))
    if detailed is not None:
        return detailed
    return _first_count(usage, ("cache_read_input_tokens", "cached_input_tokens"))


def _detail(usage: Mapping[str, Any], groups: Iterable[str], names: Iterable[str]) -> int | None:
    for group in groups:
        details = usage.get(group)
        if isinstance(details, dict):
            count = _first_count(details, names)
            if count is not None:
                return count
    return None


def _first_count(fields: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = fields.get(name)
        if type(value) is int and value >= 0:  # token_count, without a call for each name
            return value
    return None
