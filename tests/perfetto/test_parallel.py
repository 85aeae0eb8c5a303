"""A large store as a trace that several processes write."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.compact import compact
from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.reader import open_store
from otel_gym.store.starts import earliest_start
from otel_gym.views.perfetto import parallel
from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.parallel import workers_for, write_trace_of_store
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.conftest import differences_of
from tests.perfetto.spans import MS, START


def write_rollout(store: Path, number: int, run: str = "run-1", start_ns: int = START) -> Path:
    """A root and a model call with a tool."""
    kinds = [
        ("rollout", 0, 100, {}),
        ("chat toy-1", 5, 20, {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r"}),
    ]
    kinds.append(("execute_tool a", 20, 40, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c"}))
    lines = []
    for place, (name, begin, end, attributes) in enumerate(kinds):
        span = {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{number * 8 + place + 1:016x}",
            "parentSpanId": f"{number * 8 + 1:016x}" if place else "",
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(start_ns + begin * MS),
            "endTimeUnixNano": str(start_ns + end * MS),
            "attributes": key_values({"gym.rollout.id": f"{number}-0", "gym.run.id": run, **attributes}),
        }
        scope = {"scope": {"name": "otel_gym"}, "spans": [span]}
        lines.append(encode_json({"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}))
    folder = store / "spans" / f"rollout_id={number}-0"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "a.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(30):
        write_rollout(tmp_path / "store", number, "run-2" if number == 20 else "run-1")
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["t.pftrace", "t.json", "t.json.gz"])
def test_it_is_the_same_trace(store: Path, tmp_path: Path, engine: Any, name: str) -> None:
    number, damage = write_trace_of_store(open_store(store), tmp_path / name, name, Shown(), 2)
    assert (number, damage) == (30, [])
    made = list(processes(open_store(store).rollouts(), Shown()))
    engine.load((tmp_path / name).read_bytes())
    assert differences_of(engine, made, name) == []
    names = [row["name"] for row in engine.query("select name from process where pid > 0 order by pid")]
    assert names == [process.name for process in made]


def test_one_run_alone(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    runs = frozenset(["run-2"])
    assert write_trace_of_store(open_store(store), path, path.name, Shown(), 2, runs) == (1, [])
    assert [event["args"] for event in json.loads(path.read_bytes()) if event["name"] == "process_name"] == [
        {"name": "rollout 20-0 ok"}
    ]


def test_a_run_of_which_nothing_is_there_is_an_empty_trace(store: Path, tmp_path: Path) -> None:
    for name in ("t.json", "t.pftrace"):
        runs = frozenset(["run-9"])
        assert write_trace_of_store(open_store(store), tmp_path / name, name, Shown(), 2, runs) == (0, [])
    assert json.loads((tmp_path / "t.json").read_bytes()) == []


def test_damage_that_a_process_met_is_told(store: Path, tmp_path: Path) -> None:
    file = store / "spans" / "rollout_id=25-0" / "a.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"rollout"', b'"rollout', 1))
    number, damage = write_trace_of_store(open_store(store), tmp_path / "t.json", "t.json", Shown(), 2)
    assert number == 30
    assert [each.path.name for each in damage] == ["a.jsonl"]


def test_a_rollout_that_began_long_before_the_first_is_shown(store: Path, tmp_path: Path) -> None:
    write_rollout(store, 29, start_ns=START - 30 * 24 * 3600 * 10**9)
    path = tmp_path / "t.json"
    assert write_trace_of_store(open_store(store), path, path.name, Shown(), 2)[0] == 30
    assert min(event["ts"] for event in json.loads(path.read_bytes()) if event["ph"] == "X") >= 0


@pytest.mark.parametrize("form", ["live", "sealed", "gz"])
def test_a_json_trace_begins_with_its_first_span(store: Path, tmp_path: Path, form: str) -> None:
    """It began two days in. Spans without times, and other runs, do not count."""
    write_rollout(store, 20, "run-2", START - 300 * 24 * 3600 * 10**9)
    file = write_rollout(store, 17, start_ns=START - 77 * MS)
    untimed = file.read_bytes().splitlines()[1].replace(str(START - 72 * MS).encode(), b"1")
    said = encode_json(key_values({"gym.time.known": False}))[1:-1]
    file.write_bytes(
        file.read_bytes()
        + untimed.replace(b'"attributes":[{"key":"gym.', b'"attributes":[' + said + b',{"key":"gym.', 1)
    )
    if form == "sealed":
        compact(store, idle_s=0, remove=True)
    if form == "gz":
        file.with_suffix(".jsonl.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    path, runs = tmp_path / "t.json", frozenset(["run-1"])
    assert earliest_start(store, runs) == START - 77 * MS
    assert write_trace_of_store(open_store(store), path, path.name, Shown(), 2, runs)[0] == 29
    assert min(event["ts"] for event in json.loads(path.read_bytes()) if event["ph"] == "X") == 0


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_processes_that_write_end_when_their_parent_is_killed(store: Path, tmp_path: Path) -> None:
    """They waited for work for ever, and their files stayed."""
    code = """
import sys, time
from pathlib import Path
from otel_gym.store.reader import open_store
from otel_gym.views.perfetto.parallel import write_trace_of_store
from otel_gym.views.perfetto.timeline import Shown
def waiting(parts):
    for part in parts:
        yield part
        if part == 3:
            print("written", flush=True)
            time.sleep(600)
if __name__ == "__main__":
    write_trace_of_store(open_store(sys.argv[1]), Path(sys.argv[2]), "t.json", Shown(), 2, None, waiting)
"""
    (script := tmp_path / "export.py").write_text(code)
    (temporary := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, script, store, tmp_path / "t.json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"written\n"
        writers = children_of(parent.pid)
        assert len(writers) >= 2
        parent.kill()
    until = time.monotonic() + 60
    while time.monotonic() < until and (any(map(runs, writers)) or list(temporary.iterdir())):
        time.sleep(0.05)
    assert not any(map(runs, writers))
    assert list(temporary.iterdir()) == []


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def runs(pid: int) -> bool:
    """A process that ended may stay as a zombie where nobody waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_small_stores_and_files_of_many_rollouts_are_written_by_one_process(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workers_for(open_store(store)) == 1
    monkeypatch.setattr(parallel, "_LEAST_ROLLOUTS", 10)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert workers_for(open_store(store)) == 2
    lines = tmp_path / "all.jsonl"
    lines.write_bytes(b"".join(file.read_bytes() for file in sorted(store.rglob("*.jsonl"))))
    assert workers_for(open_store(lines)) == 1


def test_a_command_writes_what_several_processes_make(store: Path, tmp_path: Path) -> None:
    serial = tmp_path / "serial.json"
    write_trace(lambda: processes(open_store(store).rollouts(), Shown()), serial)
    joined = tmp_path / "joined.json"
    write_trace_of_store(open_store(store), joined, joined.name, Shown(), 2)
    of_serial, of_joined = (json.loads(path.read_bytes()) for path in (serial, joined))
    assert [event["name"] for event in of_serial] == [event["name"] for event in of_joined]
