"""A traced process writes its spans as Dynamo's trace files too, and is none the worse for it."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from otel_gym import AgentContext
from otel_gym.records.dynamo import decode_record
from otel_gym.records.replay_hashes import sequence_hashes
from otel_gym.store.reader import Store
from otel_gym.views.dynamo.export import TraceForm, records_of_rollout
from otel_gym.views.dynamo.places import learn_root
from tests.dynamo.program import PROMPT
from tests.dynamo.traced import ROOT, environment, run


def lines_in(folder: Path) -> list[bytes]:
    """Of segments and plain files."""
    lines = []
    for path in sorted(folder.glob("t*")):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines += content.splitlines()
    return lines


def events_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["event"] for line in lines_in(folder)]


def test_calls_and_tools_are_written_with_agents_hashes_and_times(tmp_path):
    assert run(tmp_path) == ""
    events = events_in(tmp_path)
    planner, searcher = (event for event in events if "request" in event)
    tools = [event for event in events if "tool" in event]
    assert [event["event_type"] for event in tools] == ["tool_start", "tool_end", "tool_start", "tool_error"]
    assert planner["agent_context"] == {
        "session_type_id": "rollout",
        "session_id": "0-0",
        "trajectory_id": "0-0:planner",
    }
    assert searcher["agent_context"]["trajectory_id"] == "0-0:planner/searcher:call_s"
    assert searcher["agent_context"]["parent_trajectory_id"] == "0-0:planner"
    request = planner["request"]
    assert (request["model"], request["input_tokens"], request["output_tokens"], request["cached_tokens"]) == (
        "m",
        40,
        2,
        16,
    )
    assert "ttft_ms" not in request  # the answer came at once
    assert request["replay"] == {
        "trace_block_size": 16,
        "input_length": 40,
        "input_sequence_hashes": sequence_hashes(PROMPT, 16),
    }
    assert request["finish_reason_metadata"] == {
        "finish_reason": "tool_calls",
        "tool_calls": [{"choice_index": 0, "tool_call_index": 0, "id": "call_s", "name": "search"}],
        "choices": [{"choice_index": 0, "finish_reason": "tool_calls"}],
    }
    assert tools[3]["tool"]["status"] == "error" and tools[3]["tool"]["error_type"] == "ValueError"
    assert tools[1]["tool"]["duration_ms"] > 0


def test_every_line_is_a_record_in_dynamos_order_of_keys(tmp_path):
    run(tmp_path)
    for line in lines_in(tmp_path):
        assert decode_record(line).event_type in ("request_end", "tool_start", "tool_end", "tool_error")
        assert line.startswith(b'{"timestamp":')
        event = json.loads(line)["event"]
        head = ["schema", "event_type", "event_time_unix_ms", "event_source", "agent_context"]
        assert list(event)[:5] == head


def test_the_store_gives_the_same_records_later(tmp_path):
    run(tmp_path, 3)
    live = events_in(tmp_path)
    form = TraceForm(block_size=16)
    later = [each for rollout in Store(tmp_path / "store").rollouts() for each in records_of_rollout(rollout, form)]

    def ordered(records: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(record, sort_keys=True) for record in records)

    assert ordered(live) == ordered(later)


def test_both_schemas_and_every_sink_are_written_at_once(tmp_path):
    said = run(
        tmp_path,
        DYN_AGENT_TRACE_SINKS="jsonl,jsonl_gz,stderr,kafka",
        DYN_REQUEST_TRACE="1",
        DYN_REQUEST_TRACE_FILE_PATH=str(tmp_path / "request"),
        DYN_REQUEST_TRACE_RECORDS="request_end",
    )
    plain = (tmp_path / "t").read_bytes()
    assert gzip.decompress((tmp_path / "t.000000.jsonl.gz").read_bytes()) == plain
    logged = [line for line in said.splitlines() if line.startswith('INFO otel_gym: log_type="agent_trace" record={')]
    assert [json.loads(line.partition("record=")[2]) for line in logged] == [
        json.loads(line)["event"] for line in plain.splitlines()
    ]
    assert said.count("'kafka' is not written") == 1
    request_lines = gzip.decompress((tmp_path / "request.000000.jsonl.gz").read_bytes()).splitlines()
    requests = [json.loads(line)["event"] for line in request_lines]
    assert [each["event_type"] for each in requests] == ["request_end"] * 2
    assert requests[1]["agent_context"] == {
        "session_id": "0-0:planner/searcher:call_s",
        "parent_session_id": "0-0:planner",
    }


def test_token_ids_without_a_block_size_are_said_once(tmp_path):
    said = run(tmp_path, 2, OTEL_GYM_TRACE_BLOCK_SIZE="")
    assert said.count("set OTEL_GYM_TRACE_BLOCK_SIZE") == 1
    assert all("replay" not in event.get("request", {}) for event in events_in(tmp_path))
    assert run(tmp_path / "off", OTEL_GYM_TRACE_BLOCK_SIZE="", DYN_AGENT_TRACE_REPLAY_HASHES="0") == ""


def test_segments_roll_at_the_limits_of_the_environment(tmp_path):
    run(tmp_path, 4, DYN_AGENT_TRACE_JSONL_GZ_ROLL_LINES="5")
    assert [len(gzip.decompress(path.read_bytes()).splitlines()) for path in sorted(tmp_path.glob("t.*"))] == [
        5,
        5,
        5,
        5,
        4,
    ]


def test_two_processes_of_one_path_have_segments_of_their_own(tmp_path):
    arguments = [sys.executable, "-m", "tests.dynamo.program", "5", "0.02"]
    both = [subprocess.Popen(arguments, cwd=ROOT, env=environment(tmp_path), stdout=-3) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(list(tmp_path.glob("t.*.jsonl.gz"))) == 2
    assert len(lines_in(tmp_path)) == 2 * 5 * 6


@pytest.mark.parametrize("size", [2_000, 20_000])
def test_a_killed_process_leaves_whole_members(tmp_path, size):
    variables = {"DYN_AGENT_TRACE_JSONL_FLUSH_INTERVAL_MS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.dynamo.program", "100000"],
        cwd=ROOT,
        env=environment(tmp_path, **variables),
        stdout=subprocess.DEVNULL,
    ) as process:
        segment = tmp_path / "t.000000.jsonl.gz"
        while process.poll() is None and not (segment.exists() and segment.stat().st_size > size):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    rest, members = segment.read_bytes(), 0
    while rest:
        member = zlib.decompressobj(wbits=31)
        content = member.decompress(rest)
        assert member.eof and content.endswith(b"\n")
        for line in content.splitlines():
            decode_record(line)
        rest, members = member.unused_data, members + 1
    assert members > 1


def test_a_refused_request_is_no_record(tmp_path):
    program = (
        "import asyncio; from tests.dynamo.program import ask; asyncio.run(ask('1-0', '/refused/v1/chat/completions'))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(tmp_path), check=True)
    assert list(tmp_path.glob("t*")) == []


def test_a_path_that_cannot_be_written_costs_records_and_nothing_else(tmp_path):
    (tmp_path / "file").touch()
    said = run(tmp_path, 2, DYN_AGENT_TRACE_OUTPUT_PATH=str(tmp_path / "file" / "t"))
    assert said.count("are lost and counted; the store is not affected") == 1
    assert len(list(Store(tmp_path / "store").rollouts())) == 2


def test_more_than_the_capacity_is_dropped_counted_and_said_once(tmp_path):
    program = (
        "import otel_gym\n"
        "from otel_gym.views.dynamo import live\n"
        "live.DynamoSink._run = lambda sink: None\n"  # a thread that gets no time
        "with otel_gym.rollout(0, 0):\n"
        "    for number in range(10):\n"
        "        with otel_gym.execute_tool('t', str(number)): pass\n"
    )
    variables = {"DYN_AGENT_TRACE_CAPACITY": "4", "OTEL_GYM_EXIT_TIMEOUT": "0.3"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment(tmp_path, **variables), capture_output=True, text=True, check=True)
    assert done.stderr.count("DYN_AGENT_TRACE_CAPACITY=4") == 1
    counts = [count for path in (tmp_path / "store").rglob("*") if path.is_file() for count in [path.read_bytes()]]
    assert any(b"dynamo_lost_records" in content for content in counts)


def test_a_forked_child_writes_its_own_segment_and_nothing_twice(tmp_path):
    program = (
        "import os, otel_gym\n"
        "with otel_gym.rollout(0, 0), otel_gym.invoke_agent('a'):\n"
        "    with otel_gym.execute_tool('before', 'b'): pass\n"
        "    if os.fork() == 0:\n"
        "        with otel_gym.execute_tool('child', 'c'): pass\n"
        "        otel_gym.flush(10)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(tmp_path), check=True)
    assert sorted(event["tool"]["tool_call_id"] for event in events_in(tmp_path)) == ["b", "b", "c", "c"]
    assert {event["agent_context"]["trajectory_id"] for event in events_in(tmp_path)} == {"0-0:a"}
    assert len(list(tmp_path.glob("t.*"))) == 2


def test_a_worker_of_a_pool_has_written_when_its_span_has_ended(tmp_path):
    program = (
        "import multiprocessing, otel_gym\n"
        "def work(number):\n"
        "    with otel_gym.rollout(number, 0):\n"
        "        with otel_gym.execute_tool('t', str(number)): pass\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "        pool.map(work, range(3))\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    subprocess.run([sys.executable, script], env=environment(tmp_path), check=True)
    assert sorted(event["tool"]["tool_call_id"] for event in events_in(tmp_path)) == sorted("001122")


def test_without_gym_spans_nothing_is_made(tmp_path):
    subprocess.run([sys.executable, "-c", "import otel_gym"], env=environment(tmp_path), check=True)
    assert list(tmp_path.iterdir()) == []


def test_sessions_without_end_are_forgotten() -> None:
    roots: dict[str, str] = {}
    for number in range(5):
        learn_root(AgentContext(f"{number}", parent_session_id="root"), roots, 2)
    assert roots == {"3": "root", "4": "root"}
