"""What a text keeps of an earlier one: its head, its tail, blocks between them, and what is new.

Knows nothing of JSON or of models. A request history grows in the middle of its document (messages
are added, tools and parameters follow), so head and tail carry most of it; blocks carry what moved,
such as tools between two parts that changed. All searching is done by comparing and finding slices,
which runs in C; no loop here goes over characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# A block costs three numbers on disk; below this it is not worth them.
MIN_BLOCK = 256
_MAX_BLOCKS = 16
_ANCHOR = 48
_FRACTIONS = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8, *(n / 16 for n in range(1, 16, 2)))


class Block(NamedTuple):
    """``length`` characters from ``start`` of the base stand before character ``at`` of the new text."""

    at: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """``head`` characters of the base, ``new`` with the ``blocks`` put in, ``tail`` characters of the base."""

    head: int
    tail: int
    blocks: tuple[Block, ...]
    new: str

    @property
    def kept(self) -> int:
        return self.head + self.tail + sum(block.length for block in self.blocks)

    @property
    def characters(self) -> int:
        """Length of the text that this stands for."""
        return self.kept + len(self.new)


def text_delta(base: str, text: str, ends: tuple[int, int] | None = None) -> TextDelta:
    """``text`` in terms of ``base``; ``rebuilt(base, text_delta(base, text)) == text``, whatever they hold.

    ends  their common head and tail, where they are known
    """
    head, tail = ends or common_ends(base, text)
    middle = text[head : len(text) - tail]
    if len(middle) < MIN_BLOCK or len(base) - head - tail < MIN_BLOCK:
        return TextDelta(head, tail, (), middle)
    pieces, blocks, at, end = [], [], 0, 0
    for block in _common_blocks(base[head : len(base) - tail], middle):
        pieces.append(middle[end : block.at])
        at += len(pieces[-1])
        blocks.append(Block(at, head + block.start, block.length))
        end = block.at + block.length
    return TextDelta(head, tail, tuple(blocks), "".join([*pieces, middle[end:]]))


def rebuilt(base: str, delta: TextDelta) -> str:
    """The text; ValueError where the delta speaks of what the base does not have."""
    if delta.head < 0 or delta.tail < 0 or delta.head + delta.tail > len(base):
        raise ValueError("more is kept than the base has")
    pieces, end = [base[: delta.head]], 0
    for block in delta.blocks:
        if not end <= block.at <= len(delta.new) or not 0 <= block.start <= block.start + block.length <= len(base):
            raise ValueError("a kept block lies outside of its text")
        pieces += (delta.new[end : block.at], base[block.start : block.start + block.length])
        end = block.at
    return "".join([*pieces, delta.new[end:], base[len(base) - delta.tail :]])


def common_ends(a: str, b: str) -> tuple[int, int]:
    """Lengths of the longest common head, and of the longest common tail of what remains."""
    head = common_head(a, b)
    return head, common_tail(a, b, min(len(a), len(b)) - head)


def common_head(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_tail(a: str, b: str, limit: int | None = None) -> int:
    low, high = 0, min(len(a), len(b)) if limit is None else limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_blocks(base: str, text: str) -> list[Block]:
    """Blocks that both have in the same order, largest first where they are looked for; in the order of the text."""
    found: list[Block] = []
    open_ranges = [(0, len(base), 0, len(text))]
    while open_ranges and len(found) < _MAX_BLOCKS:
        start, end, low, high = open_ranges.pop()
        if min(end - start, high - low) < MIN_BLOCK:
            continue
        block = _longest_block(base[start:end], text[low:high])
        if block.length < MIN_BLOCK:
            continue
        at, begin = low + block.at, start + block.start
        found.append(Block(at, begin, block.length))
        open_ranges += [(start, begin, low, at), (begin + block.length, end, at + block.length, high)]
    return sorted(found)


def _longest_block(base: str, text: str) -> Block:
    """The longest block that one of a few anchors, taken from all over the base, leads to."""
    best = Block(0, 0, 0)
    for fraction in _FRACTIONS:
        start = int(len(base) * fraction)
        if best.start <= start < best.start + best.length:
            continue
        at = text.find(base[start : start + _ANCHOR])
        if at < 0:
            continue
        left = common_tail(base[:start], text[:at])
        length = left + common_head(base[start:], text[at:])
        if length > best.length:
            best = Block(at - left, start - left, length)
            if 2 * length >= min(len(base), len(text)):
                break
    return best
