"""The check of rows accepts and refuses what Dynamo's replay does: verdicts as its 1.4.2 gave them."""

import json
from pathlib import Path

import pytest

from otel_gym.records.mooncake import AgenticRow, MooncakeRow, ToolEvent, check_rows, encode_row

REPLAYED = Path(__file__).parent / "replayed"
REFUSED = {
    "p_bad_tool_event",
    "p_cycle",
    "p_duplicate_id",
    "p_empty_hash_ids",
    "p_missing_hash_ids",
    "p_missing_output_length",
    "p_missing_request_id",
    "p_negative_delay",
    "p_self_wait",
    "p_too_few_hash_ids",
    "p_torn_last_line",
    "p_unknown_wait_for",
}
ROW = {"request_id": "r0", "session_id": "s", "input_length": 40, "output_length": 4, "hash_ids": [0, 1, 2]}
ROW["timestamp"] = 0.0
LATER = {**ROW, "request_id": "r1", "timestamp": 10.0}
EVENT = {"tool_call_id": "a", "tool_class": "b", "started_at_unix_ms": 1, "ended_at_unix_ms": 2, "duration_ms": 1.0}
EVENT["status"] = "succeeded"


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


def refused(lines, agentic):
    return [problem for problem in check_rows(lines, 16, agentic=agentic) if problem.is_refused]


@pytest.mark.parametrize("path", sorted(REPLAYED.glob("p_*.jsonl")), ids=lambda path: path.stem)
def test_verdict_of_the_replay(path):
    problems = refused(path.read_bytes().split(b"\n"), agentic=True)
    assert bool(problems) == (path.stem in REFUSED), problems


# Rows, and whether `agentic_mooncake` and `mooncake` take them.
VERDICTS = {
    "nothing": ([], False, False),
    "blank lines alone": ("\n \n", False, False),
    "white space that is blank for Rust": (f"\u00a0\n\x0c\n{json.dumps(ROW)}\r\n", True, True),
    "byte order mark": ("\ufeff" + json.dumps(ROW), False, False),
    "no object": ("null", False, False),
    "two rows on a line": (json.dumps(ROW) + json.dumps(LATER), False, False),
    "NaN": (json.dumps({**ROW, "timestamp": float("nan")}), False, False),
    "number beyond a double": (json.dumps(ROW).replace("0.0}", "1e999}"), False, False),
    "lone surrogate": (json.dumps({**ROW, "request_id": "\ud800"}), False, False),
    "key twice": (json.dumps(ROW).replace("{", '{"request_id": "r0", ', 1), False, False),
    "unknown key twice": (json.dumps(ROW).replace("{", '{"x": 1, "x": 2, ', 1), True, True),
    "key by both names": ([{**ROW, "input_tokens": 40}], False, False),
    "alias of the delay": ([ROW, {**LATER, "wait_for": ["r0"], "delay_ms": 5}], True, True),
    "length as a double": ([{**ROW, "input_length": 40.0}], False, False),
    "length as text": ([{**ROW, "input_length": "40"}], False, False),
    "negative length": ([{**ROW, "input_length": -1}], False, False),
    "true as a length": ([{**ROW, "input_length": True}], False, False),
    "length null": ([{**ROW, "input_length": None}], True, True),
    "length above 64 bits": ([{**ROW, "input_length": 2**64}], False, False),
    "no input": ([{**ROW, "input_length": 0}], True, False),
    "no input and no blocks": ([{**ROW, "input_length": 0, "hash_ids": []}], True, False),
    "no output": ([{**ROW, "output_length": 0}], True, True),
    "output null": ([{**ROW, "output_length": None}], False, False),
    "hash ids null": ([{**ROW, "hash_ids": None}], False, False),
    "negative hash id": ([{**ROW, "hash_ids": [0, 1, -2]}], False, False),
    "hash id of 64 bits": ([{**ROW, "hash_ids": [0, 1, 2**64 - 1]}], True, True),
    "hash id above 64 bits": ([{**ROW, "hash_ids": [0, 1, 2**64]}], False, False),
    "too few blocks": ([{**ROW, "hash_ids": [0, 1]}], False, True),
    "token ids that do not fit": ([{**ROW, "output_token_ids": [1, 2]}], False, False),
    "token ids": ([{**ROW, "output_token_ids": [1, 2, 3, 4]}], True, True),
    "negative time": ([{**ROW, "timestamp": -5.0}], False, True),
    "no time": ([{**ROW, "timestamp": None}], True, False),
    "no time and no session": ([without(without(ROW, "timestamp"), "session_id")], True, False),
    "no time on a later turn": ([ROW, {**LATER, "timestamp": None}], True, True),
    "turn before the one before it": ([LATER, ROW], True, False),
    "rows without session in any order": ([without(LATER, "session_id"), without(ROW, "session_id")], True, True),
    "delay on the first turn": ([{**ROW, "delay": 5.0}], True, False),
    "negative delay on the first turn": ([{**ROW, "delay": -5.0}], False, False),
    "negative delay on a later turn": ([ROW, {**LATER, "delay": -5}], False, False),
    "request id twice": ([ROW, {**ROW, "session_id": "t"}], False, True),
    "blank request id": ([{**ROW, "request_id": "\u00a0"}], False, True),
    "request id that is blank for Python alone": ([{**ROW, "request_id": "\x1c"}], True, True),
    "request id as a number": ([{**ROW, "request_id": 3}], False, False),
    "session as a number": ([{**ROW, "session_id": 3}], False, False),
    "wait_for null": ([{**ROW, "wait_for": None}], False, True),
    "branches of numbers": ([{**ROW, "branches": [1]}], False, True),
    "prefix_reset as a number": ([{**ROW, "prefix_reset": 1}], False, True),
    "kind of another name": ([{**ROW, "request_kind": "zzz"}], True, True),
    "kind as a number": ([{**ROW, "request_kind": 1}], False, True),
    "negative tool wait": ([{**ROW, "tool_wait_ms": -3.0}], False, True),
    "negative tool wait within the delay": (
        [ROW, {**LATER, "wait_for": ["r0"], "delay": 5.0, "tool_wait_ms": -3.0}],
        True,
        True,
    ),
    "cycle of three": (
        [{**ROW, "wait_for": ["r2"]}, {**LATER, "wait_for": ["r0"]}, {**ROW, "request_id": "r2", "wait_for": ["r1"]}],
        False,
        False,
    ),
    "tool event": ([{**ROW, "tool_events": [EVENT, {**EVENT, "output_bytes": None, "x": 1}]}], True, True),
    "tool event without status": ([{**ROW, "tool_events": [without(EVENT, "status")]}], False, True),
    "tool event at a negative time": ([{**ROW, "tool_events": [{**EVENT, "started_at_unix_ms": -9}]}], False, True),
    "tool event above 64 bits": ([{**ROW, "tool_events": [{**EVENT, "started_at_unix_ms": 2**64}]}], False, True),
    "tool event that ends first": ([{**ROW, "tool_events": [{**EVENT, "started_at_unix_ms": 9}]}], True, True),
    "key of a tool event twice": (
        json.dumps({**ROW, "tool_events": [EVENT]}).replace('{"tool_call_id"', '{"status": "x", "tool_call_id"'),
        False,
        True,
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict_on_odd_rows(case):
    rows, agentic, plain = VERDICTS[case]
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    assert (not refused(lines, True), not refused(lines, False)) == (agentic, plain)


def test_each_problem_is_named_with_its_row_and_request():
    rows = [ROW, {**ROW, "output_length": None}, {**LATER, "wait_for": ["nope"]}]
    lines = [json.dumps(row).encode() for row in rows]
    assert list(map(str, check_rows(lines, 16, agentic=True))) == [
        "row 2, request 'r0': request_id stands in row 1 too",
        "row 2, request 'r0': output_length is missing",
        "row 3, request 'r1': it waits for 'nope', which is no row",
    ]


def test_one_request_of_each_cycle_is_named():
    def row(name, *wait_for):
        return json.dumps({**ROW, "request_id": name, "wait_for": wait_for}).encode()

    lines = [row("a", "b"), row("b", "a"), row("c", "b"), row("d", "e"), row("e", "d"), row("free")]
    assert len(refused(lines, True)) == 2


def test_request_without_output_is_a_warning_since_an_older_replay_dies_of_it():
    (problem,) = check_rows([json.dumps({**ROW, "output_length": 0}).encode()], 16, agentic=True)
    assert not problem.is_refused and "1.3.1" in problem.text


def test_keys_stand_as_dynamo_writes_them():
    event = ToolEvent("c", "ls", 1, 2, 1.0, "error", error_type="TimeoutError")
    row = AgenticRow("r", "s", 3, 4, [0], 1.0, 0.0, "agent", ["a"], ["b"], False, 2.0, [event])
    assert encode_row(row).decode() == (
        '{"request_id":"r","session_id":"s","input_length":3,"output_length":4,"hash_ids":[0],"timestamp":1.0,'
        '"delay":0.0,"request_kind":"agent","wait_for":["a"],"branches":["b"],"prefix_reset":false,'
        '"tool_wait_ms":2.0,"tool_events":[{"tool_call_id":"c","tool_class":"ls","started_at_unix_ms":1,'
        '"ended_at_unix_ms":2,"duration_ms":1.0,"status":"error","error_type":"TimeoutError"}]}'
    )
    assert encode_row(MooncakeRow(3, 4, [0], 1.0)) == (
        b'{"input_length":3,"output_length":4,"hash_ids":[0],"timestamp":1.0}'
    )
