"""Any JSON value at any place of a line: what cannot be read is said, and every span beside it is read."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.compact import compact
from otel_gym.store.decode import decode_line
from otel_gym.store.follow import Follower
from otel_gym.store.otlp_json import MalformedLineError, key_values, spans_of_line
from otel_gym.store.reader import Damage, open_store

from .lines import live_file, spans_in, write

Place = tuple[str | int, ...]

# Every field of OTLP/JSON and every attribute that a view reads.
ATTRIBUTES = {
    "gym.rollout.id": "1-0",
    "gym.run.id": "r",
    "gym.rollout.attempt": 1,
    "gym.model_call.id": "m1",
    "gym.dialect": "chat",
    "gym.request.body": '{"model":"m"}',
    "gym.response.body": '{"id":"i","choices":[]}',
    "gym.error_category": "timeout",
    "gym.exception.type": "T",
    "gym.first_content_ns": 5,
    "gym.request.header.x-session-id": ["s"],
    "gym.reward": 1.5,
    "gym.step.index": 1,
    "gen_ai.operation.name": "chat",
    "gen_ai.agent.name": "a",
    "gen_ai.request.model": "m",
    "gen_ai.request.stream": True,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.tool.name": "t",
    "gen_ai.tool.call.id": "c",
    "gen_ai.usage.input_tokens": 5,
    "error.type": "E",
    "http.response.status_code": 200,
    "map": {"flag": True, "bytes": b"x", "list": [1, [None]]},
}


def a_span(number: int) -> dict[str, Any]:
    return {
        "traceId": "b" * 32,
        "spanId": f"{number:016x}",
        "parentSpanId": "c" * 16,
        "traceState": "a=b",
        "flags": 1,
        "name": "chat m",
        "kind": 3,
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        "attributes": key_values(ATTRIBUTES),
        "events": [
            {
                "timeUnixNano": "5",
                "name": "exception",
                "attributes": key_values({"a": 1}),
                "droppedAttributesCount": 1,
            }
        ],
        "links": [
            {
                "traceId": "1" * 32,
                "spanId": "2" * 16,
                "traceState": "",
                "flags": 1,
                "attributes": key_values({"a": 1}),
                "droppedAttributesCount": 1,
            }
        ],
        "status": {"code": 2, "message": "m"},
        "droppedAttributesCount": 1,
        "droppedEventsCount": 1,
        "droppedLinksCount": 1,
    }


def a_scope(*numbers: int) -> dict[str, Any]:
    scope = {"name": "s", "version": "1", "attributes": key_values({"a": 1}), "droppedAttributesCount": 1}
    return {"scope": scope, "schemaUrl": "u", "spans": [a_span(number) for number in numbers]}


def a_group(*scopes: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": key_values({"service.name": "s"}), "droppedAttributesCount": 1}
    return {"resource": resource, "schemaUrl": "u", "scopeSpans": list(scopes)}


# Changed is the first of all; the numbers say which spans are its neighbours, and how near.
CHANGED, IN_SCOPE, IN_GROUP, IN_LINE, IN_FILE = 1, 2, 3, 4, 5
LINE = {"resourceSpans": [a_group(a_scope(CHANGED, IN_SCOPE), a_scope(IN_GROUP)), a_group(a_scope(IN_LINE))]}
NEXT_LINE = {"resourceSpans": [a_group(a_scope(IN_FILE))]}


def untouched(place: Place) -> set[int]:
    """The spans that a change at ``place`` is not about."""
    if place[4:6] == ("spans", 0):
        return {IN_SCOPE, IN_GROUP, IN_LINE, IN_FILE}
    if place[:4] == ("resourceSpans", 0, "scopeSpans", 0):
        return {IN_GROUP, IN_LINE, IN_FILE}
    return {IN_LINE, IN_FILE} if place[:2] == ("resourceSpans", 0) else {IN_FILE}


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Of the first group, scope and span; of lists of attributes too only what comes first of each kind."""
    yield place
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*place, name))
    elif isinstance(value, list):
        kept = value if place[-1] == "attributes" else value[:1]
        for index, item in enumerate(kept):
            yield from places(item, (*place, index))


PLACES = [place for place in places(LINE) if place]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["9" * 400, "9" * 5000, "-1", "NaN", "\x1b[2J\n"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
ANY_VALUES = st.builds(
    lambda kind, value: {kind: value},
    st.sampled_from(
        ["stringValue", "intValue", "boolValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue", "other"]
    ),
    JSON | st.builds(lambda value: {"values": [value]}, JSON) | st.just({"values": [{"stringValue": "x"}]}),
)
ODD: list[Any] = [None, True, 5, -1, 1.5, 10**40, 10**400, "", "x", "9" * 400, "9" * 5000, [], [5], {}, {"a": 1}]
ODD += [{"arrayValue": {"values": [{"stringValue": "x"}]}}, {"kvlistValue": {}}, {"boolValue": True}, {"intValue": "7"}]


def changed(place: Place, value: Any) -> bytes:
    line: Any = copy.deepcopy(LINE)
    holder = line
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    return b"\n".join(json.dumps(each).encode() for each in (line, NEXT_LINE))


def numbers_of(spans: Any) -> set[int]:
    return {int(span.span_id, 16) for span in spans if span.span_id.isascii() and span.span_id.isalnum()}


def check_readers(place: Place, value: Any, directory: Path) -> None:
    """Reader, follower and sealed form; each reads the neighbours, and says what it cannot read."""
    path = write(live_file(directory), changed(place, value))
    os.utime(path, (1, 1))
    store = open_store(directory)
    wanted = untouched(place)
    read = {span.span_id for span in spans_in(store)}
    followed: list[Damage] = []
    seen = {found.span.span_id for found in Follower(directory, followed.append).look()}
    sealed = compact(directory)
    path.rename(directory / "aside")
    columns = {span.span_id for span in spans_in(open_store(directory))}
    for found, damage in ((read, store.damage), (seen, followed), (columns, sealed.damage)):
        assert {f"{number:016x}" for number in wanted} <= found
        assert len(found) == 5 or damage or not may_be_missed(place)
        for each in damage:
            assert each.path == path
            assert each.cure
            assert each.line == 1
    assert read == seen == columns


def may_be_missed(place: Place) -> bool:
    """Whether a span that is not read was there: not where the list that it stood in is another."""
    return place[4:6] == ("spans", 0) or "scope" in place or "resource" in place


few = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@few
@given(st.sampled_from(PLACES), JSON | ANY_VALUES)
@example(("resourceSpans", 0, "scopeSpans", 0, "scope", "name"), 5)
def test_one_wrong_json_type_took_the_whole_store_down(place: Place, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_readers(place, value, Path(folder))


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_each_field_may_hold_anything_on_both_ways_of_reading_a_line(value: Any) -> None:
    for place in PLACES:
        line = changed(place, value).split(b"\n")[0]
        assert _read(decode_line, line) == _read(spans_of_line, line), place


def _read(read: Any, line: bytes) -> list[Any]:
    try:
        return list(read(line))
    except MalformedLineError as error:
        return list(error.spans)


COMMANDS = ("ls", "ls --json", "show 1-0", "show 1-0 --json", "stats", "doctor", "tail --once")
COMMANDS += tuple(f"export {what}" for what in ("model-calls --all", "trajectory", "generations"))


@settings(few, max_examples=40)
@given(st.sampled_from(PLACES), JSON | ANY_VALUES)
@example(("resourceSpans", 0, "scopeSpans", 0, "spans", 0, "attributes", 3, "value"), {"arrayValue": {}})
def test_no_command_ended_with_a_traceback_over_a_line_of_wrong_types(place: Place, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(live_file(Path(folder)), changed(place, value))
        for command in COMMANDS:
            result = CliRunner().invoke(app, [*command.split(), "--dir", folder])
            assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
