"""Chrome's JSON trace events as objects that are encoded many at once. Times are µs from the beginning of the trace."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from msgspec import field

from otel_gym.views.perfetto.dynamo.arguments import CallArgs, ToolArgs
from otel_gym.views.perfetto.json_text import json_args
from otel_gym.views.perfetto.shapes import AGENT, MODEL, TOOL
from otel_gym.views.perfetto.stages import STAGE


class CallSlice(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    name: str
    ts: float
    dur: float
    pid: int
    tid: int
    args: CallArgs
    cat: str = MODEL


class StageSlice(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    name: str
    ts: float
    dur: float
    pid: int
    tid: int
    cat: str = STAGE


class ToolSlice(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    name: str
    ts: float
    dur: float
    pid: int
    tid: int
    args: ToolArgs
    cat: str = TOOL


class FailedToolSlice(ToolSlice, tag_field="ph", tag="X", gc=False):
    cname: str = "terrible"


class AgentSlice(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """An agent or a whole session, from its first to its last time."""

    name: str
    ts: float
    dur: float
    pid: int
    tid: int
    cat: str = AGENT


class FirstToken(msgspec.Struct, tag_field="ph", tag="i", gc=False):
    ts: float
    pid: int
    tid: int
    name: str = "first token"
    cat: str = STAGE
    s: str = "t"


class ToolInstant(msgspec.Struct, tag_field="ph", tag="i", gc=False):
    name: str
    ts: float
    pid: int
    tid: int
    args: ToolArgs
    cat: str = TOOL
    s: str = "t"


class Tokens(msgspec.Struct, omit_defaults=True, gc=False):
    context: int = field(name="context tokens")
    cached: int | None = field(default=None, name="cached tokens")


class ContextCounter(msgspec.Struct, tag_field="ph", tag="C", gc=False):
    """A track for each of its tokens, named by the two names."""

    name: str
    ts: float
    pid: int
    args: Tokens


class ArrowStart(msgspec.Struct, tag_field="ph", tag="s", gc=False):
    """Bound to the slice that is there at that time."""

    id: int
    ts: float
    pid: int
    tid: int
    name: str = "flow"
    cat: str = "flow"
    bp: str = "e"


class ArrowEnd(ArrowStart, tag_field="ph", tag="f", gc=False):
    pass


class About(msgspec.Struct, tag_field="ph", tag="M", gc=False):
    """The name of a process or a thread: ``name`` says of which."""

    name: str
    pid: int
    tid: int
    args: dict[str, str]


_encode_lines = msgspec.json.Encoder().encode_lines


def encoded(events: list[Any]) -> bytes:
    """As members of a JSON list, each on a line of its own."""
    lines = _encode_lines(events)[:-1]
    if b"\\" in lines:
        lines = b"\n".join([_readable(line) if b"\\" in line else line for line in lines.split(b"\n")])
    return lines.replace(b"\n", b",\n")


def _readable(line: bytes) -> bytes:
    """See json_text: Perfetto does not read all escapes."""
    return json_args(orjson.loads(line)).encode("utf-8", "replace")
