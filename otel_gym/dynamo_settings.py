"""Dynamo's own variables, as far as they say which trace files are written: names, truth and defaults are Dynamo's.

A number that is none counts as not set, as there. What is asked for and not written here is a problem, said once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

AGENT_TRACE: Final = "dynamo.agent.trace.v1"
REQUEST_TRACE: Final = "dynamo.request.trace.v1"

_AGENT, _REQUEST = "DYN_AGENT_TRACE", "DYN_REQUEST_TRACE"

_TRUE = frozenset({"1", "true", "on", "yes"})
_FALSE = frozenset({"0", "false", "off", "no"})

JSONL, JSONL_GZ, STDERR = "jsonl", "jsonl_gz", "stderr"
_SINKS = (JSONL, JSONL_GZ, STDERR)
REQUESTS, TOOLS = "request_end", "tool"

_NUMBER = re.compile(r"\+?[0-9]+", re.ASCII)
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Variable:
    """``names``: of several that are set the first counts."""

    names: tuple[str, ...]
    meaning: str
    default: str


def _variables(prefix: str, *rows: tuple[str, tuple[str, ...], str, str]) -> dict[str, Variable]:
    """By what it sets; a name that begins with ``_`` is one of the prefix."""
    return {
        field: Variable(tuple(prefix + name if name.startswith("_") else name for name in names), meaning, default)
        for field, names, meaning, default in rows
    }


_BUFFER = "bytes of lines that are gathered before they are written, as one gzip member where files are compressed"
_INTERVAL = "longest time that lines wait for others, in ms; at least 1"
_ROLL_BYTES = "bytes before compression that a segment of `jsonl_gz` holds; 0: the default"
_ROLL_LINES = "lines that a segment holds"
_CAPACITY = "spans that may wait to be written; of more the oldest are dropped, counted and said"

AGENT_VARIABLES = _variables(
    _AGENT,
    ("switch", ("",), "writes the spans of model calls and tools also as `dynamo.agent.trace.v1`", "off"),
    ("sinks", ("_SINKS",), "`jsonl`, `jsonl_gz`, `stderr`, separated by commas; empty: `stderr`", JSONL_GZ),
    (
        "path",
        ("_OUTPUT_PATH",),
        "the file of `jsonl`; of `jsonl_gz` what the segments' names begin with: `PATH.000000.jsonl.gz` …",
        "/tmp/dynamo-agent-trace",
    ),
    ("capacity", ("_CAPACITY",), _CAPACITY, "1024"),
    ("buffer_bytes", ("_JSONL_BUFFER_BYTES",), _BUFFER, "1048576"),
    ("flush_interval_ms", ("_JSONL_FLUSH_INTERVAL_MS",), _INTERVAL, "1000"),
    ("roll_bytes", ("_JSONL_GZ_ROLL_BYTES",), _ROLL_BYTES, "268435456"),
    ("roll_lines", ("_JSONL_GZ_ROLL_LINES",), _ROLL_LINES, "no limit"),
    (
        "replay_hashes",
        ("_REPLAY_HASHES",),
        "hashes of the prompt where its token ids are known, by blocks of `OTEL_GYM_TRACE_BLOCK_SIZE`; off: 0, false, "
        "off, no",
        "on",
    ),
)

REQUEST_VARIABLES = _variables(
    _REQUEST,
    ("switch", ("",), "the same as `dynamo.request.trace.v1`; so does naming records", "off"),
    ("records", ("_RECORDS",), "`request_end`, `tool`, separated by commas", "request_end,tool"),
    ("sinks", ("_SINKS",), "`file`, `stderr`, `jsonl`, `jsonl_gz`, separated by commas; empty: `stderr`", "file"),
    (
        "path",
        ("_FILE_PATH", "_OUTPUT_PATH", "DYN_AUDIT_OUTPUT_PATH"),
        "as DYN_AGENT_TRACE_OUTPUT_PATH",
        "/tmp/dynamo-request-trace",
    ),
    ("file_format", ("_FILE_FORMAT",), "what `file` is: `jsonl` or `jsonl_gz`", JSONL_GZ),
    ("capacity", ("_CAPACITY",), _CAPACITY, "1024"),
    ("buffer_bytes", ("_FILE_BUFFER_BYTES", "_JSONL_BUFFER_BYTES"), _BUFFER, "1048576"),
    ("flush_interval_ms", ("_FILE_FLUSH_INTERVAL_MS", "_JSONL_FLUSH_INTERVAL_MS"), _INTERVAL, "1000"),
    ("roll_bytes", ("_FILE_ROLL_BYTES", "_JSONL_GZ_ROLL_BYTES"), _ROLL_BYTES, "268435456"),
    ("roll_lines", ("_FILE_ROLL_LINES", "_JSONL_GZ_ROLL_LINES"), _ROLL_LINES, "no limit"),
)


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How the records of one schema are written. ``sinks``: of jsonl, jsonl_gz, stderr; none: nowhere."""

    schema: str
    sinks: tuple[str, ...]
    path: Path
    capacity: int
    buffer_bytes: int
    flush_interval_ms: int
    roll_bytes: int
    roll_lines: int | None
    replay_hashes: bool = True
    records: tuple[str, ...] = (REQUESTS, TOOLS)
    problems: tuple[str, ...] = ()

    @property
    def places(self) -> Iterator[str]:
        """Where records go, for people."""
        for sink in self.sinks:
            yield {JSONL: str(self.path), JSONL_GZ: f"{segment_prefix(self.path)}.*.jsonl.gz", STDERR: "stderr"}[sink]


def segment_prefix(path: Path) -> str:
    """What the names of a path's segments begin with."""
    return str(path).removesuffix(".jsonl.gz").removesuffix(".jsonl")


def read_trace_settings(environ: Mapping[str, str]) -> list[TraceSettings]:
    """One for each schema that is switched on."""
    read = []
    if environ.get(_AGENT, "").lower() in _TRUE:
        read.append(_Reader(environ, AGENT_VARIABLES).settings(AGENT_TRACE))
    if environ.get(_REQUEST, "").lower() in _TRUE or environ.get(f"{_REQUEST}_RECORDS"):
        read.append(_Reader(environ, REQUEST_VARIABLES).settings(REQUEST_TRACE))
    return read


class _Reader:
    def __init__(self, environ: Mapping[str, str], variables: Mapping[str, Variable]) -> None:
        self._environ = environ
        self._variables = variables
        self._problems: list[str] = []

    def settings(self, schema: str) -> TraceSettings:
        return TraceSettings(
            schema,
            self._sinks(),
            Path(self._text("path") or self._variables["path"].default),
            max(1, self._number("capacity")),
            self._number("buffer_bytes"),
            max(1, self._number("flush_interval_ms")),
            self._number("roll_bytes") or int(self._variables["roll_bytes"].default),
            self._count("roll_lines") or None,
            (self._text("replay_hashes") or "").lower() not in _FALSE,
            self._records(),
            tuple(self._problems),
        )

    def _text(self, field: str) -> str | None:
        names = self._variables[field].names if field in self._variables else ()
        return next((self._environ[name] for name in names if name in self._environ), None)

    def _count(self, field: str) -> int | None:
        text = self._text(field)
        if text is None or not _NUMBER.fullmatch(text):
            return None
        number = int(text)
        return number if number <= _LARGEST else None

    def _number(self, field: str) -> int:
        number = self._count(field)
        return int(self._variables[field].default) if number is None else number

    def _sinks(self) -> tuple[str, ...]:
        text = self._text("sinks")
        if text is None:
            text = self._variables["sinks"].default
        words = _words(text) or [STDERR]
        if "file" in words and "file_format" in self._variables:
            words = [self._file_format() if word == "file" else word for word in words]
        self._refuse("sinks", words, _SINKS)
        return tuple(dict.fromkeys(word for word in words if word in _SINKS))

    def _file_format(self) -> str:
        word = (self._text("file_format") or JSONL_GZ).lower()
        if word in (JSONL, JSONL_GZ):
            return word
        self._refuse("file_format", [word], (JSONL, JSONL_GZ))
        return JSONL_GZ

    def _records(self) -> tuple[str, ...]:
        words = _words(self._text("records") or "") or [REQUESTS, TOOLS]
        self._refuse("records", words, (REQUESTS, TOOLS))
        return tuple(words)

    def _refuse(self, field: str, words: list[str], known: tuple[str, ...]) -> None:
        name = self._variables[field].names[0] if field in self._variables else ""
        self._problems += [
            f"{name}: {word!r} is not written by otel_gym, which has {', '.join(known)}"
            for word in words
            if word not in known
        ]


def _words(text: str) -> list[str]:
    return [word for word in (each.strip().lower() for each in text.split(",")) if word]


# What Dynamo 1.3 and newer ask for where no topic is set; before, any was taken.
DEFAULT_TOPIC = "agent-tool-events"


class ToolEvents(NamedTuple):
    """Where Dynamo binds for the tool events of a schema. ``topic`` None: not set."""

    schema: str
    endpoint: str
    topic: str | None


def read_tool_events(environ: Mapping[str, str]) -> list[ToolEvents]:
    """One for each schema whose endpoint is set."""
    return [
        ToolEvents(schema, endpoint, environ.get(f"{prefix}_TOOL_EVENTS_ZMQ_TOPIC") or None)
        for prefix, schema in ((_AGENT, AGENT_TRACE), (_REQUEST, REQUEST_TRACE))
        if (endpoint := environ.get(f"{prefix}_TOOL_EVENTS_ZMQ_ENDPOINT"))
    ]
