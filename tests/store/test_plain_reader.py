"""A store read the short way: whatever stands in it, the same spans and the same damage."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.store.compact import compact
from otel_gym.store.decode import SpanLines, decode_line
from otel_gym.store.otlp_json import MalformedLineError
from otel_gym.store.plain_reader import PlainReader
from otel_gym.store.reader import Damage, Store
from otel_gym.store.span import Origin
from otel_gym.store.span_lines import line_of_span

from .lines import encoded, live_file
from .stores import span

RESOURCES = [{"service.name": "a"}, {"service.name": 'b","spans":[{'}, {}]
LINES = [
    encoded("1", "rollout", run="r", scope="otel_gym", gym__request__body="whole"),
    encoded("1", "rollout", run="r", scope="otel_gym", end=None),
    *(encoded("2", run="r", resource=resource, scope="otel_gym", n=[1, {"a": 0.5}]) for resource in RESOURCES),
    encoded("3", 'n"],"schemaUrl":"u"}]}]}', run="q", scope="openllmetry", gen_ai__system="openai"),
    encoded("4", run=None, resource={"gym.run.id": "r"}),
    encoded("5", run="r", rollout=None, gym__request__body__base="9"),
    encoded("6", run="r", trace="B").replace(b'"chat m"', b'"chat \\ud83d\\ude00"'),
    encoded("7", run="r").replace(b'"kind":1', b'"kind":"SPAN_KIND_CLIENT"'),
    encoded("7", run="r").replace(b'"10"', b"10"),
    encoded("7", run="r").replace(b'"10"', b'"-10"'),
    encoded("8", run="r")[:-3],
    encoded("8", run="r") * 2,
    encoded("8", run="r") + b" ",
    line_of_span(span(9, run_id="r", origin=Origin("1", schema_url="u", resource_schema_url="v"), flags=1)),
    line_of_span(span(10, run_id="r", origin=Origin("1", schema_url="u"), resource={"gym.rollout.id": "7-0"})),
    b"",
    b"{}",
    b"null",
]
# Two spans on a line that begins and ends as one with one span does.
_ONE, _OTHER = encoded("11", run="r"), encoded("12", run="r")
_START, _END = _ONE.index(b'{"traceId"'), _ONE.rindex(b"]}]}]}")
LINES.append(_ONE[:_END] + b"," + _OTHER[_START:_END] + _ONE[_END:])

few = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
FILES = st.dictionaries(
    st.sampled_from(["1-0/a.jsonl", "1-0/b.jsonl", "1-0/c.json", "2-0/a.jsonl", "unassigned/a.jsonl"]),
    st.lists(st.sampled_from(LINES), max_size=6),
)


def told(store: Store) -> tuple[str, set[Damage]]:
    read = [(each.run_id, each.rollout_id, each.is_ambiguous, each.spans) for each in store.rollouts()]
    return re.sub(r" object at 0x[0-9a-f]+", "", repr(read)), set(store.damage)


@few
@given(FILES, st.lists(st.sampled_from(LINES), max_size=1), st.booleans())
def test_it_gives_what_the_store_gives(files: dict[str, list[bytes]], begun: list[bytes], sealed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "spans").mkdir()
        for name, lines in files.items():
            rollout_id, _, file = name.partition("/")
            live_file(directory, rollout_id, file).write_bytes(b"\n".join(lines) + b"\n" * len(lines[:1]))
        if sealed:
            compact(directory, idle_s=0, remove=True)
            for name, lines in list(files.items())[:1]:  # a writer that goes on
                rollout_id, _, file = name.partition("/")
                live_file(directory, rollout_id, "z.jsonl").write_bytes(b"\n".join(lines))
        if begun:
            (directory / "open").mkdir()
            (directory / "open" / "w.jsonl").write_bytes(b"".join(begun))
        assert told(PlainReader(directory)) == told(Store(directory))


@few
@given(st.lists(st.sampled_from(LINES)))
def test_lines_are_decoded_as_each_alone(lines: list[bytes]) -> None:
    decoder = SpanLines()
    for line in lines:
        assert _read(decoder.decode, line + b"\n") == _read(decode_line, line + b"\n")


def _read(decode: Any, line: bytes) -> Any:
    try:
        return list(map(repr, decode(line)))
    except MalformedLineError as error:
        return str(error), list(map(repr, error.spans))


@pytest.mark.parametrize("name", ["lines.jsonl", "folder"])
def test_what_is_no_store_is_read_too(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    file = place if place.suffix else place / "a.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(encoded(run="r") + b"\n")
    assert told(PlainReader(place)) == told(Store(place))
