"""Dynamo's variables mean what they mean there."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.dynamo_settings import AGENT_TRACE, REQUEST_TRACE, read_trace_settings

ON = {"DYN_AGENT_TRACE": "1"}


@pytest.mark.parametrize(
    ("word", "is_on"),
    [("1", True), ("TRUE", True), ("on", True), ("Yes", True), (" 1", False), ("2", False), ("", False)],
)
def test_truth_is_that_of_dynamo(word, is_on):
    assert bool(read_trace_settings({"DYN_AGENT_TRACE": word})) is is_on


def test_defaults_are_those_of_dynamo():
    [agent] = read_trace_settings(ON)
    assert (agent.schema, agent.sinks, agent.path) == (AGENT_TRACE, ("jsonl_gz",), Path("/tmp/dynamo-agent-trace"))
    assert (agent.capacity, agent.buffer_bytes, agent.flush_interval_ms) == (1024, 1048576, 1000)
    assert (agent.roll_bytes, agent.roll_lines, agent.replay_hashes) == (268435456, None, True)


def test_numbers_that_are_none_count_as_not_set():
    names = ("CAPACITY", "JSONL_BUFFER_BYTES", "JSONL_FLUSH_INTERVAL_MS", "JSONL_GZ_ROLL_BYTES", "JSONL_GZ_ROLL_LINES")
    default = read_trace_settings(ON)
    for word in ("many", "-1", "1.5", " 7", "1_0", "", "99999999999999999999999"):
        assert read_trace_settings({**ON, **{f"DYN_AGENT_TRACE_{name}": word for name in names}}) == default
    [read] = read_trace_settings({**ON, **{f"DYN_AGENT_TRACE_{name}": "0" for name in names}})
    assert (read.capacity, read.flush_interval_ms, read.roll_bytes, read.roll_lines) == (1, 1, 268435456, None)


@pytest.mark.parametrize(
    ("text", "sinks", "problems"),
    [
        ("JSONL, stderr", ("jsonl", "stderr"), 0),
        ("", ("stderr",), 0),
        (",", ("stderr",), 0),
        ("jsonl_gz,kafka,jsonl_gz", ("jsonl_gz",), 1),
        ("kafka", (), 1),
    ],
)
def test_sinks_are_a_list_and_unknown_ones_are_problems(text, sinks, problems):
    [read] = read_trace_settings({**ON, "DYN_AGENT_TRACE_SINKS": text})
    assert read.sinks == sinks and len(read.problems) == problems


@pytest.mark.parametrize(
    ("word", "is_on"), [("0", False), ("Off", False), ("no", False), ("false", False), ("x", True)]
)
def test_replay_hashes_are_on_unless_they_are_switched_off(word, is_on):
    [read] = read_trace_settings({**ON, "DYN_AGENT_TRACE_REPLAY_HASHES": word})
    assert read.replay_hashes is is_on


def test_the_request_trace_has_its_own_names_and_the_older_ones():
    [read] = read_trace_settings(
        {
            "DYN_REQUEST_TRACE_RECORDS": "request_end",
            "DYN_AUDIT_OUTPUT_PATH": "/data/audit",
            "DYN_REQUEST_TRACE_OUTPUT_PATH": "/data/old",
            "DYN_REQUEST_TRACE_FILE_FORMAT": "JSONL",
            "DYN_REQUEST_TRACE_JSONL_GZ_ROLL_LINES": "5",
        }
    )
    assert (read.schema, read.sinks, read.path) == (REQUEST_TRACE, ("jsonl",), Path("/data/old"))
    assert (read.records, read.roll_lines) == (("request_end",), 5)


def test_what_dynamo_writes_and_we_do_not_is_said():
    [read] = read_trace_settings(
        {"DYN_REQUEST_TRACE": "1", "DYN_REQUEST_TRACE_SINKS": "file,s3", "DYN_REQUEST_TRACE_RECORDS": "request_payload"}
    )
    assert read.sinks == ("jsonl_gz",)
    assert [problem.split(" is not")[0] for problem in read.problems] == [
        "DYN_REQUEST_TRACE_SINKS: 's3'",
        "DYN_REQUEST_TRACE_RECORDS: 'request_payload'",
    ]
