"""The files themselves: what they are named, that they can be read by others, that they are whole or not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.reader import RolloutSpans
from otel_gym.views.perfetto.export import is_trace_name, processes, write_trace
from otel_gym.views.perfetto.overview import overview
from otel_gym.views.perfetto.shapes import Instant, Slice
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.spans import MS, START, Spans, everything


def written(path: Path, *rollouts: RolloutSpans) -> Path:
    assert write_trace(lambda: processes(rollouts, Shown()), path) == len(rollouts)
    return path


def events_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_bytes())


def test_times_of_json_are_microseconds_from_the_beginning(tmp_path: Path) -> None:
    """R078"""
    made = Spans()
    made.add("s", None, 0, 1.5005)
    [event] = [event for event in events_of(written(tmp_path / "t.json", made.spans())) if event["ph"] == "X"]
    assert (event["ts"], event["dur"]) == (0, 1500.5)


def test_a_json_file_that_was_cut_off_still_has_its_whole_lines(tmp_path: Path) -> None:
    text = written(tmp_path / "t.json", everything()).read_text("utf-8")
    lines = text[: len(text) // 2].splitlines()
    assert lines[0] == "["
    for line in lines[1:-1]:
        json.loads(line.removesuffix(","))


def test_json_begins_no_slice_that_it_does_not_end(tmp_path: Path) -> None:
    """R082"""
    phases = {event["ph"] for event in events_of(written(tmp_path / "t.json", everything()))}
    assert phases <= {"X", "i", "C", "M", "s", "f"}


def test_a_file_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("t.pftrace.gz", "t.json.gz"):
        first = written(tmp_path / name, everything()).read_bytes()
        assert written(tmp_path / name, everything()).read_bytes() == first
        assert gzip.decompress(first) == written(tmp_path / name.removesuffix(".gz"), everything()).read_bytes()


@pytest.mark.parametrize("name", ["a.pftrace", "a.json", "a.pftrace.gz", "a.json.gz"])
def test_names_of_traces(name: str) -> None:
    assert is_trace_name(name)
    assert not is_trace_name(name.replace("a.", "a-") + ".zip")


def test_nothing_to_show_is_an_empty_trace(tmp_path: Path) -> None:
    assert write_trace(list, tmp_path / "t.json") == 0
    assert events_of(tmp_path / "t.json") == []
    assert write_trace(list, tmp_path / "t.pftrace") == 0


def rollouts_of_a_run() -> list[RolloutSpans]:
    """Three rollouts at once, the last one a straggler."""
    made = []
    for number, (start, end) in enumerate([(0, 100), (10, 90), (100, 400)]):
        spans = Spans(f"{number}-0", start_ns=START + start * MS)
        root = spans.rollout(end - start)
        spans.chat(root, 10, 30)
        spans.chat(root, 20, 40)
        spans.tool(root, 35, 60, "a")
        made.append(spans.spans())
    return made


def test_the_overview_has_a_row_a_rollout_in_the_order_of_their_starts() -> None:
    [run] = overview(reversed(rollouts_of_a_run()))
    assert run.name == "run run-1: 3 rollouts"
    assert [track.name for track in run.tracks] == ["run", "0-0", "1-0", "2-0"]
    concurrent, calls = run.tracks[0].counters
    assert [value for _, value in concurrent.points] == [1, 2, 1, 1, 0]
    assert max(value for _, value in calls.points) == 3


def test_a_row_shows_when_models_and_tools_were_busy() -> None:
    [run] = overview(rollouts_of_a_run()[:1])
    [[row]] = run.tracks[1].lanes
    assert isinstance(row, Slice)
    assert [
        (each.name, (each.start_ns - START) / MS, (each.end_ns - START) / MS)
        for each in row.children
        if isinstance(each, Slice)
    ] == [("model", 10, 40), ("tool", 40, 60)]
    assert row.args["reward"] == 0.5
    assert (row.args["model_calls"], row.args["tool_calls"], row.args["status"]) == (2, 1, "ok")


def test_a_row_shows_which_calls_failed_in_it() -> None:
    made = Spans()
    root = made.rollout(100)
    made.chat(root, 10, 30, failed=True, error__type="http_500")
    made.chat(root, 20, 40, gym__error_category="timeout")
    made.chat(root, 50, 50, failed=True)
    made.chat(root, 60, None, failed=True)
    made.chat(root, 60, 70)
    [run] = overview([made.spans()])
    row = run.tracks[1].lanes[0][0]
    assert isinstance(row, Slice)
    of_phase = row.children[0]
    assert isinstance(of_phase, Slice)
    marked = [each for each in (*of_phase.children, *row.children) if isinstance(each, Instant)]
    assert [(each.name, (each.time_ns - START) / MS, each.args.get("error")) for each in marked] == [
        ("failed call", 30, "http_500"),
        ("failed call", 40, "timeout"),
        ("failed call", 50, None),
    ]
    assert row.args["failed_calls"] == 4
    assert [each.start_ns if isinstance(each, Slice) else each.time_ns for each in row.children] == [
        START + at * MS for at in (10, 40, 50, 60)
    ]


def test_the_overview_by_worker_puts_what_a_worker_did_on_its_rows() -> None:
    rollouts = rollouts_of_a_run()
    for number, rollout in enumerate(rollouts):
        rollout.spans[0].resource = {"service.instance.id": f"w{number % 2}"}
    [run] = overview(rollouts, "worker")
    assert [track.name for track in run.tracks[1:]] == ["service.instance.id w0", "service.instance.id w1"]
    assert [[each.args["rollout_id"] for each in lane] for lane in run.tracks[1].lanes] == [["0-0", "2-0"]]


def test_runs_are_processes_of_the_overview() -> None:
    other = Spans("9-0", run_id=None)
    other.rollout()
    assert [run.name for run in overview([*rollouts_of_a_run(), other.spans()])] == [
        "run run-1: 3 rollouts",
        "rollouts of no run: 1 rollout",
    ]


def test_a_rollout_without_times_does_not_stretch_the_overview() -> None:
    untimed = Spans("8-0", start_ns=1)
    root = untimed.rollout(0, **{"gym.time.known": False})
    untimed.chat(root, 0, 0, **{"gym.time.known": False})
    [run] = overview([*rollouts_of_a_run(), untimed.spans()])
    assert run.name == "run run-1: 3 rollouts, 1 more without times"
    assert run.start_ns() == START


def test_a_rollout_without_times_does_not_cost_the_others_their_nanoseconds(tmp_path: Path) -> None:
    untimed = Spans("8-0", start_ns=1)
    untimed.chat(untimed.rollout(0, **{"gym.time.known": False}), 0, 0, **{"gym.time.known": False})
    timed = Spans("9-0")
    timed.add("s", None, 0, 1.5005)
    events = events_of(written(tmp_path / "t.json", untimed.spans(), timed.spans()))
    assert [event["dur"] for event in events if event["ph"] == "X"] == [1500.5]


def test_workers_of_two_hosts_with_one_pid_are_two() -> None:
    rollouts = rollouts_of_a_run()
    for number, rollout in enumerate(rollouts):
        rollout.spans[0].resource = {"host.name": f"node{number % 2}", "process.pid": 7}
    [run] = overview(rollouts, "worker")
    assert [track.name for track in run.tracks[1:]] == [
        "host.name node0 process.pid 7",
        "host.name node1 process.pid 7",
    ]
    assert run.tracks[1].lanes[0][0].name == "rollout 0-0"


def test_a_call_that_its_client_traced_as_well_is_one_call_of_the_overview() -> None:
    made = Spans()
    outer = made.chat(made.rollout(), 1, 11)
    del outer.attributes["gym.model_call.id"]
    made.chat(outer, 2, 10)
    [run] = overview([made.spans()])
    [_, calls] = run.tracks[0].counters
    assert [value for _, value in calls.points] == [1, 0]
    assert run.tracks[1].lanes[0][0].args["model_calls"] == 1
