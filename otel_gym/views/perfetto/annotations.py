"""Arguments of an event as protobuf: ``gen_ai.usage.input_tokens`` is three objects in each other.

A dot in a name would become "_". Spans of one kind have arguments of the same names and types: where each value goes is
planned once for them, and what a value becomes is kept as long as it comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from otel_gym.views.perfetto.protobuf import DOUBLE, INT64, UINT64, field, text, varint

_DEEPEST_NAME = 16
_MOST_KNOWN = 256
_MOST_PIECES = 4096
_OF_EVENT, _WITHIN = b"\x22", b"\x5a"  # debug_annotations of an event, dict_entries of an annotation


class _Kept(dict[Any, bytes]):
    """What values of one name become, as long as they come again."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make

    def __missing__(self, value: Any) -> bytes:
        made = self._make(value)
        if len(self) >= _MOST_KNOWN:
            self.clear()
        self[value] = made
        return made


class _Unkept:
    """The same of values that a dict would take for others, or that seldom come again."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make

    def __getitem__(self, value: Any) -> bytes:
        return self._make(value)


class _Lists:
    """Lists of one text, as finish reasons are, come again."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make
        self._of_one_text = _Kept(lambda text: make([text]))

    def __getitem__(self, value: list[Any]) -> bytes:
        if len(value) == 1 and type(value[0]) is str:
            return self._of_one_text[value[0]]
        return self._make(value)


class _Heads(dict[int, bytes]):
    """What an object begins with, by the size of what it holds."""

    def __init__(self, tag: bytes, name: bytes) -> None:
        self._tag, self._name = tag, name

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        head = self[size] = self._tag + varint(len(self._name) + size) + self._name
        return head


class _Leaf(NamedTuple):
    """Which value has a name. ``around``: names of the objects that hold nothing but it, the innermost first."""

    source: int
    name: bytes
    around: tuple[bytes, ...] = ()


class _Object(NamedTuple):
    name: bytes
    holds: list[_Leaf | _Object]


_Path = tuple[int, list[str]]
_Piece = _Kept | _Unkept | _Lists | dict[None, bytes]
_NO_HEAD_YET: dict[None, bytes] = {None: b""}


class Plan:
    """Where the values of one shape go: a piece each, and before those of an object one that begins it."""

    def __init__(
        self, names: Sequence[str], kinds: Sequence[type], iid_of: Callable[[str], bytes], known: Pieces
    ) -> None:
        """``iid_of`` gives the field that stands for a name."""
        self._pieces: list[_Piece] = []
        self._objects: list[tuple[int, int, _Heads]] = []  # the inner before the outer
        sources: list[int] = []
        paths = [(index, name.split(".", _DEEPEST_NAME)) for index, name in enumerate(names)]
        self._known = known
        self._add(_tree(paths, 0, iid_of), _OF_EVENT, kinds, sources)
        self._pick = itemgetter(*sources, -1)

    def encode(self, values: list[Any]) -> bytes:
        """Takes those of the shape, in its order."""
        values.append(None)
        pieces = [piece[value] for piece, value in zip(self._pieces, self._pick(values), strict=False)]
        for start, end, heads in self._objects:
            pieces[start] = heads[sum(map(len, pieces[start + 1 : end]))]
        return b"".join(pieces)

    def _add(self, tree: list[_Leaf | _Object], tag: bytes, kinds: Sequence[type], sources: list[int]) -> None:
        for each in tree:
            start = len(sources)
            if isinstance(each, _Leaf):
                sources.append(each.source)
                self._pieces.append(self._known.of(kinds[each.source], tag, each))
                continue
            sources.append(-1)
            self._pieces.append(_NO_HEAD_YET)
            self._add(each.holds, _WITHIN, kinds, sources)
            self._objects.append((start, len(sources), _Heads(tag, each.name)))


def _tree(paths: list[_Path], depth: int, iid_of: Callable[[str], bytes]) -> list[_Leaf | _Object]:
    tree: list[_Leaf | _Object] = []
    below: dict[str, list[_Path]] = {}
    for index, path in paths:
        if len(path) == depth + 1:
            tree.append(_Leaf(index, iid_of(path[depth])))
        else:
            below.setdefault(path[depth], []).append((index, path))
    for name, under in below.items():
        iid = iid_of(name)
        match _tree(under, depth + 1, iid_of):
            case [_Leaf() as only]:
                tree.append(_Leaf(only.source, only.name, (*only.around, iid)))
            case holds:
                tree.append(_Object(iid, holds))
    return tree


class Pieces:
    """What becomes of the values of each name, shared by all shapes that have it."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, bytes, _Leaf], _Piece] = {}

    def of(self, kind: type, tag: bytes, leaf: _Leaf) -> _Piece:
        key = (kind, tag, leaf._replace(source=0))
        piece = self._known.get(key)
        if piece is None:
            if len(self._known) >= _MOST_PIECES:
                self._known.clear()
            piece = self._known[key] = _piece(kind, tag, leaf)
        return piece


def _piece(kind: type, tag: bytes, leaf: _Leaf) -> _Piece:
    def around(body: bytes) -> bytes:
        body = leaf.name + body
        for name in leaf.around:
            body = name + _WITHIN + varint(len(body)) + body
        return tag + varint(len(body)) + body

    def of_any(value: Any) -> bytes:
        return around(value_field(value))

    def of_text(text: str) -> bytes:
        content = text.encode()
        return before[len(content)] + content

    def before_text(size: int) -> bytes:
        whole = around(b"\x32" + varint(size) + bytes(size))
        return whole[: len(whole) - size]

    before = _Kept(before_text)
    if kind is str:
        return _Kept(of_text)
    if kind is int or kind is bool:
        return _Kept(of_any)
    return _Lists(of_any) if kind is list else _Unkept(of_any)


def value_field(value: Any) -> bytes:
    """The field of an annotation that holds it."""
    if isinstance(value, str):
        content = value.encode()
        return b"\x32" + varint(len(content)) + content
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x20" + varint(value & UINT64) if -INT64 <= value < INT64 else value_field(str(value))
    if isinstance(value, float):
        return b"\x29" + DOUBLE(value)
    if isinstance(value, list | tuple):
        return b"".join([field(12, value_field(item)) for item in value])
    if isinstance(value, dict):
        return b"".join([field(11, text(10, str(name)) + value_field(item)) for name, item in value.items()])
    return value_field(str(value))
