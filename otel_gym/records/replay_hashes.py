"""Dynamo's replay hashes: what a replay of a trace needs to know of prompts to tell which of them share a prefix.

The first block's hash is that of its tokens; each further one hashes the one before it and that of its own tokens.
Prompts that begin with the same whole blocks so begin with the same hashes, whatever stands in them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

_SEED = 1337
_TOKEN_BYTES = 4
_LITTLE = sys.byteorder == "little"


class ReplayHashError(ValueError):
    """Tokens or a block size that have no hashes, or the package for them is missing; the text says the cure."""


def sequence_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """One hash, unsigned 64-bit, for each block of ``block_size`` tokens, the last, partial one too. ReplayHashError.

    Token ids are unsigned 32-bit. No tokens: no hashes.
    """
    if block_size < 1:
        raise ReplayHashError(f"a block has at least 1 token, not {block_size}")
    digest = _digest()
    tokens = _token_bytes(token_ids)
    step = block_size * _TOKEN_BYTES
    hashes: list[int] = []
    before = b""
    for start in range(0, len(tokens), step):
        local = digest(tokens[start : start + step], _SEED)
        value = digest(before + local.to_bytes(8, "little"), _SEED) if before else local
        before = value.to_bytes(8, "little")
        hashes.append(value)
    return hashes


def _token_bytes(token_ids: Sequence[int]) -> memoryview:
    """As unsigned 32-bit numbers, little endian."""
    try:
        tokens = array("I", token_ids)
    except (OverflowError, TypeError):
        raise ReplayHashError(f"token ids are whole numbers from 0 to 2^32 - 1: {_odd_token(token_ids)}") from None
    if not _LITTLE:
        tokens.byteswap()
    return memoryview(tokens).cast("B")


def _odd_token(token_ids: Sequence[Any]) -> str:
    for place, token in enumerate(token_ids):
        if not isinstance(token, int) or not 0 <= token < 2 ** (8 * _TOKEN_BYTES):
            return f"token {place} is {token!r}"
    return "these are not"


def _digest() -> Callable[[Any, int], int]:
    try:
        import xxhash
    except ModuleNotFoundError:
        raise ReplayHashError("replay hashes need the package xxhash: pip install 'otel_gym[dynamo]'") from None
    return xxhash.xxh3_64_intdigest
